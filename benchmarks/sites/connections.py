"""A crawl with very many connections: how soon it reaches its steady rate. Prints one line of JSON.

    python -m benchmarks.sites.connections CONNECTIONS

Each site is a server of its own on a loopback address, which answers after 0.3 s; the interval is 15 s. The
wanted rate is one page of each site every 15.3 s.
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.sites.servers import address_of, allow_many_files

from headway.config.job import build_job
from headway.config.reading import Source
from headway.config.schema import CrawlTable, JobFile, SiteTable
from headway.runtime.crawling import CrawlRun
from headway.runtime.process import keep_freed_memory, look_for_garbage_seldom

INTERVAL_S, LATENCY_S = 15, 0.3
STEADY_FROM_S, ROUNDS = 20, 2
LASTS_S = math.ceil(STEADY_FROM_S + ROUNDS * (INTERVAL_S + LATENCY_S))
PORT = 18080


async def crawl(sites: int, folder: Path) -> dict[str, float]:
    tables = tuple(SiteTable(url=f"http://{address_of(number)}:{PORT}/") for number in range(sites))
    crawl = CrawlTable(
        interval=f"{INTERVAL_S} s",
        max_connections=sites,
        respect_robots=False,
        allow_private=True,
        feeds=False,
    )
    run = CrawlRun(build_job(JobFile(crawl=crawl, site=tables), Source("the benchmark")), folder)
    look_for_garbage_seldom()
    begun_s = time.monotonic()
    done: list[int] = []
    running = asyncio.create_task(run.run())
    for second in range(1, LASTS_S + 1):
        await asyncio.sleep(max(0.0, begun_s + second - time.monotonic()))
        done.append(run.crawl.stats.done)
    cpu_s = time.process_time()
    run.stop()
    await running
    first = next((second for second, pages in enumerate(done, 1) if pages), LASTS_S)
    steady_pages = done[-1] - done[STEADY_FROM_S - 1]
    return {
        "connections": sites,
        "first_page_s": first,
        "all_begun_s": next((second for second, pages in enumerate(done, 1) if pages >= sites), LASTS_S),
        "share_of_wanted": steady_pages / (ROUNDS * sites),
        "cpu_share": cpu_s / LASTS_S,
        "failed": run.crawl.stats.failed,
    }


def measure(sites: int) -> dict[str, float]:
    allow_many_files()
    keep_freed_memory()
    command = [sys.executable, "-m", "benchmarks.sites.servers", str(PORT), str(LATENCY_S)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as servers:
        assert servers.stdin is not None
        assert servers.stdout is not None
        try:
            servers.stdout.readline()
            with tempfile.TemporaryDirectory() as folder:
                return asyncio.run(crawl(sites, Path(folder) / "run"))
        finally:
            servers.stdin.close()


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
