"""One crawler's run: how long, how much CPU and memory, and which pages, by the server's own log."""

from __future__ import annotations

import math
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.manuals import Server

from .crawlers import Crawler

IN_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 4 * 10**9


@contextmanager
def place_to_write() -> Iterator[Path]:
    """In memory where there is enough of it, so that no crawler waits for a file system that another has
    filled."""
    has_room = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= _ENOUGH_BYTES
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if has_room else None) as name:
        yield Path(name)


class Run(NamedTuple):
    pages: frozenset[str]
    """URLs of whole HTML pages that were served."""
    served: int
    """Answers of any kind."""
    crawling_s: float
    """Between the first and the last answer."""
    whole_s: float
    """From the start of the process to its end."""
    cpu_s: float
    peak_bytes: int
    server_cpu_s: float
    problem: str = ""

    @property
    def cpu_s_a_page(self) -> float:
        return self.cpu_s / max(1, len(self.pages))

    @property
    def pages_per_s(self) -> float:
        return len(self.pages) / self.crawling_s if self.crawling_s else 0.0


def run_once(crawler: Crawler, server: Server, urls: Sequence[str], *, at_most_s: float, kept: Path) -> Run:
    """What it writes into a folder of its own in `kept` is removed when it has ended, if that is in memory
    (`place_to_write`). On a disk it stays until all runs are over: for minutes after many files were removed,
    ext4 takes up to a millisecond for each new one, at the cost of the next crawler."""
    name = tempfile.mkdtemp(dir=kept)
    with tempfile.TemporaryFile() as said:
        cores = sorted(os.sched_getaffinity(0))[: 2 if crawler.has_two_cores else 1]
        pin = ["taskset", "-c", ",".join(map(str, cores))]
        command = [*pin, *crawler.command(Path(name), urls)]
        began, served_before_s = time.monotonic(), server.cpu_s()
        process = subprocess.Popen(command, cwd=name, env=_as_usual(), stdout=subprocess.DEVNULL, stderr=said)
        exit_code, usage = _wait(process.pid, began + at_most_s)
        process.returncode = exit_code
        whole_s, server_cpu_s = time.monotonic() - began, server.cpu_s() - served_before_s
        said.seek(0)
        words = said.read().decode(errors="replace").strip()
    if kept.is_relative_to(IN_MEMORY):
        shutil.rmtree(name)
    problem = ""
    if whole_s > at_most_s:
        problem = f"stopped after {at_most_s:.0f} s"
    elif exit_code not in crawler.good_exits:
        problem = f"exit code {exit_code}: {words[-300:]}"
    requests = server.requests()
    pages = [each for each in requests if each.status == 200 and not each.url.endswith("/robots.txt")]
    crawling_s = pages[-1].at - requests[0].at if pages else 0.0
    cpu_s = usage.ru_utime + usage.ru_stime
    peak_bytes = usage.ru_maxrss * 1024
    urls_served = frozenset(each.url for each in pages)
    return Run(urls_served, len(requests), crawling_s, whole_s, cpu_s, peak_bytes, server_cpu_s, problem)


def goal(what: str, figures: Sequence[float], *, least: float = -math.inf, most: float = math.inf) -> str:
    """Whether the median of all runs reaches it, and how many of the runs do."""
    if not figures:
        return f"{what}: not measured"
    reached = sum(least <= figure <= most for figure in figures)
    middle = statistics.median(figures)
    asked = f"at least {least:g}" if least > -math.inf else f"at most {most:g}"
    verdict = "met" if least <= middle <= most else "missed"
    return f"goal, {asked} {what}: {middle:.2f}, {verdict} (by {reached} of {len(figures)} runs)"


def _as_usual() -> dict[str, str]:
    """Where Python may not keep what it has compiled, each start would compile its sources again."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _wait(pid: int, until: float) -> tuple[int, resource.struct_rusage]:
    """Its exit code and what it used, children that it waited for included."""
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), usage
        if time.monotonic() > until:
            os.kill(pid, 9)
            _, status, usage = os.wait4(pid, 0)
            return os.waitstatus_to_exitcode(status), usage
        time.sleep(0.01)
