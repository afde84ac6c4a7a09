"""What the add-on costs where there is no bound: pages a second of the same spider, with it and without."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from pathlib import Path

from benchmarks.scrapy.drive import run_spider

from headway.testing.demoweb import QUICK, ServedProcess, design_web

WITH = {"ADDONS": {"headway.scrapy.Addon": 500}}


def pages_per_s(pages: int, rounds: int) -> tuple[list[float], list[float]]:
    """Without and with the add-on, in turns, against a site on loopback."""
    plain: list[float] = []
    ours: list[float] = []
    with ServedProcess(design_web(7, scale=pages / 60, tempo=QUICK, roster=("plain",))) as served:
        for _ in range(rounds):
            plain.append(asyncio.run(_once(served.urls[0], {})))
            ours.append(asyncio.run(_once(served.urls[0], WITH)))
    return plain, ours


async def _once(url: str, settings: dict[str, object]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "stats.json"
        await run_spider(
            "benchmarks.scrapy.spiders.FollowSpider", {"url": url}, {**settings, "HEADWAY_DIR": folder}, stats
        )
        found = json.loads(stats.read_text())
    return float(found["response_received_count"]) / float(found["elapsed_time_seconds"])


def report(pages: int, rounds: int) -> bool:
    plain, ours = pages_per_s(pages, rounds)
    cost = 1 - statistics.median(ours) / statistics.median(plain)
    print(f"plain Scrapy      {statistics.median(plain):7.1f} pages/s  {[round(x) for x in plain]}")
    print(f"with the add-on   {statistics.median(ours):7.1f} pages/s  {[round(x) for x in ours]}")
    print(f"cost {cost:+.1%} (to be below 5%): {'met' if cost < 0.05 else 'MISSED'}")
    return cost < 0.05
