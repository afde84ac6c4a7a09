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

from benchmarks.sites import Server, make_web, serve
from rich.table import Table


def compare(counts: Sequence[int] = (1, 2), rounds: int = 3, copies: int = 1) -> Table:
    sites = make_web(copies)
    urls = [site.url for site in sites]
    rates: dict[int, list[float]] = {count: [] for count in counts}
    cpus: dict[int, list[float]] = {count: [] for count in counts}
    with serve(sites) as server:
        for _ in range(rounds):
            for count in counts:
                rate, cpu_ms = _run(server, urls, count)
                rates[count].append(rate)
                cpus[count].append(cpu_ms)
                print(f"{count} processes: {rate:,.0f} pages/s, {cpu_ms:.2f} ms of CPU a page", flush=True)
    table = Table(
        title=f"{len(sites)} sites, {sum(site.pages for site in sites):,} pages, median of {rounds}"
    )
    for heading in ("processes", "pages/s", "of one", "CPU a page"):
        table.add_column(heading, justify="right")
    one = statistics.median(rates[counts[0]])
    for count in counts:
        rate = statistics.median(rates[count])
        table.add_row(
            str(count), f"{rate:,.0f}", f"{rate / one:.2f}", f"{statistics.median(cpus[count]):.2f} ms"
        )
    return table


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
