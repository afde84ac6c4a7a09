"""The crawlers that the benchmark measures; each runs inside the lab and fetches for a number of seconds.

`paced` is headway's fetcher under its bound. `admitted` and `naive` fetch without pacing, under the rules
of diligenti2004 and of Shkapenyuk and Suel: they are what pacing is compared with.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import resource
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import msgspec
from benchmarks.stolen import Stolen
from experiments.lab import Lab, ServerAt, Wire

from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions, Timeouts
from headway.model.page import Kind, Site
from headway.policy.admission import Admission, NaiveController
from headway.policy.prediction import Prediction
from headway.ports import Request
from headway.units import BytesPerSecond, Instant

MEASURED_FROM_S = 1.0
"""Connecting takes some round trips, which is not what `use` is about; `over` counts from the beginning."""


class Phase(msgspec.Struct, frozen=True):
    """From `at_s` on, the sites are allotted these rates (None: all alike) under this bound."""

    at_s: float
    capacity_bytes_per_s: float
    rates_bytes_per_s: list[float] | None = None


class Drive(msgspec.Struct, frozen=True):
    seconds: float
    phases: list[Phase]
    page_bytes: float
    """The median size of a page; sizes are log-normal, as on the web."""
    seed: int = 1
    max_depth: int = 6
    manners: list[str] | None = None
    """How each server answers: "" as it should, "stall" or "trickle"."""
    secure: bool = False
    """Over TLS."""
    kept: bool = True
    """Whether a connection is used for more than one page."""


class Measured(msgspec.Struct, frozen=True):
    """What the wire carried. Rates are bytes per second of each whole second from the first request on."""

    samples: list[float]
    worst_window_bytes_per_s: float
    mean_bytes_per_s: float
    by_site: list[list[float]]
    """Tenths of a second, site by site; empty on loopback."""
    begins_s: list[float]
    in_namespaces: bool
    pages: int
    failures: list[str]
    cpu_s: float
    predicted: list[float] = []
    stolen: float = 0.0
    """The share of the processors' time that the machine's host kept from it meanwhile."""


class WallClock:
    def now(self) -> Instant:
        return Instant(time.time())


async def paced(lab: Lab, argument: Any) -> Measured:
    """One worker a site, always with another page to fetch: the hardest case for the bound."""
    drive = msgspec.convert(argument, Drive)
    run = _Run(lab, drive)
    async with run.fetching(drive.phases[0].capacity_bytes_per_s) as fetcher:
        run.begin()
        workers = [asyncio.create_task(run.work(fetcher, server)) for server in lab.servers]
        turns = asyncio.create_task(_turn_phases(fetcher, lab, drive))
        await run.finish([*workers, turns])
    return run.measured(drive.phases)


async def admitted(lab: Lab, argument: Any) -> Measured:
    """Prediction and admission as in the paper, no pacing: a fixed queue of pages in order of score."""
    drive = msgspec.convert(argument, Drive)
    run = _Run(lab, drive)
    bound = BytesPerSecond(drive.phases[0].capacity_bytes_per_s)
    table = Prediction(BytesPerSecond(bound / len(lab.servers)))
    manager: Admission[str] = Admission(bound, max_depth=drive.max_depth)
    queue = [run.random.choice(lab.servers) for _ in range(100_000)]
    async with run.fetching(math.inf) as fetcher:

        async def download(server: ServerAt) -> None:
            try:
                rate = await run.fetch_one(fetcher, server)
                if rate:
                    table.learn(Instant(time.time()), server.host, BytesPerSecond(rate))
            finally:
                manager.ended(server.host)
                busy.discard(server.host)
                room.set()

        run.begin()
        busy: set[str] = set()
        room = asyncio.Event()
        downloads: set[asyncio.Task[None]] = set()
        while run.going():
            room.clear()
            now = Instant(time.time())
            heads = _first_of_each(queue, busy)
            chosen = manager.admit(now, [(server.host, table.predict(now, server.host)) for server in heads])
            for server in [heads[index] for index in chosen]:
                manager.started(server.host, table.predict(now, server.host))
                busy.add(server.host)
                queue.remove(server)
                downloads.add(task := asyncio.create_task(download(server)))
                task.add_done_callback(downloads.discard)
            run.predicted.append((time.monotonic(), manager.committed_bytes_per_s))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(room.wait(), 0.2)
        await run.finish(list(downloads))
    return run.measured(drive.phases)


async def naive(lab: Lab, argument: Any) -> Measured:
    """Fetchers started below the bound and stopped above it, by the bandwidth of the last second."""
    drive = msgspec.convert(argument, Drive)
    run = _Run(lab, drive)
    bound = drive.phases[0].capacity_bytes_per_s
    controller = NaiveController(BytesPerSecond(bound), most_fetchers=len(lab.servers))
    async with run.fetching(math.inf) as fetcher:
        run.begin()
        allowed = asyncio.Condition()
        at_work: list[int] = [0]
        order = run.random.sample(lab.servers, len(lab.servers))

        async def work(number: int, server: ServerAt) -> None:
            while run.going():
                async with allowed:
                    await allowed.wait_for(lambda: controller.fetchers > at_work[0] or not run.going())
                    at_work[0] += 1
                await run.fetch_one(fetcher, server)
                async with allowed:
                    at_work[0] -= 1
                    allowed.notify_all()
                await asyncio.sleep(0)

        async def control() -> None:
            before = run.wire_total()
            while run.going():
                await asyncio.sleep(1.0)
                total = run.wire_total()
                controller.measured(BytesPerSecond(total - before))
                before = total
                async with allowed:
                    allowed.notify_all()

        workers = [asyncio.create_task(work(number, server)) for number, server in enumerate(order)]
        await run.finish([*workers, asyncio.create_task(control())])
    return run.measured(drive.phases)


class _Run:
    """What all crawlers share: the recording, the pages, the books."""

    def __init__(self, lab: Lab, drive: Drive) -> None:
        self.lab = lab
        self.drive = drive
        self.random = random.Random(drive.seed)
        self.predicted: list[tuple[float, float]] = []
        self._pages = 0
        self._failures: list[str] = []
        self._begun_s = 0.0
        self._cpu_s = 0.0
        self._stolen = Stolen()
        self._wire: Wire | None = None

    @contextlib.asynccontextmanager
    async def fetching(self, capacity_bytes_per_s: float) -> AsyncIterator[HttpFetcher]:
        with self.lab.recording() as self._wire:
            fetcher = HttpFetcher(
                WallClock(),
                ClientOptions(
                    user_agent="headway-benchmark/1.0",
                    timeouts=Timeouts(total_s=3600.0),
                    allow_private=True,
                    verify_tls=False,
                ),
                capacity_bytes_per_s=BytesPerSecond(capacity_bytes_per_s),
            )
            cpu = resource.getrusage(resource.RUSAGE_SELF)
            try:
                yield fetcher
            finally:
                await fetcher.aclose()
                await asyncio.sleep(0.05)
            now = resource.getrusage(resource.RUSAGE_SELF)
            self._cpu_s = now.ru_utime + now.ru_stime - cpu.ru_utime - cpu.ru_stime

    def begin(self) -> None:
        self._begun_s = time.monotonic()
        self._stolen = Stolen()

    def going(self) -> bool:
        return time.monotonic() - self._begun_s < self.drive.seconds + MEASURED_FROM_S

    async def work(self, fetcher: HttpFetcher, server: ServerAt) -> None:
        while self.going():
            await self.fetch_one(fetcher, server)

    async def fetch_one(self, fetcher: HttpFetcher, server: ServerAt) -> float | None:
        """Gives the rate measured as the paper does, or None when it failed."""
        size = round(self.drive.page_bytes * self.random.lognormvariate(0.0, 0.7))
        self._pages += 1
        manner = self.manner(server)
        site = server.secure_site if self.drive.secure else server.site
        path = f"{manner}/{size}" if manner else f"{size}"
        request = Request(f"{site}/{path}/{self._pages}", Site(site), close_after=not self.drive.kept)
        response = await fetcher.fetch(request)
        if manner:
            return None
        if response.kind is not Kind.FETCHED or len(response.body) != size:
            self._failures.append(f"{server.site}: {response.kind} {response.detail}")
            await asyncio.sleep(0.1)
            return None
        return response.wire_bytes / response.duration_s

    def manner(self, server: ServerAt) -> str:
        return "" if self.drive.manners is None else self.drive.manners[self.lab.servers.index(server)]

    async def finish(self, tasks: list[asyncio.Task[None]]) -> None:
        """Let the time run out, then stop everything still in progress."""
        left_s = self._begun_s + MEASURED_FROM_S + self.drive.seconds - time.monotonic()
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.0, left_s), return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    def wire_total(self) -> float:
        assert self._wire is not None
        return float(self._wire.received.total_bytes[-1])

    def measured(self, phases: list[Phase]) -> Measured:
        assert self._wire is not None
        received = self._wire.received
        begin, end = self._begun_s, self._begun_s + MEASURED_FROM_S + self.drive.seconds
        return Measured(
            samples=received.rates(begin, end).tolist(),
            worst_window_bytes_per_s=received.worst_window(begin - 0.5, end),
            mean_bytes_per_s=received.mean_rate(begin + MEASURED_FROM_S, end),
            by_site=[site.rates(begin, end, 0.1).tolist() for site in self._wire.by_server],
            begins_s=[phase.at_s for phase in phases],
            in_namespaces=self.lab.in_namespaces,
            pages=self._pages,
            failures=self._failures[:20],
            cpu_s=self._cpu_s,
            predicted=_by_second(self.predicted, begin, end),
            stolen=self._stolen.share(),
        )


async def _turn_phases(fetcher: HttpFetcher, lab: Lab, drive: Drive) -> None:
    begun = time.monotonic()
    for phase in drive.phases:
        await asyncio.sleep(max(0.0, begun + phase.at_s - time.monotonic()))
        fetcher.set_capacity(BytesPerSecond(phase.capacity_bytes_per_s))
        if phase.rates_bytes_per_s is not None:
            named = zip(lab.servers, phase.rates_bytes_per_s, strict=True)
            fetcher.set_rates({Site(server.site): BytesPerSecond(rate) for server, rate in named})
    await asyncio.sleep(drive.seconds + 3600)


def _first_of_each(queue: list[ServerAt], busy: set[str]) -> list[ServerAt]:
    """One connection a site: the pages of a busy site wait, and of any other the first stands for all."""
    first: dict[str, ServerAt] = {}
    for server in queue[:200]:
        if server.host not in busy:
            first.setdefault(server.host, server)
    return list(first.values())


def _by_second(steps: list[tuple[float, float]], begin: float, end: float) -> list[float]:
    """The mean of a step function over each second."""
    if not steps:
        return []
    marks = [*steps, (end, steps[-1][1])]
    means = []
    for second in range(int(end - begin)):
        low, high = begin + second, begin + second + 1
        area = 0.0
        for (at, value), (until, _) in pairwise(marks):
            area += value * max(0.0, min(until, high) - max(at, low))
        means.append(area)
    return means
