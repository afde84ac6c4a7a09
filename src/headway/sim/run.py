"""One simulated crawl: a web, its servers and a link, crawled by the machine under one strategy."""

from __future__ import annotations

import math
from collections.abc import Callable

from headway.crawl.bound import LinkBound
from headway.crawl.machine import Crawl
from headway.model.decision import Decision
from headway.model.event import Seeded
from headway.model.page import Page
from headway.policy.ordering import make_ordering
from headway.policy.pagerank import Ranks
from headway.policy.retry import RetryPolicy
from headway.policy.scope import ANY_TYPE, Scope
from headway.sim.compiled import HAS_COMPILER
from headway.sim.kernel import simulate
from headway.sim.record import Record
from headway.sim.setup import Setup
from headway.sim.trouble import Trouble
from headway.sim.web import Servers, Web
from headway.sim.world import GraphWorld
from headway.units import Seconds

EVERYTHING = Scope(accept=(ANY_TYPE,), max_url_length=1 << 30)


def run_crawl(
    web: Web, servers: Servers, setup: Setup, *, trouble: Trouble | None = None, ranks: Ranks | None = None
) -> Record:
    """The quickest way there is for this crawl: both give the same record."""
    trouble = trouble or Trouble.drawn(web.pages, len(web.sites), setup.seed)
    if HAS_COMPILER and trouble.is_only_missing and not setup.asks_robots_txt:
        from headway.sim.fastrun import run_fast

        return run_fast(web, servers, setup, trouble=trouble, ranks=ranks)
    return run_machine(web, servers, setup, trouble=trouble, ranks=ranks)


def run_machine(
    web: Web,
    servers: Servers,
    setup: Setup,
    *,
    trouble: Trouble | None = None,
    ranks: Ranks | None = None,
    retry: RetryPolicy | None = None,
    log: Callable[[Decision], None] | None = None,
) -> Record:
    """The crawl itself, decision by decision. `ranks` are for the strategy "optimal"."""
    setup.check(web)
    politeness = setup.politeness
    connections = min(setup.robots, len(web.sites))
    world = GraphWorld(
        web,
        servers,
        trouble or Trouble.drawn(web.pages, len(web.sites), setup.seed),
        max_connections=connections,
        keep_open_s=politeness.keep_open_s,
    )
    crawl = Crawl(
        ordering=make_ordering(
            setup.strategy, seed=setup.seed, ranks=None if ranks is None else lambda key: float(ranks[key])
        ),
        scope=EVERYTHING,
        politeness=politeness,
        retry=retry or RetryPolicy(),
        max_connections=connections,
        lease_s=Seconds(math.inf),
        asks_robots=setup.asks_robots_txt,
        bound=LinkBound(setup.timetable),
    )
    simulate(crawl, world, [Seeded((), seed_pages(web))], log=log)
    return Record.of(world.log)


def seed_pages(web: Web) -> tuple[Page, ...]:
    return tuple(web.page(number, 0) for number in web.seeds.tolist())
