"""Real downloads over loopback for figures 11 and 12: given amounts at given rates, each site through a
fetcher of its own whose capacity is the rate, so that no site can borrow another's part."""

from __future__ import annotations

import asyncio
import csv
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from tests.support.clock import LoopClock

from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions
from headway.model.page import Kind, Site
from headway.ports import Request
from headway.units import BytesPerSecond

from .downloads import Download
from .serving import SITES, Character, served

USUAL_DATA_BYTES = 200_000
USUAL_RATE_BYTES_PER_S = 200_000
# One is varied while the other stays as usual, as in the paper.
TRIALS = (
    *((USUAL_DATA_BYTES, rate) for rate in (50_000, 75_000, 100_000, 150_000, 200_000, 300_000, 400_000)),
    *((data, USUAL_RATE_BYTES_PER_S) for data in (50_000, 100_000, 150_000, 250_000, 300_000, 400_000)),
)
ROUNDS = 2


def measure(
    sites: Sequence[Character] = SITES, trials: Sequence[tuple[int, int]] = TRIALS, rounds: int = ROUNDS
) -> list[Download]:
    """All sites side by side, each going through the trials one after the other."""
    with served(sites) as ports:
        return asyncio.run(_measure_all(sites, ports, [*trials] * rounds))


def write_downloads(downloads: Sequence[Download], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(Download.__struct_fields__)
        rows.writerows(msgspec.structs.astuple(one) for one in downloads)


async def _measure_all(
    sites: Sequence[Character], ports: dict[str, int], trials: Sequence[tuple[int, int]]
) -> list[Download]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_measure_site(site, ports[site.name], trials)) for site in sites]
    return [one for task in tasks for one in task.result()]


async def _measure_site(character: Character, port: int, trials: Sequence[tuple[int, int]]) -> list[Download]:
    return [await _download(character, port, data, rate) for data, rate in trials]


async def _download(character: Character, port: int, data_bytes: int, rate_bytes_per_s: int) -> Download:
    """A new fetcher for each: what one download has taught it must not help the next."""
    site = Site(f"http://127.0.0.1:{port}")
    fetcher = HttpFetcher(LoopClock(), ClientOptions(user_agent="headway-experiment/1", allow_private=True))
    fetcher.set_capacity(BytesPerSecond(rate_bytes_per_s))
    try:
        started_at = time.monotonic()
        for number, size in enumerate(_pages(data_bytes, character.page_bytes)):
            response = await fetcher.fetch(Request(f"{site}/{size}/{number}", site))
            if response.kind is not Kind.FETCHED or len(response.body) != size:
                raise RuntimeError(f"{character.name}: {response.kind.name} {response.detail}")
        duration_s = time.monotonic() - started_at
    finally:
        await fetcher.aclose()
    return Download(character.name, data_bytes, rate_bytes_per_s, duration_s)


def _pages(data_bytes: int, page_bytes: int) -> Iterator[int]:
    for begun in range(0, data_bytes, page_bytes):
        yield min(page_bytes, data_bytes - begun)
