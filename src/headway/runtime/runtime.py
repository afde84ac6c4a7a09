"""`Runtime.from_job(job, clock, world)`: builds a crawl with everything that a job can ask for."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import structs

from headway.config.job import Job
from headway.config.values import rate, toml
from headway.engine.bandwidth import BandwidthPlanner, LinkBound
from headway.engine.demands import SharedLimits
from headway.engine.forecast import Forecaster
from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.errors import HeadwayError, JobError
from headway.http.client import HttpFetcher
from headway.model.command import Command
from headway.model.event import Event, FromOutside, LinkShared, Seeded
from headway.model.page import Page, PageKey, Site
from headway.pages.parsed import ParseOptions
from headway.pages.url import key_of, keyed
from headway.planning.estimate import NOTHING_LEARNT, Knowledge
from headway.planning.live_policies import make_allocator
from headway.planning.problem import Objective
from headway.policy.admission import Admission, default_share
from headway.policy.ordering import LearningOrdering, Ordering, make_ordering, make_scorer, parse_ordering
from headway.policy.ordering.base import PathScores, RestoredOrdering
from headway.policy.ordering.simple import LongestWait
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.prediction import Prediction, ServerTally
from headway.policy.revisit import AdaptiveRevisit, FixedRevisit, RevisitPolicy
from headway.policy.server_groups import GroupRules
from headway.policy.site_rules import BySite, SiteRules
from headway.policy.timetable import QuotaTally, Timetable
from headway.policy.traps import Mirroring, TrapWatch
from headway.ports import Clock
from headway.runtime.collector import PageReading
from headway.runtime.commands import Journal, World
from headway.runtime.control import why_too_small
from headway.runtime.driver import (
    COMMIT_EVERY_S,
    FirstWaiting,
    LiveDriver,
    LiveWorld,
    LoadLater,
    VirtualDriver,
    VirtualWorld,
)
from headway.runtime.isolated import WorkJournal
from headway.sim.graph import ranks_of_run
from headway.store.reader import DATABASE, RunDatabase
from headway.store.run_folder import WaitingOrder
from headway.units import FOREVER, UNBOUNDED, BytesPerSecond, Instant, Seconds, format_size, parse_size


def build_ordering(job: Job) -> Ordering:
    crawl = job.file.crawl
    ranks: Callable[[Page], float] | None = None
    if parse_ordering(job.strategy)[0] == "optimal" and crawl.ranks_from is not None:
        known = _ranks_of(Path(crawl.ranks_from))

        def ranks(page: Page) -> float:
            return known.get(key_of(page.url), 0.0)

    return make_ordering(job.strategy, ranks=ranks, score_of=build_scorer(job))


def page_order(job: Job, ordering: Ordering | None = None) -> Callable[[Page], float] | None:
    """The order of the pages within their sites, where sites have one of their own; otherwise None."""
    given = {site: rules.strategy for site, rules in job.own.given.items() if rules.strategy is not None}
    if not given:
        return None
    score_of = build_scorer(job)
    made = {name: make_ordering(name, score_of=score_of) for name in set(given.values())}
    orders = BySite({site: made[name] for site, name in given.items()})
    usual = ordering or build_ordering(job)

    def page_key(page: Page) -> float:
        return (orders.of(page.site) or usual).page_key(page)

    return page_key


def learnt_ordering(job: Job, reader: RunDatabase) -> Ordering | None:
    """The job's ordering, with the links that the pages fetched so far have; None if it learns nothing of
    them."""
    ordering = build_ordering(job)
    if not isinstance(ordering, RestoredOrdering):
        return None
    for part in reader.fetched():
        ordering.restore(part.keys.tolist(), part.links.tolist(), part.link_counts.tolist())
    return ordering


def build_scorer(job: Job) -> Callable[[Page], float] | None:
    """The value of a page: by patterns of its path, or by a user's function."""
    crawl = job.file.crawl
    if crawl.scorer is not None:
        return make_scorer(crawl.scorer)
    return PathScores(crawl.scores) if crawl.scores else None


def waiting_order(job: Job) -> WaitingOrder:
    """The order in which the store keeps waiting pages, so that it can return the next ones."""
    crawl, ordering = job.file.crawl, build_ordering(job)
    if isinstance(ordering, LearningOrdering):
        return WaitingOrder("found", lambda _: 0.0, None)
    # Other scores, ranks or code mean another order, although its name is the same.
    versions = [getattr(each, "version", None) for each in (ordering, build_scorer(job))]
    parts = (ordering.name, crawl.ranks_from, sorted(crawl.scores.items()), crawl.scorer, *versions)
    own = sorted(
        (site, rules.strategy) for site, rules in job.own.given.items() if rules.strategy is not None
    )
    name = " ".join(map(str, filter(None, (*parts, own))))
    return WaitingOrder(name, page_order(job, ordering) or ordering.page_key, crawl.waiting_in_memory)


def _ranks_of(run: Path) -> dict[PageKey, float]:
    database = run / DATABASE
    changed_at = database.stat().st_mtime_ns if database.exists() else 0
    return _ranks_as_of(run, changed_at)


@functools.lru_cache(maxsize=1)
def _ranks_as_of(run: Path, _changed_at: int) -> dict[PageKey, float]:
    """By keys without a secret: those in the store are of that crawl only. Cached, since a crawl needs them
    twice: for itself and for its store."""
    return {key_of(url): rank for url, rank in ranks_of_run(run).items()}


_NEW_SERVER = BytesPerSecond(1_000_000.0)
"""The assumed rate of a server that has not answered yet."""
_LINKS_AT_ONCE = 250
"""About two milliseconds. All links of a page with ten thousand would delay all sites by a tenth of a
second."""
_SITES_AT_ONCE = 100
"""In one event at the start: a few milliseconds."""
_LEASE_S = Seconds(24 * 3600.0)
"""Within one process a lease ends with its request, which the fetcher limits in time: this is a backstop."""


def build_revisit(job: Job) -> RevisitPolicy | None:
    """When pages are due again; None: never."""
    wish = job.revisiting
    if wish is None:
        return None
    if not wish.adapts:
        return FixedRevisit(wish.every_s)
    return AdaptiveRevisit(
        every_s=wish.every_s,
        shortest_s=wish.shortest_s,
        longest_s=wish.longest_s,
        # Half of the requests to a site: the other half is for new pages.
        visits_per_s=0.5 / job.interval_s if job.interval_s else math.inf,
        bytes_per_s=wish.bytes_per_s,
    )


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the job does not say: results of earlier runs, and whether other processes work on the crawl as
    well."""

    quotas: Sequence[QuotaTally] | None = None
    """The job's quotas with what earlier runs have used of them; None: nothing yet."""
    recrawls: bool = False
    """Pages were queued again after they had settled, or will be."""
    histories: Iterable[tuple[Site, bytes]] = ()
    """The outcomes of earlier visits, for adaptive revisits."""
    is_part: bool = False
    """One of several that work on the crawl, each within its share of the bound."""
    most_held: int | None = None
    """About how many waiting pages are kept in memory, the others in the store; None: all."""
    knowledge: Knowledge = NOTHING_LEARNT
    """What an earlier run learnt about the sites."""
    ordering: Ordering | None = None
    """Instead of the job's strategy."""
    shares_evenly: bool = False
    """All sites have equal shares of the link, without a planner, as the crawlers of castillo2004."""
    by_processes: bool = False
    """Each site is crawled by a process of its own, such as a Scrapy spider, which reports its progress."""
    links_at_once: int | None = _LINKS_AT_ONCE
    """How many links of a page a step adds; later steps add the rest; None: all at once."""

    def quotas_of(self, job: Job) -> Sequence[QuotaTally]:
        """The quotas that this process itself enforces. One of several processes is bounded by its shares
        instead."""
        if self.quotas is not None:
            return self.quotas
        return [] if self.is_part else [QuotaTally(quota) for quota in job.quotas]


WHOLE = Circumstances()


def build_engine(job: Job, circumstances: Circumstances = WHOLE, *, finds_servers: bool = False) -> Engine:
    """`finds_servers`: the world looks up names for the engine (`FindServer`)."""
    crawl = job.file.crawl
    # A copy: a site to which another one leads takes over its rules.
    rules = BySite(
        {
            site: structs.replace(own, sitemaps=keyed(own.sitemaps, job.secret)) if own.sitemaps else own
            for site, own in job.own.given.items()
        }
    )
    politeness = build_politeness(job, rules)
    revisit = build_revisit(job)
    if isinstance(revisit, AdaptiveRevisit):
        for site, history in circumstances.histories:
            revisit.learn(site, history)
    # Without a bound and without deadlines there is nothing to allocate and nothing to forecast.
    is_planned = job.is_bounded or job.has_deadlines or crawl.crawlers is not None
    is_planned = is_planned and not circumstances.shares_evenly
    allocator = make_allocator(crawl.policy, Objective(crawl.objective), crawl.crawlers)
    prediction = Prediction(_NEW_SERVER, job.calendar)
    prediction.restore(circumstances.knowledge.servers)
    admits = is_planned and crawl.admission_depth is not None
    limits = None if circumstances.by_processes else SharedLimits(_shared_rules(job), politeness)
    return Engine(
        Policies(
            ordering=circumstances.ordering or build_ordering(job),
            scope=job.scope,
            politeness=politeness,
            retry=RetryPolicy(max_attempts=crawl.max_attempts, penalty_s=job.retry_penalty_s),
            admission=Admission(UNBOUNDED, max_depth=crawl.admission_depth or 1, paced=True)
            if admits
            else None,
            revisit=revisit,
            traps=TrapWatch(watches_traps=crawl.traps, mirroring=Mirroring(crawl.mirrors)),
            rules=rules,
            page_key=page_order(job, circumstances.ordering),
        ),
        EngineSettings(
            max_connections=crawl.max_connections,
            per_server=_per_server(job),
            per_domain=crawl.max_connections_per_domain or default_share(crawl.max_connections),
            lease_s=_LEASE_S,
            asks_robots=crawl.respect_robots,
            stops_at_deadline=crawl.stop_at_deadline,
            most_held=circumstances.most_held,
            recrawls=circumstances.recrawls or revisit is not None,
            is_part=circumstances.is_part,
            holds_sites=crawl.crawlers is not None,
            links_at_once=circumstances.links_at_once,
            groups=structs.replace(job.groups, is_shared=circumstances.is_part),
            # A proxy looks names up itself, and all answers come from its address.
            knows_servers=crawl.proxy is None,
            finds_servers=finds_servers,
            purposes=crawl.respect,
        ),
        bound=LinkBound(job.timetable, circumstances.quotas_of(job)),
        # Without a planner rates are learnt all the same, for later crawls.
        tally=None if is_planned else ServerTally(prediction),
        planner=BandwidthPlanner(
            allocator,
            politeness,
            prediction,
            circumstances.knowledge,
            by_processes=circumstances.by_processes,
            rules=rules,
            limits=limits,
        )
        if is_planned
        else None,
        forecaster=Forecaster(
            politeness,
            circumstances.knowledge,
            max_connections=crawl.max_connections,
            rules=rules,
            limits=limits,
        ),
    )


def _shared_rules(job: Job) -> GroupRules:
    """What sites share by the planner: through a proxy, whose address all answers have, only the domain."""
    if job.file.crawl.proxy is None:
        return job.groups
    of_domains = tuple(rule for rule in job.groups.exceptions if rule.domain)
    return structs.replace(job.groups, server_interval_s=Seconds(0.0), exceptions=of_domains)


def _per_server(job: Job) -> int | None:
    """Through a proxy all answers come from its address, so only a wish counts."""
    crawl = job.file.crawl
    if crawl.max_connections_per_server is None and crawl.proxy is not None:
        return None
    return crawl.max_connections_per_server or default_share(crawl.max_connections)


def check_has_rate(job: Job, what: str) -> None:
    """JobError if the bound is a part of the link, which only a crawl by one process finds out."""
    if job.link_part is not None:
        raise JobError(
            f"bandwidth = {toml(job.file.crawl.bandwidth)}: {what} needs a rate, such as"
            ' bandwidth = "20 Mbit/s" or --bandwidth 20Mbit/s; only a crawl by one process finds out what'
            " the link carries"
        )


def check_can_be_shared(job: Job) -> Job:
    """JobError if several processes cannot work on the crawl."""
    check_has_rate(job, "a crawl by several processes")
    if job.file.crawl.crawlers is not None:
        raise JobError(
            "crawl.crawlers is for a crawl by one process, which knows how many sites are open; leave it out,"
            " or crawl without --processes and --store"
        )
    return job


def build_proxy_engine(
    job: Job, interval_s: Seconds, max_connections: int, rate_bytes_per_s: BytesPerSecond
) -> Engine:
    """The engine for pages that users have fetched through a proxy: each is requested once, at a pace of its
    own."""
    return Engine(
        Policies(
            ordering=LongestWait(),
            scope=job.scope,
            politeness=Politeness(interval_s=interval_s),
            retry=RetryPolicy(max_attempts=1),
        ),
        EngineSettings(
            max_connections=max_connections,
            lease_s=Seconds(3600.0),
            asks_robots=job.file.crawl.respect_robots,
            recrawls=True,
        ),
        bound=LinkBound(Timetable(rate_bytes_per_s)),
    )


def build_politeness(job: Job, rules: BySite[SiteRules] | None = None) -> Politeness:
    """`rules`: what sites have of their own, if others look at it, too."""
    return Politeness(
        by_site=rules or BySite(job.own.given),
        interval_s=job.interval_s,
        pages_per_connection=job.file.crawl.pages_per_connection,
        backoff_s=job.backoff_s,
        max_backoff_s=job.max_backoff_s,
        max_crawl_delay_s=job.max_crawl_delay_s,
    )


def build_fetcher(job: Job, clock: Clock) -> HttpFetcher:
    check_bounds(job)
    crawl = job.file.crawl
    return HttpFetcher(
        clock,
        job.client_options(),
        capacity_bytes_per_s=job.timetable.capacity_at(clock.now()),
        yields=job.file.crawl.background or job.link_part is not None,
        up_bytes_per_s=UNBOUNDED if crawl.bandwidth_up is None else rate(crawl.bandwidth_up),
    )


def link_shared(fetcher: HttpFetcher) -> LinkShared | None:
    """What a crawl that yields reports to the engine each second; None for any other, and while there is no
    bound."""
    background = fetcher.background
    if background is None or not background.is_pacing:
        return None
    return LinkShared(
        BytesPerSecond(background.rate_bytes_per_s),
        background.delivered_bytes_per_s,
        background.queue_s,
        background.doing,
    )


def page_reading(job: Job, folder: Path | None = None) -> PageReading:
    """`folder`: where to note the pages that are being read, for the case that the process dies."""
    crawl = job.file.crawl
    options = ParseOptions(
        user_agent=crawl.user_agent,
        drop_rel_nofollow=crawl.respect_rel_nofollow,
        max_links=crawl.max_links,
        takes_fingerprints=crawl.near_duplicates,
        read_sitemaps=crawl.sitemaps,
        read_feeds=crawl.feeds,
        secret=job.secret,
        purposes=crawl.respect,
        digest=crawl.digest,
    )
    extractor = job.extractor() or None
    reading = PageReading(
        options,
        crawl.user_agent,
        job.scope.accept_types,
        extractor,
        job.extraction_s,
        identities=job.identities,
        reads_freshness=job.revisiting is not None,
    )
    return reading if folder is None else reading._replace(journal=WorkJournal(folder))


def warc_info_of(job: Job) -> dict[str, str]:
    """What the `warcinfo` record of each WARC file says of the crawl."""
    obeys, exceptions = job.file.crawl.respect_robots, job.robots_exceptions
    info = {"robots": "obey" if obeys else "ignore", "http-header-user-agent": job.file.crawl.user_agent}
    if exceptions:
        info["robots-exceptions"] = "; ".join(f"{site}: {reason}" for site, reason in exceptions.items())
    return info


# The runtime of a crawl: its engine, built from the job, with its clock and its world.
#
# Every crawl starts here, live or in virtual time: `headway crawl`, worker processes, collectors of a fleet,
# `headway run-scrapy`, `headway simulate`.

W_co = TypeVar("W_co", bound=World, covariant=True)
W = TypeVar("W", bound=World)


class Runtime(Generic[W_co]):
    """Use `from_job`. `engine` may be read while the crawl runs; only its driver steps it."""

    def __init__(
        self, job: Job, clock: Clock, world: W_co, engine: Engine, circumstances: Circumstances = WHOLE
    ) -> None:
        self.job = job
        self.circumstances = circumstances
        """The engine was built from these and the job."""
        self.clock = clock
        self.world = world
        self.engine = engine

    @staticmethod
    def from_job(job: Job, clock: Clock, world: W, circumstances: Circumstances = WHOLE) -> Runtime[W]:
        """The engine has everything that the job asks for: planner, deadlines, timetable, quotas, admission,
        politeness, traps, revisits. `circumstances`: what the job does not say."""
        engine = build_engine(job, circumstances, finds_servers=getattr(world, "finds_servers", False))
        return Runtime(job, clock, world, engine, circumstances)

    def seeded(self, started_at: Instant) -> Seeded:
        """The event that begins the crawl. Deadlines count from `started_at`."""
        return Seeded(self.job.tasks(started_at), self.job.seeds())

    def seeded_in_parts(self, started_at: Instant) -> Iterator[Seeded]:
        """As `seeded`, for a driver that does other things between two parts."""
        job = self.job
        wishes = job.wishes()
        while part := list(itertools.islice(wishes, _SITES_AT_ONCE)):
            tasks = tuple(job.task_of(wish, started_at) for wish in part)
            yield Seeded(tasks, keyed([page for wish in part for page in wish.seeds], job.secret))

    def live_driver(
        self: Runtime[LiveWorld],
        journal: Journal,
        *,
        stays: bool = False,
        commit_every_s: Seconds = COMMIT_EVERY_S,
        first_waiting: FirstWaiting | None = None,
        load_later: LoadLater | None = None,
    ) -> LiveDriver:
        """The driver for real time, on the running event loop."""
        return LiveDriver(
            self.engine,
            self.world,
            journal,
            self.clock,
            commit_every_s=commit_every_s,
            stays=stays,
            first_waiting=first_waiting,
            load_later=load_later,
        )

    def run_virtually(
        self: Runtime[VirtualWorld],
        opening: Sequence[Event] = (),
        *,
        outside: Iterable[tuple[Instant, FromOutside]] = (),
        until: Instant = FOREVER,
        on_command: Callable[[Instant, Command], None] | None = None,
    ) -> Instant:
        """Crawl in virtual time, starting at the time of the clock, and return when the crawl ended.
        `outside`: events that people cause at given instants, such as a new capacity or an order. A job that
        revisits its pages does not end by itself; `until` ends it."""
        if self.circumstances.most_held is not None:
            # Its queues would wait forever for pages from a store.
            raise HeadwayError("in virtual time all waiting pages are in memory: leave most_held at None")
        begin_at = self.clock.now()
        driver = VirtualDriver(self.engine, self.world, on_command=on_command)
        return driver.run(opening or [self.seeded(begin_at)], start_at=begin_at, outside=outside, until=until)


_PROCESS_BYTES = 110e6
_SITE_BYTES = 1_600
"""A site with its queue, its statistics and its seed."""
_WAITING_PAGE_BYTES = 450
_CONNECTION_BYTES = 60_000
_SEEDS_PER_SITE = 1.5
_PAGES_EACH = 8
"""Waiting pages of a site, where the job does not allow fewer."""
_CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def check_bounds(job: Job) -> None:
    """JobError if a bound is so small that nothing would arrive in useful time."""
    crawl = job.file.crawl
    bounds = [("crawl.bandwidth", job.timetable.usual_bytes_per_s)]
    bounds += [("crawl.timetable", entry.rate_bytes_per_s) for entry in job.timetable.entries]
    if crawl.bandwidth_up is not None:
        bounds.append(("crawl.bandwidth_up", rate(crawl.bandwidth_up)))
    for where, bound in bounds:
        if (problem := why_too_small(bound)) is not None:
            raise JobError(f"{where}: {problem}")


def check_fits(job: Job) -> None:
    """JobError, with the figures, if the job needs more memory than it may have."""
    needed = needed_bytes(job)
    wanted = job.file.crawl.memory
    most, whose = (
        (parse_size(wanted), f"memory = {wanted!r}") if wanted else (machine_bytes(), "this machine")
    )
    if needed <= most:
        return
    have = f"{whose} allows {format_size(most)}" if wanted else f"{whose} has {format_size(most)}"
    raise JobError(
        f"a crawl of {job.site_count:,} sites needs about {format_size(needed)} of memory, and {have}; "
        f"give it more, {_advice(job)}"
    )


def needed_bytes(job: Job) -> int:
    """About how much memory a crawl of this job takes."""
    crawl, sites = job.file.crawl, job.site_count
    waiting = min(crawl.waiting_in_memory, _PAGES_EACH * sites)
    if isinstance(build_ordering(job), LearningOrdering):
        waiting = int(sites * _SEEDS_PER_SITE)
    return int(
        _PROCESS_BYTES
        + sites * _SITE_BYTES
        + waiting * _WAITING_PAGE_BYTES
        + min(crawl.max_connections, sites) * _CONNECTION_BYTES
    )


def machine_bytes() -> int:
    """What the machine, or the container, has in all."""
    most = 1 << 62
    with suppress(OSError, ValueError, IndexError):
        line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
        most = int(line.split()[1]) * 1024
    for limit in _CGROUPS:
        with suppress(OSError, ValueError):
            most = min(most, int(limit.read_text()))
    return most


def _advice(job: Job) -> str:
    if job.file.crawl.waiting_in_memory > 20_000:
        return "a smaller waiting_in_memory, or fewer sites"
    return "or fewer sites"
