"""Pages a second of one process and of several, on the same web, in turns.

nginx serves Debian's manuals. Alone, a process has one core, and nginx what it needs of the other; two have
both cores, which they share with nginx and with the process that commits.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.manuals import Server, make_web, serve


def measure(count: int, rounds: int = 3) -> dict[str, float]:
    sites = make_web(1)
    urls = [site.url for site in sites]
    with serve(sites) as server:
        figures = [_run(server, urls, count) for _ in range(rounds)]
    rates, cpus = zip(*figures, strict=True)
    return {"processes": count, "pages_per_s": statistics.median(rates), "cpu_ms": statistics.median(cpus)}


def _run(server: Server, urls: Sequence[str], count: int) -> tuple[float, float]:
    options = ["--interval", "0s", "--accept", "text/html", "--allow-private", "-q", "--bandwidth", "8Gbit/s"]
    program = Path(sys.executable).with_name("headway")
    with tempfile.TemporaryDirectory() as folder:
        before = os.times()
        subprocess.run(
            [program, "crawl", *urls, *options, "--processes", str(count), "-o", f"{folder}/run"], check=True
        )
        after = os.times()
    time.sleep(0.1)
    served = server.requests()
    pages = [each for each in served if each.status == 200 and not each.url.endswith("/robots.txt")]
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return len(pages) / (pages[-1].at - served[0].at), 1000 * cpu_s / len(pages)
