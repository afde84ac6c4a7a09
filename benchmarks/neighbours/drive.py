"""One measurement inside the lab: users on a link, with a crawler beside them or alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from experiments.lab import Lab
from experiments.lab.users import Habits, Period, Seen

CALM_FROM_S = 6.0
"""Before, the crawler looks for its rate."""
DOWNLOAD_STARTS_S = 3.0
"""A download has its share from so long after its beginning."""
BACK_AT = 0.85
MOST_BACK_S = 12.0


class Scene(msgspec.Struct, frozen=True):
    """Who is on the link, and when: pages all the time; later a download, then nothing but pages again."""

    crawler: str
    link_bytes_per_s: float
    pages_from_s: float = 0.0
    calm_s: float = 20.0
    download_s: float = 13.0
    after_s: float = 13.0
    page_every_s: float = 0.25
    page_bytes: int = 30_000
    seed: int = 1
    uploads: bool = False
    calls: bool = False
    crawler_page_bytes: int = 60_000
    bound_bytes_per_s: float | None = None
    """None: the link's rate."""
    options: tuple[str, ...] = ()
    processes: int = 1

    @property
    def seconds(self) -> float:
        return self.calm_s + self.download_s + self.after_s


class Felt(msgspec.Struct, frozen=True):
    """What the users measured, and what the crawler took."""

    page_p50_s: float
    page_p95_s: float
    pages: int
    failed_pages: int
    download_bytes_per_s: float
    crawler_calm_bytes_per_s: float
    crawler_beside_download_bytes_per_s: float
    crawler_by_second: list[float]
    """From the end of the download on."""
    users_calm_bytes_per_s: float
    call_p95_s: float | None = None
    upload_bytes_per_s: float | None = None
    log: str = ""
    page_times: list[tuple[float, float]] = []
    crawler_by_tenth: list[float] = []


async def measure(lab: Lab, argument: Any) -> Felt:
    """The last server is the users'; the others have the sites of the crawler."""
    scene = msgspec.convert(argument, Scene)
    users_server = lab.servers[-1]
    begins, ends = scene.calm_s, scene.calm_s + scene.download_s
    whole = Period(0.0, scene.calm_s)
    habits = Habits(
        users_server.host,
        scene.seconds,
        scene.page_every_s,
        scene.page_bytes,
        scene.seed,
        Period(begins, ends) if scene.download_s else None,
        whole if scene.uploads else None,
        whole if scene.calls else None,
    )
    with tempfile.TemporaryDirectory() as folder, lab.recording() as wire:
        crawler = _start(scene, [server.site for server in lab.servers[:-1]], Path(folder))
        try:
            users = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "experiments.lab.users",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=1 << 28,
            )
            said, _ = await users.communicate(msgspec.json.encode(habits) + b"\n")
            seen = msgspec.json.decode(said, type=Seen)
        finally:
            log = _stop(crawler, Path(folder))
        return _felt(scene, seen, wire.by_server, log)


def _felt(scene: Scene, seen: Seen, by_server: list[Any], log: str) -> Felt:
    at, crawled = seen.began_at, by_server[:-1]

    def crawler(begins_s: float, ends_s: float) -> float:
        return sum(each.mean_rate(at + begins_s, at + ends_s) for each in crawled)

    calm = sorted(lasted for begun, lasted in seen.pages if CALM_FROM_S <= begun < scene.calm_s)
    begins, ends = scene.calm_s, scene.calm_s + scene.download_s
    got = sum(size for when, size in seen.downloaded if begins + DOWNLOAD_STARTS_S <= when < ends)
    call = sorted(lasted for _, lasted in seen.call)
    sent = sum(size for when, size in seen.uploaded if when < scene.calm_s)
    return Felt(
        page_p50_s=median(calm) if calm else 0.0,
        page_p95_s=calm[int(0.95 * len(calm))] if calm else 0.0,
        pages=len(calm),
        failed_pages=seen.failed_pages,
        download_bytes_per_s=got / max(1e-9, scene.download_s - DOWNLOAD_STARTS_S),
        crawler_calm_bytes_per_s=crawler(CALM_FROM_S, scene.calm_s),
        crawler_beside_download_bytes_per_s=crawler(begins + DOWNLOAD_STARTS_S, ends)
        if scene.download_s
        else 0.0,
        crawler_by_second=[
            crawler(ends + half / 2, ends + half / 2 + 1) for half in range(int(2 * (scene.after_s - 1)))
        ],
        users_calm_bytes_per_s=by_server[-1].mean_rate(at + CALM_FROM_S, at + scene.calm_s),
        call_p95_s=call[int(0.95 * len(call))] if call else None,
        upload_bytes_per_s=sent / scene.calm_s if scene.uploads else None,
        log=log,
        page_times=seen.pages,
        crawler_by_tenth=[crawler(tenth / 10, tenth / 10 + 0.1) for tenth in range(int(10 * scene.seconds))],
    )


def _start(scene: Scene, sites: list[str], folder: Path) -> subprocess.Popen[bytes] | None:
    urls = [f"{site}/web/{scene.crawler_page_bytes}/1" for site in sites]
    command = command_of(scene, urls, folder)
    if command is None:
        return None
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)


def command_of(scene: Scene, urls: list[str], folder: Path) -> list[str] | None:
    link = scene.link_bytes_per_s
    bound = f"{8 * (scene.bound_bytes_per_s or link):.0f} bit/s"
    headway = [sys.executable, "-m", "headway", "crawl", "--interval", "0s", "--allow-private", "-q"]
    headway += ["-o", str(folder / "run")]
    if scene.processes > 1:
        headway += ["--processes", str(scene.processes)]
    job = folder / "job.toml"
    # The pages are alike and without end, and any crawler may go on as long as it likes.
    tail = '\ntraps = false\nmirrors = "ignore"\nnear_duplicates = false\n'
    tail += "".join(f"{line}\n" for line in scene.options)
    tail += "".join(f'[[site]]\nurl = "{url}"\n' for url in urls)
    match scene.crawler:
        case "alone":
            return None
        case "fixed":
            job.write_text(f'[crawl]\nbandwidth = "{0.8 * 8 * link:.0f} bit/s"{tail}')
            return [*headway, str(job)]
        case "background" | "bounded" | "part":
            wanted = "60% of link" if scene.crawler == "part" else bound
            yields = "\nbackground = true" if scene.crawler == "background" else ""
            job.write_text(f'[crawl]\nbandwidth = "{wanted}"{yields}{tail}')
            return [*headway, str(job)]
        case "wget2":
            return ["wget2", "-r", "-l", "inf", "--no-config", "-q", "-P", str(folder), *urls]
        case "wget-limit":
            rate = f"--limit-rate={0.8 * link / 1024:.0f}k"
            return ["wget", "-r", "-l", "inf", "--no-config", "-q", rate, "-P", str(folder), *urls]
        case "scrapy":
            peer = Path(__file__).parents[1] / "crawl" / "scrapy_stock_peer.py"
            return [sys.executable, str(peer), str(folder), *urls]
    raise ValueError(f"no crawler is called {scene.crawler!r}")


def available(crawler: str) -> bool:
    program = {"wget2": "wget2", "wget-limit": "wget"}.get(crawler)
    return program is None or shutil.which(program) is not None


def _stop(crawler: subprocess.Popen[bytes] | None, folder: Path) -> str:
    if crawler is None:
        return ""
    has_ended = crawler.poll() is not None
    if not has_ended:
        os.killpg(crawler.pid, signal.SIGINT)
    end_by = time.monotonic() + 8.0
    while crawler.poll() is None and time.monotonic() < end_by:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(crawler.pid, signal.SIGKILL)
    crawler.wait()
    said = (folder / "log").read_bytes()[-2000:].decode("utf-8", "replace")
    decisions = folder / "run" / "decisions.jsonl"
    lines = []
    if decisions.exists():
        lines = [line for line in decisions.read_text().splitlines() if '"yield"' in line]
    ended = f"it ended by itself with {crawler.returncode}: " if has_ended else ""
    return ended + said + "\n".join(lines)
