"""What the add-on costs where there is no bound: pages a second of the same spider, with it and without."""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.scrapy.drive import run_spider

from headway.demoweb import QUICK, ServedProcess, design_web

MOST_COST = 0.05
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


def report(pages: int, rounds: int, say: Callable[[str], None]) -> bool:
    plain, ours = pages_per_s(pages, rounds)
    # Each round's own ratio: a machine is not equally fast all the time.
    costs = [1 - with_it / without for without, with_it in zip(plain, ours, strict=True)]
    cost = statistics.median(costs)
    verdict = "met" if cost < MOST_COST else "MISSED"
    say(f"{rounds} rounds of {pages} pages, without and with the add-on in turn: it costs **{cost:+.1%}** of")
    say(f"pages/s (rounds {', '.join(f'{each:+.1%}' for each in costs)}); to be below 5%: {verdict}.")
    return cost < MOST_COST
