"""`headway simulate`: the engine of a job, or an ordering study, on a described web in virtual time.

An ordering study asks which strategy finds the good pages first; it has no deadlines and no planner. There
the accelerator (`sim.accelerator`) gives the same record as the engine, many times faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
from msgspec import structs

from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.config.schema import CrawlTable, JobFile, SiteTable
from headway.engine.decisions import decision_of
from headway.engine.machine import Engine
from headway.errors import HeadwayError, JobError, install_command
from headway.http.robots import rules_from_text
from headway.model.command import Command, Decision, SaveSettled, SetCapacity, SetRates
from headway.model.event import FromOutside, Seeded
from headway.model.page import Page, RobotsRules, Site
from headway.planning.estimate import DEFAULT, GIVEN, NOTHING_LEARNT, SiteAssumptions
from headway.planning.problem import Objective
from headway.plugins import is_reference
from headway.policy.ordering import make_ordering, parse_ordering
from headway.policy.ordering.ranked import Ranks, pagerank
from headway.policy.scope import ANY_TYPE, Scope
from headway.policy.server_groups import GroupRules
from headway.policy.timetable import Entry, Timetable
from headway.runtime.driver import VirtualClock
from headway.runtime.plan import plan_from_job, start_of
from headway.runtime.runtime import WHOLE, Circumstances, Runtime, check_has_rate
from headway.sim.graph import (
    RecordedServers,
    load_web,
    robots_of_run,
    use_of_bound,
    web_of_run,
)
from headway.sim.job_simulation import (
    QUICK_POLICIES,
    SERVER_SPREAD,
    Draw,
    JobSimulation,
    JobSite,
    range_of,
    what_if,
)
from headway.sim.link import HAS_COMPILER
from headway.sim.study import (
    ACCELERATOR,
    ENGINE,
    Floats,
    Record,
    Setup,
    SimResult,
    SiteEnd,
    judge,
    mean_level,
    spans,
)
from headway.sim.web import ServerModel, Servers, Trouble, Web, make_sites
from headway.sim.world import NO_RULES, GraphWorld
from headway.store.reader import DATABASE, RunReader, knowledge_of_run, reads_rows
from headway.units import (
    FOREVER,
    Bytes,
    BytesPerSecond,
    Instant,
    Seconds,
    format_duration,
    format_size,
    utc_text,
)

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
    score_of = None if ranks is None else lambda page: float(ranks[page.key])
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
        job,
        sites=(),
        timetable=setup.timetable,
        strategy=setup.strategy,
        interval_s=setup.interval_s,
        groups=GroupRules(),  # each site of a study is a server, and no two share a domain
    )


MEASURED_SPREAD, GIVEN_SPREAD, GUESSED_SPREAD = 0.15, 0.3, 0.8
"""The deviation of the logarithm of a site's amount of data, by its source: an earlier run, the job, a
default."""
_MOST_DRAWS = 10
_PAGES_IN_ALL_DRAWS = 30_000
_MOST_PAGES = 10_000_000
"""In the memory of one process; with more, the engine's own bookkeeping would not fit either."""
"""A draw with ten thousand pages and a planner takes about ten seconds."""
_SPANS = 120
_KEPT_OPEN_S = 5.0
"""How long servers are assumed to keep an idle connection, where it was kept in the recorded run."""


@dataclass(frozen=True, slots=True)
class TroubleShares:
    """Shares: of pages that do not exist, of attempts that get an error, of sites that never answer."""

    missing: float = 0.0
    flaky: float = 0.0
    down: float = 0.0

    def drawn(self, pages: int, sites: int, seed: int) -> Trouble:
        return Trouble.drawn(pages, sites, seed, missing=self.missing, flaky=self.flaky, down=self.down)


NO_TROUBLE = TroubleShares()


def constant(servers: Servers | RecordedServers) -> Servers:
    """Servers without chance, for the accelerator."""
    return servers.constant() if isinstance(servers, RecordedServers) else servers


def only_sites(
    web: Web, servers: Servers | RecordedServers, wanted: Sequence[str]
) -> tuple[Web, Servers | RecordedServers]:
    """The part of a web on the named sites; all of it if none is named."""
    if not wanted:
        return web, servers
    part = web.only(wanted)
    kept = np.flatnonzero(np.isin(np.array(web.sites), list(wanted)))
    if not len(part.seeds):
        raise HeadwayError(f"no start page of the crawl is on {', '.join(wanted)}")
    return part, servers.only(kept)


def usual_strategies(web: Web) -> list[str]:
    """The strategies that castillo2004 compares, and Flow, with batches of about a tenth of the web."""
    size = max(1, web.pages // 10)
    size = round(size, 1 - len(str(size)))
    return ["optimal", "length", f"batch({size})", "depth", f"partial({size})", f"flow({size})", "random"]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the options change in the simulated crawl; None: no change."""

    strategies: tuple[str, ...] = ()
    robots: int | None = None
    interval_s: Seconds | None = None
    pages_per_connection: int | None = None
    bandwidth_bytes_per_s: BytesPerSecond | None = None
    timetable: tuple[Entry, ...] = ()
    sites: tuple[str, ...] = ()
    trouble: TroubleShares = NO_TROUBLE
    seed: int = 0

    def setup(self, strategy: str, usual: Setup) -> Setup:
        """The setup of an ordering study with the changes of the options."""
        said = {
            "robots": self.robots,
            "interval_s": self.interval_s,
            "pages_per_connection": self.pages_per_connection,
        }
        known = {name: value for name, value in said.items() if value is not None}
        bandwidth = self.timetable_or(usual.timetable)
        return structs.replace(usual, strategy=strategy, bandwidth=bandwidth, seed=self.seed, **known)

    def timetable_or(self, usual: Timetable) -> Timetable:
        """A bandwidth from the options replaces the whole timetable of the job."""
        if self.bandwidth_bytes_per_s is None and not self.timetable:
            return usual
        rate = self.bandwidth_bytes_per_s
        usual_rate = usual.usual_bytes_per_s if rate is None else rate
        return structs.replace(usual, usual_bytes_per_s=usual_rate, entries=self.timetable)


def wanted_job(job: Job, wanted: Wanted) -> Job:
    """The job with the changes of the options."""
    if len(wanted.strategies) > 1:
        raise JobError(
            "several strategies can only be compared on a web; give a graph or a run folder, or one strategy"
        )
    if wanted.bandwidth_bytes_per_s is None and not wanted.timetable:
        check_has_rate(job, "a simulation")
    setup = wanted.setup(wanted.strategies[0] if wanted.strategies else job.strategy, setup_of(job))
    setup.check_numbers()
    parse_ordering(setup.strategy)
    crawl = structs.replace(
        job.file.crawl, max_connections=setup.robots, pages_per_connection=setup.pages_per_connection
    )
    return structs.replace(
        job,
        file=structs.replace(job.file, crawl=crawl),
        strategy=setup.strategy,
        interval_s=setup.interval_s,
        timetable=setup.timetable,
        link_part=None,
    )


def setup_of(job: Job) -> Setup:
    crawl = job.file.crawl
    return Setup(
        strategy=job.strategy,
        robots=crawl.max_connections,
        interval_s=job.interval_s,
        pages_per_connection=crawl.pages_per_connection,
        bandwidth=job.timetable,
        asks_robots_txt=crawl.respect_robots,
    )


def is_run(target: str) -> bool:
    path = Path(target)
    return path.name == DATABASE or (path / DATABASE).exists()


def simulate_web(
    target: str,
    wanted: Wanted,
    *,
    comparing: bool = False,
    accelerated: bool | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[SimResult]:
    """Ordering studies on a graph or a synthetic web. With a bound the engine's planner shares the link,
    unless the accelerator is requested."""
    web, servers = only_sites(*load_web(target, seed=wanted.seed), wanted.sites)
    names = list(wanted.strategies) or (usual_strategies(web) if comparing else ["length"])
    setups = [wanted.setup(name, Setup()) for name in names]
    for setup in setups:
        setup.check(web)
    trouble = wanted.trouble.drawn(web.pages, len(web.sites), wanted.seed)
    is_bounded = any(
        math.isfinite(rate)
        for rate in (
            setups[0].timetable.usual_bytes_per_s,
            *(entry.rate_bytes_per_s for entry in setups[0].timetable.entries),
        )
    )
    uses_accelerator = can_be_accelerated(setups[0], trouble) and accelerated is not False
    if accelerated and not uses_accelerator:
        raise JobError(
            f"the accelerator needs numba ({install_command('sim')}) and simulates no retries: leave out"
            " --accelerator, --flaky and --down"
        )
    tell(f"ranking {web.pages:,} pages")
    ranks = pagerank(web.starts, web.targets, tolerance=1e-8)
    results = []
    for setup in setups:
        tell(f"crawling by {setup.strategy}")
        if uses_accelerator and (accelerated or not is_bounded):
            record = run_crawl(web, constant(servers), setup, trouble=trouble, ranks=ranks)
            results.append(judge(web, constant(servers), setup, record, ranks, simulated_by=ACCELERATOR))
            continue
        say = partial(_tell_progress, tell, setup.strategy, web.pages)
        record = run_machine(web, servers, setup, trouble=trouble, ranks=ranks, plans=True, tell=say)
        results.append(judge(web, constant(servers), setup, record, ranks))
    return results


@reads_rows
def _job_of_run(path: Path) -> tuple[Job, Instant]:
    with RunReader(path) as reader:
        source = Source(f"the job of {path}")
        job, started_at = build_job(convert(reader.job, source), source), reader.started_at
        utc_text(started_at)  # fails if the calendar has no such instant
        return job, started_at


def simulate_run(
    path: Path,
    wanted: Wanted,
    *,
    comparing: bool = False,
    accelerated: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> list[SimResult]:
    """Simulate an earlier run with its own job and the changes of the options."""
    job, started_at = _job_of_run(path)
    web, servers = only_sites(*web_of_run(path, seed=wanted.seed), wanted.sites)
    names = list(wanted.strategies) or (usual_strategies(web) if comparing else [job.strategy])
    user_agent = job.file.crawl.user_agent
    rules = {site: rules_from_text(text, user_agent) for site, text in robots_of_run(path).items()}
    trouble = wanted.trouble.drawn(web.pages, len(web.sites), wanted.seed)
    keeps = not isinstance(servers, RecordedServers) or servers.keeps_connections
    kept_s = max(_KEPT_OPEN_S, 2 * job.interval_s) if keeps else 0.0
    described = DescribedWeb(web, servers, trouble, rules, Seconds(kept_s), use_of_bound(path))
    fetched = {web.site(number) for number in range(len(web.sites))}
    job = structs.replace(job, sites=tuple(wish for wish in job.sites if wish.site in fetched))
    tell(f"ranking {web.pages:,} pages")
    ranks = pagerank(web.starts, web.targets, tolerance=1e-8)
    results = []
    for name in names:
        mine = wanted_job(job, structs.replace(wanted, strategies=(name,)))
        setup = structs.replace(setup_of(mine), seed=wanted.seed)
        setup.check(web)
        if accelerated:
            evenly = structs.replace(setup, asks_robots_txt=False)
            record = run_crawl(web, constant(servers), evenly, trouble=trouble, ranks=ranks)
            results.append(judge(web, constant(servers), evenly, record, ranks, simulated_by=ACCELERATOR))
            continue
        ordering = None
        if parse_ordering(name)[0] in {"optimal", "random"}:
            ordering = make_ordering(name, ranks=lambda page: float(ranks[page.key]), seed=wanted.seed)
        simulated = simulate_job(
            mine,
            described,
            started_at,
            circumstances=Circumstances(ordering=ordering),
            tell=partial(_tell_progress, tell, name, web.pages),
        )
        result = judge(web, constant(servers), setup, simulated.record, ranks)
        # The link as it was shared: rates change within a transfer, which the record does not have.
        edges = np.array([0.0, *(until_s for until_s, _ in result.bandwidth_by_time)])
        by_time = spans(edges, mean_level(simulated.link, edges))
        sites = draw_of(simulated, mine).sites
        results.append(structs.replace(result, bandwidth_by_time=by_time, sites=sites))
    return results


def simulate_drawn_job(
    job: Job,
    name: str,
    started_at: Instant,
    *,
    sizes_from: Path | None = None,
    draws: int | None = None,
    seed: int = 0,
    trouble: TroubleShares = NO_TROUBLE,
    tell: Callable[[str], None] = lambda _: None,
) -> JobSimulation:
    """Crawl the job's sites in virtual time with the engine, over webs drawn from what the planner assumes.
    In the first draw everything is as assumed; in the others sites are larger or smaller, and servers faster
    or slower. `draws`: None takes as many as a few minutes allow, at most ten."""
    knowledge = NOTHING_LEARNT if sizes_from is None else knowledge_of_run(sizes_from)
    plan = start_of(job, started_at, knowledge)
    assumed = plan.assumptions
    wishes = {wish.site: wish for wish in job.sites}
    homes = [[page.url for page in wishes[one.site].seeds] for one in assumed]
    data = np.array([one.data_bytes.value for one in assumed])
    page_bytes = np.array([one.page_bytes.value for one in assumed])
    rates = np.array([one.rate_bytes_per_s.value for one in assumed])
    spread = np.array([_spread_of(one.data_bytes.source) for one in assumed])
    each = np.maximum(data / page_bytes, 1.0)
    pages = int(each.sum())
    if pages > _MOST_PAGES:
        most = int(each.argmax())
        raise HeadwayError(
            f"{name}: the sites hold about {pages:,} pages (most of them {assumed[most].site}, with"
            f" {format_size(Bytes(int(data[most])))}); a simulation holds at most {_MOST_PAGES:,}: correct"
            " 'data', or set 'max_pages'"
        )
    if draws is None:
        draws = min(_MOST_DRAWS, max(1, _PAGES_IN_ALL_DRAWS // pages))
    results: list[Draw] = []
    first: Simulated | None = None
    for number in range(draws):
        chance = np.random.default_rng([seed, 0x1F, number])
        is_first = number == 0
        sizes = data * np.exp(0.0 if is_first else spread * chance.normal(0.0, 1.0, len(data)))
        speeds = rates * np.exp(0.0 if is_first else chance.normal(0.0, SERVER_SPREAD, len(data)))
        counts = np.maximum(np.rint(sizes / page_bytes), 1.0).astype(np.int64)
        web = make_sites(homes, counts, page_bytes, seed + number)
        described = DescribedWeb(
            web, _servers(page_bytes, speeds), trouble.drawn(web.pages, len(web.sites), seed + number)
        )
        say = partial(_tell_progress, tell, f"draw {number + 1} of {draws}", web.pages)
        say(0, Seconds(0.0))
        simulated = simulate_job(
            job, described, started_at, circumstances=Circumstances(knowledge=knowledge), tell=say
        )
        results.append(draw_of(simulated, job))
        first = first or simulated
    assert first is not None
    simulation = _simulation_of(job, name, assumed, results, first, seed=seed)
    return structs.replace(simulation, forecast=plan.crawl_forecast)


def _servers(page_bytes: Floats, rates: Floats) -> Servers:
    """The assumed rate of a server is bytes over the time from request to end. Half of that time is assumed
    to be latency: a third of it to connect, the rest until the first byte."""
    latency_s = page_bytes / rates / 2
    return Servers(latency_s / 3, latency_s * 2 / 3, 2 * rates)


def _spread_of(source: str) -> float:
    return {GIVEN: GIVEN_SPREAD, DEFAULT: GUESSED_SPREAD}.get(source, MEASURED_SPREAD)


def _tell_progress(tell: Callable[[str], None], what: str, pages: int, settled: int, now_s: Seconds) -> None:
    tell(f"{what}: {settled:,} of {pages:,} pages, {format_duration(now_s)} of the crawl")


def draw_of(simulated: Simulated, job: Job) -> Draw:
    engine, start = simulated.engine, simulated.started_at
    sites = []
    for task in job.tasks(start):
        site_stats = engine.stats.site_stats(task.site)
        sites.append(
            SiteEnd(
                site=task.site,
                deadline_s=None if task.deadline_at is None else task.deadline_at - start,
                start_s=None if site_stats.started_at is None else round(site_stats.started_at - start, 3),
                end_s=None if site_stats.ended_at is None else round(site_stats.ended_at - start, 3),
                pages=site_stats.done,
                wire_bytes=site_stats.wire_bytes,
            )
        )
    end_s = simulated.ended_at - start
    return Draw(
        end_s=round(end_s, 3),
        is_over=simulated.is_over,
        pages=engine.stats.done,
        wire_bytes=engine.stats.wire_bytes,
        link_use=_link_use(simulated),
        rate_changes=simulated.rate_changes,
        sites=sites,
    )


def _link_use(simulated: Simulated) -> float | None:
    carried = _could_carry(simulated)
    return simulated.engine.stats.wire_bytes / carried if carried and math.isfinite(carried) else None


def _could_carry(simulated: Simulated) -> float:
    """The bytes that the link could carry from the start to the end of the crawl."""
    end_s = simulated.ended_at - simulated.started_at
    edges = [*(at for at, _ in simulated.capacities), end_s]
    spans = pairwise(edges)
    return sum(
        rate * (to - since) for (since, to), (_, rate) in zip(spans, simulated.capacities, strict=True)
    )


def _simulation_of(
    job: Job,
    name: str,
    assumed: Sequence[SiteAssumptions],
    draws: Sequence[Draw],
    first: Simulated,
    *,
    seed: int,
) -> JobSimulation:
    by_site = list(zip(*(draw.sites for draw in draws), strict=True))
    known = {one.site: one for one in assumed}
    usual = float(job.timetable.usual_bytes_per_s)
    uses = [draw.link_use for draw in draws if draw.link_use is not None]
    end_s = draws[0].end_s
    edges = np.linspace(0.0, end_s or 1.0, _SPANS + 1)
    return JobSimulation(
        job=name,
        simulated_by=ENGINE,
        started_at=float(first.started_at),
        draws=len(draws),
        seed=seed,
        bandwidth_bytes_per_s=usual if math.isfinite(usual) else None,
        all_met=float(np.mean([draw.late == 0 for draw in draws])),
        late_sites=range_of([draw.late for draw in draws]),
        end_s=range_of([draw.end_s for draw in draws]),
        link_use=range_of(uses) if uses else None,
        pages=range_of([draw.pages for draw in draws]),
        rate_changes=range_of([draw.rate_changes for draw in draws]),
        sites=[_job_site(ends, known[Site(ends[0].site)]) for ends in by_site if Site(ends[0].site) in known],
        first=draws[0],
        link_by_time=spans(edges, mean_level(first.link, edges)),
        capacity_by_time=[[float(at), float(rate)] for at, rate in first.capacities if math.isfinite(rate)],
    )


def _job_site(ends: Sequence[SiteEnd], assumed: SiteAssumptions) -> JobSite:
    complete = [end.end_s for end in ends if end.end_s is not None]
    deadline_s = ends[0].deadline_s
    return JobSite(
        site=ends[0].site,
        deadline_s=deadline_s,
        met=None if deadline_s is None else float(np.mean([bool(end.is_met) for end in ends])),
        end_s=range_of(complete) if complete else None,
        data_bytes=range_of([end.wire_bytes for end in ends]),
        assumed=assumed,
    )


def compare_policies(
    job: Job,
    name: str,
    simulated: JobSimulation,
    *,
    draws: int,
    tell: Callable[[str], None] = lambda _: None,
) -> JobSimulation:
    """Add the shares of each allocation policy over many draws: rates only, without the engine."""
    plan = plan_from_job(job, Instant(simulated.started_at), knowledge=None)
    known = {one.site: one.assumed.data_bytes for one in simulated.sites}
    assumed = [known[Site(site)] for site in plan.problem.names]
    problem = replace(plan.problem, data_bytes=np.array([one.value for one in assumed]))
    chances = what_if(
        name,
        problem,
        np.array([_spread_of(one.source) for one in assumed]),
        objective=Objective(job.file.crawl.objective),
        policies=tuple(dict.fromkeys((*QUICK_POLICIES, job.file.crawl.policy))),
        draws=draws,
        seed=simulated.seed,
        tell=tell,
    )
    return structs.replace(simulated, policies=chances.policies, held_up_by_site=chances.held_up_by_site)
