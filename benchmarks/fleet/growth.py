"""Pages a second against the number of collectors, on servers that take 3.4 s to answer (cobweb1999, fig 3).

As in the paper, a collector asks one server at a time. All of them live in this process, each with its own
connections to the database, so that fifty fit on a small machine; nothing but the clock limits them.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from tests.support.fleetweb import FleetWeb
from tests.support.postgres import TemporaryPostgres

from headway.cluster.collecting import CollectorOptions, CollectRun, begin, job_of
from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.store.postgres.connection import Address

LATENCY_S = 3.4


def measure(count: int, seconds: float = 6 * LATENCY_S) -> dict[str, float]:
    with TemporaryPostgres(max_connections="400") as server:
        rate = asyncio.run(_collect(server.address("growth"), count, seconds))
    return {"collectors": count, "pages_per_s": rate}


async def _collect(store: str, count: int, seconds: float) -> float:
    address = Address.parse(store)
    with (
        FleetWeb(sites=2 * count, pages=200, latency_s=LATENCY_S) as web,
        tempfile.TemporaryDirectory() as name,
    ):
        source = Source("growth")
        settings = {"allow_private": True, "interval": "0 s", "max_connections": 1, "respect_robots": False}
        tables = {"crawl": settings, "site": [{"url": seed} for seed in web.seeds]}
        await asyncio.to_thread(begin, build_job(convert(tables, source), source), address, time.time())
        job = job_of(address)
        runs = [
            CollectRun(address, job, Path(name) / str(number), options=CollectorOptions(str(number)))
            for number in range(count)
        ]
        tasks = [asyncio.create_task(run.run()) for run in runs]
        # Everybody has its sites, and its first answers.
        await asyncio.sleep(LATENCY_S + 4 + count * 0.1)
        before, began = len(web.asked), time.monotonic()
        await asyncio.sleep(seconds)
        rate = (len(web.asked) - before) / (time.monotonic() - began)
        for run in runs:
            run.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
    return rate
