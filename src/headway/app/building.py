"""The parts of a crawl, built from a job: the machine, the fetcher, the order in which pages wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from headway.app.ordering import build_ordering
from headway.config.job import Job
from headway.crawl.bound import LinkBound
from headway.crawl.machine import Crawl
from headway.crawl.steward import Steward
from headway.fetch.http import HttpFetcher
from headway.live.collector import Collected, LookUp, MakeRoom, WebCollector
from headway.model.copy import Copy
from headway.model.page import Page
from headway.parse.parsed import ParseOptions
from headway.policy.admission import Admission
from headway.policy.allocation.allocator import Allocator
from headway.policy.allocation.problem import Objective
from headway.policy.politeness import Politeness
from headway.policy.prediction import Prediction
from headway.policy.quota import QuotaTally
from headway.policy.retry import RetryPolicy
from headway.policy.revisit import AdaptiveRevisit, FixedRevisit, RevisitPolicy
from headway.policy.traps import Mirroring, TrapWatch
from headway.ports import Archive, Clock, Fetcher, Original
from headway.units import UNBOUNDED, BytesPerSecond, Seconds

_NEW_SERVER = BytesPerSecond(1_000_000.0)
"""What a server that nobody has met is taken for."""
_LINKS_AT_ONCE = 250
"""Some two milliseconds. A page of ten thousand would otherwise hold up all sites for a tenth of a second."""
_LEASE_S = Seconds(24 * 3600.0)
"""Within one process a lease ends with its request, whose time limits are the fetcher's: a backstop."""


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
        # Half of a site's turns: new pages want some, too.
        visits_per_s=0.5 / job.interval_s if job.interval_s else math.inf,
        bytes_per_s=wish.bytes_per_s,
    )


def build_machine(
    job: Job,
    quotas: Sequence[QuotaTally] = (),
    *,
    most_held: int | None = None,
    revisit: RevisitPolicy | None = None,
    recrawls: bool = False,
    is_part: bool = False,
) -> Crawl:
    """`is_part`: one of several that work on the crawl, each within its share of the bound."""
    crawl = job.file.crawl
    politeness = build_politeness(job)
    # Without a bound and without deadlines there is nothing to share out and nothing to foresee.
    is_planned = job.is_bounded or any(wish.deadline is not None for wish in job.sites)
    allocator = Allocator(Objective(crawl.objective))
    admits = is_planned and crawl.admission_depth is not None
    return Crawl(
        ordering=build_ordering(job),
        scope=job.scope,
        politeness=politeness,
        retry=RetryPolicy(max_attempts=crawl.max_attempts, penalty_s=job.retry_penalty_s),
        max_connections=crawl.max_connections,
        lease_s=_LEASE_S,
        asks_robots=crawl.respect_robots,
        bound=LinkBound(job.timetable, quotas, yields=crawl.background),
        steward=Steward(allocator, politeness, Prediction(_NEW_SERVER, job.calendar)) if is_planned else None,
        admission=Admission(UNBOUNDED, max_depth=crawl.admission_depth or 1) if admits else None,
        most_held=most_held,
        revisit=revisit,
        recrawls=recrawls,
        is_part=is_part,
        watch=TrapWatch(watches_traps=crawl.traps, mirroring=Mirroring(crawl.mirrors)),
        links_at_once=_LINKS_AT_ONCE,
    )


def build_politeness(job: Job) -> Politeness:
    return Politeness(
        interval_s=job.interval_s,
        pages_per_connection=job.file.crawl.pages_per_connection,
        backoff_s=job.backoff_s,
        max_backoff_s=job.max_backoff_s,
        max_crawl_delay_s=job.max_crawl_delay_s,
    )


def build_fetcher(job: Job, clock: Clock) -> HttpFetcher:
    crawl = job.file.crawl
    return HttpFetcher(
        clock,
        crawl.user_agent,
        timeouts=job.timeouts,
        limits=job.limits,
        capacity_bytes_per_s=job.timetable.capacity_at(clock.now()),
        allow_private=crawl.allow_private,
        verify_tls=crawl.verify_tls,
        ca_file=crawl.ca_file,
        proxy=crawl.proxy,
        no_proxy=crawl.no_proxy,
    )


def build_collector(
    job: Job,
    fetcher: Fetcher,
    archive: Archive,
    find_digest: Callable[[str], Original | None],
    clock: Clock,
    *,
    on_page: Callable[[Collected], None] | None = None,
    make_room: MakeRoom | None = None,
    find_copy: Callable[[Page], Copy | None] | None = None,
    look_up: LookUp | None = None,
    recrawls: bool = True,
) -> WebCollector:
    crawl = job.file.crawl
    return WebCollector(
        fetcher,
        archive,
        find_digest,
        clock,
        user_agent=crawl.user_agent,
        accept_types=job.scope.accept_types,
        parse_options=ParseOptions(
            user_agent=crawl.user_agent,
            drop_rel_nofollow=crawl.respect_rel_nofollow,
            max_links=crawl.max_links,
            takes_fingerprints=crawl.near_duplicates,
            read_sitemaps=crawl.sitemaps,
            read_feeds=crawl.feeds,
        ),
        on_page=on_page,
        make_room=make_room,
        find_copy=find_copy,
        extractor=job.extractor() or None,
        look_up=look_up,
        recrawls=recrawls,
    )
