"""Programs with a bandwidth limit: every program that has such an option, and Scrapy, which has none.

    python -m benchmarks.whole.limits --json FILE [--seconds 20]

Eight servers in the lab, links of 2 MB/s and up to 150 ms; bytes are counted at the crawler's interface. All
are given the same list of pages, more than they can fetch in the time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.bandwidth.settings import EVEN
from benchmarks.crawl.crawlers import PEERS
from benchmarks.scrapy.drive import first_byte_s
from experiments.lab import Lab, run

BOUND = 500_000
PAGE_BYTES = 40_000
PAGES_EACH = 400
HERE = Path(__file__).parent
Command = Callable[[Path, list[str]], list[str]]


class Held(msgspec.Struct, frozen=True):
    name: str
    bound_bytes_per_s: float
    samples: list[float]
    """Bytes on the wire in each second."""
    problem: str = ""

    @property
    def use(self) -> float:
        return sum(self.samples[1:]) / max(1, len(self.samples) - 1) / self.bound_bytes_per_s

    @property
    def over(self) -> float:
        return max(self.samples) / self.bound_bytes_per_s - 1


def headway(folder: Path, urls: list[str]) -> list[str]:
    sites: dict[str, list[str]] = {}
    for url in urls:
        sites.setdefault("/".join(url.split("/")[:3]), []).append(url)
    lines = ["[crawl]", f'bandwidth = "{BOUND} B/s"', 'interval = "0 s"', "allow_private = true"]
    for listed in sites.values():
        lines += ["[[site]]", f'url = "{listed[0]}"', f"seeds = {msgspec.json.encode(listed[1:]).decode()}"]
    (folder / "job.toml").write_text("\n".join(lines))
    return [
        sys.executable,
        "-m",
        "headway",
        "crawl",
        str(folder / "job.toml"),
        "-q",
        "-o",
        str(folder / "run"),
    ]


def aria2(folder: Path, urls: list[str]) -> list[str]:
    (folder / "list").write_text("".join(f"{url}\n out=page{number}\n" for number, url in enumerate(urls)))
    options = [f"--max-overall-download-limit={BOUND}", "-j8", "-q", "--no-conf", "--disable-ipv6"]
    return ["aria2c", *options, "-d", str(folder), "-i", str(folder / "list")]


def wget(folder: Path, urls: list[str]) -> list[str]:
    return [
        "wget",
        "--no-config",
        "-q",
        f"--limit-rate={BOUND}",
        "-O",
        "/dev/null",
        "-i",
        _listed(folder, urls),
    ]


def httrack(folder: Path, urls: list[str]) -> list[str]:
    options = ["-q", f"-A{BOUND}", "-c8", "-%c0", "-%!", "-s0", "-C0", "-I0", "-r1", "-O", str(folder)]
    return ["httrack", *options, "-%L", _listed(folder, urls)]


def scrapy(folder: Path, urls: list[str]) -> list[str]:
    return [str(PEERS / "scrapy" / "bin" / "python"), str(HERE / "list_spider.py"), _listed(folder, urls)]


def scrapy_with_headway(folder: Path, urls: list[str]) -> list[str]:
    return [sys.executable, str(HERE / "list_spider.py"), _listed(folder, urls), f"{BOUND} B/s"]


PROGRAMS: dict[str, tuple[str, Command]] = {
    "headway": ("", headway),
    "Scrapy with headway's add-on": ("", scrapy_with_headway),
    "aria2 --max-overall-download-limit": ("aria2c", aria2),
    "wget --limit-rate": ("wget", wget),
    "HTTrack -A": ("httrack", httrack),
    "Scrapy with AutoThrottle (has no such option)": (str(PEERS / "scrapy" / "bin" / "python"), scrapy),
}


def _listed(folder: Path, urls: list[str]) -> str:
    (folder / "list").write_text("\n".join(urls) + "\n")
    return str(folder / "list")


async def drive(lab: Lab, argument: Any) -> Held:
    """One program for some seconds, inside the lab."""
    name, seconds = argument["name"], argument["seconds"]
    urls = [f"{server.site}/{PAGE_BYTES}/{n}.html" for n in range(PAGES_EACH) for server in lab.servers]
    problem = ""
    with tempfile.TemporaryDirectory(prefix="headway-limits-") as folder, lab.recording() as wire:
        process = await asyncio.create_subprocess_exec(
            *PROGRAMS[name][1](Path(folder), urls),
            cwd=folder,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ},
        )
        saying = asyncio.ensure_future(process.communicate())
        done, _ = await asyncio.wait([saying], timeout=seconds + 4.0)
        if done and process.returncode:
            problem = (await saying)[1].decode("utf-8", "replace")[-200:]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await saying
    received = wire.received
    begin = first_byte_s(received, 5_000)
    return Held(name, BOUND, received.rates(begin, begin + seconds).tolist(), problem)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.whole.limits", description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    told = []
    for name, (program, _) in PROGRAMS.items():
        if program and shutil.which(program) is None:
            print(f"left out: {name}")
            continue
        argument = {"name": name, "seconds": options.seconds}
        result = run("benchmarks.whole.limits:drive", EVEN, argument, timeout_s=options.seconds + 60)
        held = msgspec.convert(result, Held)
        print(f"{name}: use {held.use:.3f}, highest second {held.over:+.1%} {held.problem}", flush=True)
        told.append(held)
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(told)))


if __name__ == "__main__":
    main()
