"""kill -9 in the middle of a crawl, then the same command again: what is lost, and what is fetched twice.

    python -m benchmarks.whole.resume --json FILE [--every 6]

Each crawler first crawls the web undisturbed, then again with a kill halfway; the server's log says which
pages it asked for, before and after. Each has the settings that its manual gives for jobs that go on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from benchmarks.crawl.crawlers import PEERS
from benchmarks.manuals import Server, make_web, serve

HERE = Path(__file__).parent
AT_MOST_S = 150.0
Command = Callable[[Path, Sequence[str]], list[str]]


class Resumed(msgspec.Struct, frozen=True):
    name: str
    pages: int
    """Of the web, as found in the undisturbed crawl."""
    before_kill: int
    lost: int
    twice: int
    """Pages served whole before the kill and again after it."""
    problem: str = ""


def headway(folder: Path, urls: Sequence[str]) -> list[str]:
    options = ["--interval", "0s", "--accept", "text/html", "--allow-private", "-q"]
    return [sys.executable, "-m", "headway", "crawl", *options, "-o", str(folder / "run"), *urls]


def scrapy(folder: Path, urls: Sequence[str]) -> list[str]:
    python = str(PEERS / "scrapy" / "bin" / "python")
    return [python, str(HERE / "job_spider.py"), str(folder / "job"), "plain", *urls]


def scrapy_with_headway(folder: Path, urls: Sequence[str]) -> list[str]:
    return [sys.executable, str(HERE / "job_spider.py"), str(folder / "job"), "headway", *urls]


def wget2(folder: Path, urls: Sequence[str]) -> list[str]:
    options = ["--no-config", "-q", "-r", "-l", "inf", "--no-http2", "--timestamping"]
    return ["wget2", *options, "-P", str(folder), *urls]


def httrack(folder: Path, urls: Sequence[str]) -> list[str]:
    options = ["-q", "-Q", "-c8", "-%c0", "-%!", "-A0", "-s2", "-p1", "-I0", "-O", str(folder)]
    if (folder / "hts-cache").is_dir():
        return ["httrack", "--continue", *options]
    return ["httrack", *urls, *options]


PROGRAMS: dict[str, tuple[str, Command]] = {
    "headway": ("", headway),
    "Scrapy, JOBDIR": (str(PEERS / "scrapy" / "bin" / "python"), scrapy),
    "Scrapy, JOBDIR, headway's add-on": ("", scrapy_with_headway),
    "wget2 -r --timestamping": ("wget2", wget2),
    "HTTrack --continue": ("httrack", httrack),
}


def measure(name: str, command: Command, server: Server, urls: Sequence[str]) -> Resumed:
    with tempfile.TemporaryDirectory(prefix="headway-resume-") as folder:
        whole_s = _run(command(Path(folder), urls), Path(folder), AT_MOST_S)
        everything = _pages(server)
    part = 0.6
    for _ in range(5):
        with tempfile.TemporaryDirectory(prefix="headway-resume-") as folder:
            _run(command(Path(folder), urls), Path(folder), part * whole_s)
            before = _pages(server)
            if not 0.15 * len(everything) < len(before) < 0.9 * len(everything):
                part *= 0.8 if len(before) >= 0.9 * len(everything) else 1.2
                continue
            _run(command(Path(folder), urls), Path(folder), AT_MOST_S)
            after = _pages(server)
        lost = len(set(everything) - set(before) - set(after))
        return Resumed(name, len(everything), len(before), lost, len(set(before) & set(after)))
    return Resumed(name, len(everything), 0, 0, 0, "never killed at a good moment")


def _run(command: list[str], folder: Path, at_most_s: float) -> float:
    began = time.monotonic()
    core = {min(os.sched_getaffinity(0))}
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: os.sched_setaffinity(0, core),  # noqa: PLW1509  nothing else runs here
    )
    try:
        process.wait(at_most_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return time.monotonic() - began


def _pages(server: Server) -> list[str]:
    served = server.requests()
    return [each.url for each in served if each.status == 200 and not each.url.endswith("/robots.txt")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.whole.resume", description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--every", type=int, default=6, help="only every so many-th site")
    options = parser.parse_args()
    sites = make_web()[:: options.every]
    told = []
    with serve(sites, core=max(os.sched_getaffinity(0))) as server:
        for name, (program, command) in PROGRAMS.items():
            if program and shutil.which(program) is None:
                print(f"left out: {name}")
                continue
            resumed = measure(name, command, server, [site.url for site in sites])
            print(
                f"{name}: {resumed.pages} pages, killed after {resumed.before_kill}: lost {resumed.lost}, "
                f"fetched twice {resumed.twice} {resumed.problem}",
                flush=True,
            )
            told.append(resumed)
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(told)))


if __name__ == "__main__":
    main()
