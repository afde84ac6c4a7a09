"""Crawls over loopback by the product itself, with a recording of each step of the engine beside the run."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from click.testing import CliRunner

from headway.cli.inspect import limit_command
from headway.cluster.collecting import begin_recrawl
from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.engine.decisions import decision_of
from headway.model.command import AddSite, Command, Decision, Order, OrderAnswered, Pause, Resume, SetDeadline
from headway.model.event import Event
from headway.model.page import Site, Task
from headway.pages.url import page_of
from headway.runtime import crawling
from headway.runtime.control import write_order
from headway.runtime.crawling import CrawlRun
from headway.runtime.driver import WallClock
from headway.store.run_folder import DECISIONS
from headway.units import Instant

from recording import Begin, Recorder, Recording
from small_web import Server, calendar, gallery, library, news, shop

MOST_S = 40.0
"""However busy the machine is; a crawl ends when it has met what it is to meet."""


class Lived(NamedTuple):
    """A crawl as it was: what its engine was fed and said, and what it left on disk."""

    recording: Recording
    folder: Path
    path: Path

    def decisions(self) -> list[Decision]:
        """What the decision log says that this process decided."""
        begin_at, end_at = self.recording.steps[0].now, self.recording.steps[-1].now
        lines = (self.folder / DECISIONS).read_bytes().splitlines()
        logged = [msgspec.json.decode(line, type=Decision) for line in lines]
        return [decision for decision in logged if begin_at <= decision.at <= end_at]

    def count(self) -> Counter[str]:
        return Counter(decision.decision for decision in self.decisions())


def job_of(tables: Mapping[str, Any]) -> Job:
    source = Source("the test's job")
    return build_job(convert(dict(tables), source), source)


@contextmanager
def clock_set_to(at: float) -> Iterator[None]:
    """A crawl that is built meanwhile begins at this time of day, so that a day may end while it runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crawling, "WallClock", lambda: WallClock(time_of_day=lambda: at))
        yield


class LiveCrawl:
    """One process's part in a crawl: as `headway crawl` runs it, orders through the files of its folder."""

    def __init__(self, job: Job, folder: Path, path: Path) -> None:
        self.run = CrawlRun(job, folder)
        self._folder = folder
        self._path = path
        runtime = self.run._runtime
        self._recorder = Recorder(path, Begin.of(job, runtime.clock.now(), runtime.circumstances))
        self.met: Counter[str] = Counter()
        """How often each kind of decision was taken."""

    async def crawl(self, meanwhile: Callable[[LiveCrawl], Any]) -> Lived:
        driver = self.run._driver

        def on_step(now: Instant, event: Event, commands: Sequence[Command]) -> None:
            self._recorder.step(now, event, commands)
            decisions = (decision_of(now, command) for command in commands)
            self.met.update(decision.decision for decision in decisions if decision is not None)

        driver.on_step = on_step
        try:
            async with asyncio.timeout(2 * MOST_S), asyncio.TaskGroup() as together:
                together.create_task(meanwhile(self))
                # Each second a view, as `headway crawl` shows it: looking on must change nothing.
                together.create_task(self.run.run(on_second=self.run.view))
        finally:
            self._recorder.close()
        return Lived(Recording(self._path), self._folder, self._path)

    async def until(self, is_met: Callable[[Counter[str]], bool]) -> None:
        deadline = time.monotonic() + MOST_S
        while not is_met(self.met) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert is_met(self.met), f"in {MOST_S:.0f} s the crawl met only {self.met}"

    async def limit(self, bandwidth: str) -> None:
        """As a person does in another terminal."""
        before = self.met["set-capacity"]
        done = CliRunner().invoke(limit_command, [str(self._folder), bandwidth])
        assert done.exit_code == 0, done.output
        await self.until(lambda met: met["set-capacity"] > before)

    async def order(self, order: Order) -> None:
        """As the dashboard does."""
        line = decision_of(Instant(0.0), OrderAnswered(order))
        assert line is not None
        word = line.decision
        before = self.met[word]
        write_order(self._folder, Instant(time.time()), order)
        await self.until(lambda met: met[word] > before)


def add(origin: str, path: str = "/") -> AddSite:
    page = page_of(origin + path)
    assert page is not None
    return AddSite(Task(Site(origin), (page.url,)), (page,))


@asynccontextmanager
async def whole_web() -> AsyncIterator[dict[str, Server]]:
    async with AsyncExitStack() as opened:
        servers = {"gallery": await opened.enter_async_context(Server(gallery(8)).served())}
        others = {
            "library": Server(library(100, 15_000)),
            "news": Server(news(servers["gallery"].origin)),
            "shop": Server(shop()),
            "calendar": calendar(),
        }
        for name, server in others.items():
            servers[name] = await opened.enter_async_context(server.served())
        yield servers


def whole_job(servers: Mapping[str, Server]) -> dict[str, Any]:
    deadlines = {"library": "3 s", "news": "1 h", "shop": "20 s"}
    return {
        "crawl": {
            "bandwidth": "800 kbit/s",
            "interval": "30 ms",
            "max_connections": 6,
            "admission_depth": 4,
            "waiting_in_memory": 40,
            "retry_penalty": "1 s",
            "backoff": "500 ms",
            "every": "4 s",
            "revisit": {"adapt": True, "shortest": "3 s", "longest": "9 s"},
            "allow_private": True,
            "timezone": "America/Sao_Paulo",
            "country": "BR",
        },
        "site": [
            {"url": f"{servers[name].origin}/"} | ({"deadline": deadlines[name]} if name in deadlines else {})
            for name in ("library", "news", "shop", "calendar")
        ],
    }


async def _steer(crawl: LiveCrawl, servers: Mapping[str, Server]) -> None:
    await crawl.until(lambda met: met["fetch"] > 20)
    await crawl.limit("2 Mbit/s")
    await crawl.order(Pause())
    await crawl.order(Resume())
    await crawl.order(add(servers["gallery"].origin))
    await crawl.until(lambda met: met["fetch"] > 60)
    await crawl.limit("600 kbit/s")
    await crawl.order(SetDeadline(Site(servers["news"].origin), Instant(time.time() + 4.0)))
    wanted = ("foresee-late", "notice", "fetch-again", "exclude", "retry", "give-up")
    await crawl.until(lambda met: all(met[word] for word in wanted) and met["fetch-again"] > 10)
    crawl.run.drain()


async def everything(folder: Path) -> Lived:
    """One crawl with everything on, until it has met everything."""
    async with whole_web() as servers:
        crawl = LiveCrawl(job_of(whole_job(servers)), folder / "run", folder / "everything.steps")
        return await crawl.crawl(lambda crawl: _steer(crawl, servers))


MIDNIGHT = 1_795_132_800.0 - 1_795_132_800.0 % 86_400.0
"""In UTC."""
QUOTA_BYTES = 300_000


def plain_job(servers: Mapping[str, Server], **crawl: object) -> dict[str, Any]:
    """Without revisits, so that it comes to an end."""
    return {
        "crawl": {
            "bandwidth": "800 kbit/s",
            "interval": "20 ms",
            "max_connections": 6,
            "retry_penalty": "500 ms",
            "backoff": "300 ms",
            "waiting_in_memory": 30,
            "allow_private": True,
            "timezone": "UTC",
        }
        | crawl,
        "site": [
            {"url": f"{servers['library'].origin}/", "deadline": "20 s"},
            {"url": f"{servers['news'].origin}/", "deadline": "1 h", "weight": 2.0},
            {"url": f"{servers['shop'].origin}/"},
        ],
    }


async def _stop_halfway(crawl: LiveCrawl) -> None:
    stats = crawl.run.crawl.stats
    await crawl.until(lambda met: stats.wire_bytes > QUOTA_BYTES - 50_000)
    crawl.run.stop()


async def _look_on(crawl: LiveCrawl) -> None:
    """It ends by itself."""


async def restarted(folder: Path) -> dict[str, Lived]:
    """A crawl that is interrupted, goes on with a quota and another timetable over midnight, and is begun
    again when it is over."""
    run, lived = folder / "run", {}
    async with AsyncExitStack() as opened:
        sites = {"library": Server(library(30, 15_000)), "shop": Server(shop())}
        sites["news"] = Server(news("http://127.0.0.1:9"))
        servers = {name: await opened.enter_async_context(site.served()) for name, site in sites.items()}
        with clock_set_to(MIDNIGHT - 600.0):
            crawl = LiveCrawl(job_of(plain_job(servers)), run, folder / "interrupted.steps")
        lived["interrupted"] = await crawl.crawl(_stop_halfway)
        changed = {
            "quota": {"day": f"{QUOTA_BYTES} B"},
            "timetable": [{"hours": "00:00-01:00", "bandwidth": "1.2 Mbit/s"}],
        }
        with clock_set_to(MIDNIGHT - 4.0):
            crawl = LiveCrawl(job_of(plain_job(servers, **changed)), run, folder / "resumed.steps")
        lived["resumed"] = await crawl.crawl(_look_on)
        assert begin_recrawl(run, Instant(MIDNIGHT + 1800.0))
        with clock_set_to(MIDNIGHT + 1800.0):
            crawl = LiveCrawl(job_of(plain_job(servers)), run, folder / "again.steps")
        lived["again"] = await crawl.crawl(_look_on)
    return lived


async def all_crawls(folder: Path) -> dict[str, Lived]:
    """By name: "everything", "interrupted", "resumed" and "again"."""
    folders = [folder / "whole", folder / "restarted"]
    for each in folders:
        each.mkdir()
    whole, lived = await asyncio.gather(everything(folders[0]), restarted(folders[1]))
    return {"everything": whole, **lived}
