"""The same managers on real TCP: each download is a connection of its own, as crawlers of 2004 had them,
and what arrives is read at the crawler's interface."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import Any

from experiments.diligenti2004.managers import BoundedManager, Manager, NaiveManager
from experiments.diligenti2004.outcome import Outcome
from experiments.diligenti2004.queue import BOUND_BYTES_PER_S, Entry, make_queue
from experiments.lab import Lab, ServerAt, Wire

from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions
from headway.model.page import Site
from headway.ports import Request
from headway.units import BytesPerSecond, Instant

LOOK_EVERY_S = 0.25
"""The paper's manager also looks at its queue periodically, for servers that would starve."""


class WallClock:
    def now(self) -> Instant:
        return Instant(time.time())


async def managed(lab: Lab, argument: dict[str, Any]) -> Outcome:
    name: str = argument["manager"]
    queue = make_queue()
    manager: Manager = NaiveManager(queue) if name == "naive" else BoundedManager(queue, int(name.split()[1]))
    run = _Managed(lab, manager)
    with lab.recording() as wire:
        begun_s = time.monotonic()
        await run.crawl(wire, begun_s + argument["warm_up_s"] + argument["seconds"])
        await asyncio.sleep(0.05)
    begin = begun_s + argument["warm_up_s"]
    measured = wire.received.rates(begin, begin + argument["seconds"])
    return Outcome("lab", name, measured.tolist(), run.predicted[argument["warm_up_s"] :], run.begun)


async def paced(lab: Lab, argument: dict[str, Any]) -> Outcome:
    """headway's own way: a connection to every server, and the pacer keeps all of them under the bound."""
    begun: list[int] = []
    pages: list[deque[Entry]] = [deque() for _ in lab.servers]
    for entry in make_queue():
        pages[entry.server].append(entry)
    with lab.recording() as wire:
        fetcher = HttpFetcher(
            WallClock(),
            ClientOptions(user_agent="headway-experiment/1.0", allow_private=True),
            capacity_bytes_per_s=BytesPerSecond(BOUND_BYTES_PER_S),
        )

        async def work(server: ServerAt, waiting: deque[Entry]) -> None:
            while waiting:
                entry = waiting.popleft()
                begun.append(entry.rank)
                await fetcher.fetch(
                    Request(f"{server.site}/{entry.size_bytes}/{entry.rank}", Site(server.site))
                )

        begun_s = time.monotonic()
        workers = [asyncio.create_task(work(*pair)) for pair in zip(lab.servers, pages, strict=True)]
        await asyncio.sleep(argument["warm_up_s"] + argument["seconds"] + 0.05)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await fetcher.aclose()
    begin = begun_s + argument["warm_up_s"]
    measured = wire.received.rates(begin, begin + argument["seconds"])
    return Outcome("lab", "headway", measured.tolist(), [], begun)


class _Managed:
    def __init__(self, lab: Lab, manager: Manager) -> None:
        self.begun: list[int] = []
        self.predicted: list[float] = []
        self._lab = lab
        self._manager = manager
        self._room = asyncio.Event()

    async def crawl(self, wire: Wire, until_s: float) -> None:
        downloads: set[asyncio.Task[None]] = set()
        seconds = asyncio.create_task(self._count_seconds(wire))
        while time.monotonic() < until_s:
            self._room.clear()
            for entry in self._manager.start(Instant(time.time())):
                self.begun.append(entry.rank)
                downloads.add(task := asyncio.create_task(self._download(entry)))
                task.add_done_callback(downloads.discard)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    self._room.wait(), min(LOOK_EVERY_S, max(0.0, until_s - time.monotonic()))
                )
        for task in [*downloads, seconds]:
            task.cancel()
        await asyncio.gather(*downloads, seconds, return_exceptions=True)

    async def _download(self, entry: Entry) -> None:
        server = self._lab.servers[entry.server]
        begun_s = time.monotonic()
        received = 0
        try:
            reader, writer = await asyncio.open_connection(server.host, server.port)
            try:
                target = f"/{entry.size_bytes}/{entry.rank}"
                writer.write(
                    f"GET {target} HTTP/1.1\r\nHost: {server.host}\r\nConnection: close\r\n\r\n".encode()
                )
                while part := await reader.read(65536):
                    received += len(part)
            finally:
                writer.close()
        except OSError:
            received = 0
        self._manager.ended(Instant(time.time()), entry, received, time.monotonic() - begun_s)
        self._room.set()

    async def _count_seconds(self, wire: Wire) -> None:
        """Tell the manager what arrived in each second, and take down what it had predicted."""
        begun_s, before, steps = time.monotonic(), 0.0, 20
        second = 0
        while True:
            predicted = 0.0
            for step in range(1, steps + 1):
                await asyncio.sleep(max(0.0, begun_s + second + step / steps - time.monotonic()))
                predicted += self._manager.predicted_bytes_per_s() / steps
            second += 1
            total = float(wire.received.total_bytes[-1])
            self._manager.second(Instant(time.time()), total - before)
            self.predicted.append(predicted)
            before = total
            self._room.set()
