"""Simulated crawls: the engine of a job on a described web, and ordering studies on graphs.

An ordering study asks which strategy finds the good pages first; it has no deadlines and no planner. There
the accelerator (`sim.accelerator_loop`) gives the same record as the engine, many times faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from msgspec import structs

from headway.config.job import Job, build_job
from headway.config.reading import Source
from headway.config.schema import CrawlTable, JobFile, SiteTable
from headway.engine.decisions import decision_of
from headway.engine.machine import Engine
from headway.model.command import Command, Decision, SaveSettled, SetCapacity, SetRates
from headway.model.event import FromOutside, Seeded
from headway.model.page import Page, RobotsRules, Site
from headway.plugins import is_reference
from headway.policy.ordering import make_ordering
from headway.policy.ordering.ranked import Ranks
from headway.policy.scope import ANY_TYPE, Scope
from headway.runtime.driver import VirtualClock
from headway.runtime.runtime import WHOLE, Circumstances, Runtime
from headway.sim.link import HAS_COMPILER
from headway.sim.study import Record, Setup
from headway.sim.web import ServerModel, Servers, Trouble, Web
from headway.sim.world import NO_RULES, GraphWorld
from headway.units import FOREVER, BytesPerSecond, Instant, Seconds

EVERYTHING = Scope(accept=(ANY_TYPE,), max_url_length=1 << 30)
LONGEST_S = Seconds(14 * 86400.0)
"""A longer crawl, delayed by a quota or a closed link, is cut off here."""
_TELL_EVERY_PAGES = 250


@dataclass(frozen=True, slots=True)
class DescribedWeb:
    """A web, its servers, their faults and their robots.txt rules."""

    web: Web
    servers: ServerModel
    trouble: Trouble
    rules: dict[Site, RobotsRules] | None = None
    keep_open_s: Seconds = Seconds(5.0)
    """How long servers keep an idle connection open."""
    link_use: float = 1.0
    """The part of a bound that the pacer uses when there is enough to fetch."""

    @classmethod
    def without_trouble(cls, web: Web, servers: Servers) -> DescribedWeb:
        return cls(web, servers, Trouble.drawn(web.pages, len(web.sites), 0))


@dataclass(frozen=True, slots=True)
class Simulated:
    """The result of a simulated crawl."""

    engine: Engine
    record: Record
    """Times are seconds since the start."""
    started_at: Instant
    ended_at: Instant
    is_over: bool
    """False: it was cut off after a fortnight."""
    capacities: list[tuple[Seconds, BytesPerSecond]]
    """The bound on the link, since when."""
    link: list[tuple[Seconds, float]]
    """The bytes received per second, since when."""
    rate_changes: int


def simulate_job(
    job: Job,
    described: DescribedWeb,
    started_at: Instant,
    *,
    circumstances: Circumstances = WHOLE,
    longest_s: Seconds = LONGEST_S,
    outside: Iterable[tuple[Instant, FromOutside]] = (),
    log: Callable[[Decision], None] | None = None,
    tell: Callable[[int, Seconds], None] = lambda pages, seconds: None,
) -> Simulated:
    """Crawl a described web as the live crawl would: the job's engine with planner, deadlines, timetable,
    quotas, admission and politeness. `tell` is called now and then with the number of settled pages and the
    time."""
    job = without_what_is_not_simulated(job)
    world = GraphWorld(
        described.web,
        described.servers,
        described.trouble,
        max_connections=job.file.crawl.max_connections,
        keep_open_s=described.keep_open_s,
        rules=described.rules or NO_RULES,
        link_use=described.link_use,
    )
    runtime = Runtime.from_job(job, VirtualClock(started_at), world, circumstances)
    capacities: list[tuple[Seconds, BytesPerSecond]] = []
    counts = {"pages": 0, "rates": 0}

    def note(now: Instant, command: Command) -> None:
        if log is not None and (decision := decision_of(now, command)) is not None:
            log(decision)
        match command:
            case SaveSettled():
                counts["pages"] += 1
                if counts["pages"] % _TELL_EVERY_PAGES == 0:
                    tell(counts["pages"], Seconds(now - started_at))
            case SetRates():
                counts["rates"] += 1
            case SetCapacity(capacity):
                capacities.append((Seconds(now - started_at), capacity))
            case _:
                pass

    until = Instant(started_at + longest_s)
    ended_at = runtime.run_virtually(
        [Seeded(job.tasks(started_at), seed_pages(described.web))],
        outside=outside,
        until=until,
        on_command=note,
    )
    record = _since(Record.of(world.log), started_at)
    link = [(Seconds(at - started_at), rate) for at, rate in world.link]
    is_over = runtime.engine.is_finished
    return Simulated(runtime.engine, record, started_at, ended_at, is_over, capacities, link, counts["rates"])


def _since(record: Record, start: Instant) -> Record:
    if not start:
        return record
    return replace(
        record,
        started_at=record.started_at - start,
        answered_at=record.answered_at - start,
        ended_at=record.ended_at - start,
    )


def without_what_is_not_simulated(job: Job) -> Job:
    """A described web has no traps and no pages out of scope, is visited once, and its link has no other
    users whose delays could be measured."""
    crawl = structs.replace(
        job.file.crawl, traps=False, mirrors="ignore", near_duplicates=False, background=False, every=None
    )
    file = structs.replace(job.file, crawl=crawl)
    return structs.replace(job, file=file, scope=EVERYTHING, revisiting=None)


def seed_pages(web: Web) -> tuple[Page, ...]:
    return tuple(web.page(number, 0) for number in web.seeds.tolist())


# -- ordering studies -------------------------------------------------------------------------------------


def run_crawl(
    web: Web, servers: Servers, setup: Setup, *, trouble: Trouble | None = None, ranks: Ranks | None = None
) -> Record:
    """An ordering study, with the accelerator if it supports the setup: both ways give the same record."""
    trouble = trouble or Trouble.drawn(web.pages, len(web.sites), setup.seed)
    if can_be_accelerated(setup, trouble):
        from headway.sim.accelerator import run_fast

        return run_fast(web, servers, setup, trouble=trouble, ranks=ranks)
    return run_machine(web, servers, setup, trouble=trouble, ranks=ranks)


def can_be_accelerated(setup: Setup, trouble: Trouble) -> bool:
    is_users = is_reference(setup.strategy)
    return HAS_COMPILER and trouble.is_only_missing and not setup.asks_robots_txt and not is_users


def run_machine(
    web: Web,
    servers: ServerModel,
    setup: Setup,
    *,
    trouble: Trouble | None = None,
    ranks: Ranks | None = None,
    plans: bool = False,
    log: Callable[[Decision], None] | None = None,
    tell: Callable[[int, Seconds], None] = lambda pages, seconds: None,
) -> Record:
    """The engine, decision by decision. `ranks` are for the strategy "optimal". `plans`: the planner divides
    a bounded link as in a live crawl, instead of equal shares."""
    setup.check(web)
    trouble = trouble or Trouble.drawn(web.pages, len(web.sites), setup.seed)
    score_of = None if ranks is None else lambda key: float(ranks[key])
    ordering = make_ordering(setup.strategy, seed=setup.seed, ranks=score_of)
    circumstances = Circumstances(ordering=ordering, shares_evenly=not plans, links_at_once=None)
    simulated = simulate_job(
        job_of_setup(setup, len(web.sites)),
        DescribedWeb(web, servers, trouble),
        Instant(0.0),
        circumstances=circumstances,
        longest_s=Seconds(FOREVER),
        log=log,
        tell=tell,
    )
    return simulated.record


def job_of_setup(setup: Setup, sites: int) -> Job:
    """The job of an ordering study: it has no sites, since the web has the start pages."""
    crawl = CrawlTable(
        max_connections=min(setup.robots, sites),
        pages_per_connection=setup.pages_per_connection,
        respect_robots=setup.asks_robots_txt,
        timezone="UTC",
    )
    file = JobFile(crawl=crawl, site=(SiteTable(url="http://study.test/"),))
    job = build_job(file, Source("the options"))
    return structs.replace(
        job, sites=(), timetable=setup.timetable, strategy=setup.strategy, interval_s=setup.interval_s
    )
