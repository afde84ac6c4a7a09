"""One simulated crawl: a web, its servers and a link, crawled by the machine under one strategy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from headway.crawl.decisions import Decision
from headway.crawl.machine import Crawl
from headway.errors import JobError
from headway.frontier.room import Waiting
from headway.model.command import PageState
from headway.model.event import Seeded
from headway.model.outcome import Capture, Kind, Outcome
from headway.model.page import Lease, Page
from headway.policy.ordering import make_ordering, parse_ordering
from headway.policy.pagerank import Ranks
from headway.policy.politeness import Politeness
from headway.policy.retry import RetryPolicy
from headway.policy.scope import ANY_TYPE, Scope
from headway.policy.timetable import Timetable
from headway.sim.kernel import simulate
from headway.sim.record import Record
from headway.sim.trouble import Trouble
from headway.sim.web import Servers, Web
from headway.sim.world import GraphWorld
from headway.units import UNBOUNDED, BytesPerSecond, Instant, Seconds

EVERYTHING = Scope(accept=(ANY_TYPE,), max_url_length=1 << 30)


class Setup(msgspec.Struct, frozen=True):
    """castillo2004's parameters: strategy, r robots, w seconds between connections, k pages on each."""

    strategy: str = "length"
    robots: int = 64
    interval_s: Seconds = Seconds(15.0)
    pages_per_connection: int = 1
    bandwidth: Timetable | BytesPerSecond = UNBOUNDED
    seed: int = 0
    asks_robots_txt: bool = False

    def check(self, web: Web) -> None:
        """JobError for what cannot be simulated on this web."""
        if self.robots < 1:
            raise JobError(f"{self.robots} robots fetch nothing; give at least one")
        if not (self.interval_s >= 0 and math.isfinite(self.interval_s)):
            raise JobError(f"an interval of {self.interval_s} s cannot be; it must not be negative")
        if self.pages_per_connection < 1:
            raise JobError(f"{self.pages_per_connection} pages a connection fetch nothing; give at least one")
        rates = [self.timetable.usual_bytes_per_s, *(e.rate_bytes_per_s for e in self.timetable.entries)]
        if not max(rates) > 0 or min(rates) < 0:
            raise JobError("a bandwidth must be above zero, or nothing ever arrives")
        _, size = parse_ordering(self.strategy)
        if size is not None and size > web.pages:
            raise JobError(f"{self.strategy}: the web {web.name} has only {web.pages} pages")

    @property
    def timetable(self) -> Timetable:
        return self.bandwidth if isinstance(self.bandwidth, Timetable) else Timetable(self.bandwidth)

    @property
    def politeness(self) -> Politeness:
        return Politeness(self.interval_s, self.pages_per_connection)


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
    crawl = _TellingCrawl(
        ordering=make_ordering(
            setup.strategy, seed=setup.seed, ranks=None if ranks is None else lambda key: float(ranks[key])
        ),
        scope=EVERYTHING,
        politeness=politeness,
        retry=retry or RetryPolicy(),
        max_connections=connections,
        lease_s=Seconds(math.inf),
        asks_robots=setup.asks_robots_txt,
        timetable=setup.timetable,
    )
    simulate(crawl, world, [Seeded((), seed_pages(web))], log=log)
    return Record.of(world.log)


def seed_pages(web: Web) -> tuple[Page, ...]:
    return tuple(web.page(number, 0) for number in web.seeds.tolist())


class _TellingCrawl(Crawl):
    """The machine, telling its frontier of every page that is done with (twice does no harm)."""

    def _settle(
        self,
        now: Instant,
        lease: Lease,
        outcome: Outcome,
        links: Sequence[Page] = (),
        capture: Capture | None = None,
    ) -> None:
        self.frontier.settled(lease.page, links)
        super()._settle(now, lease, outcome, links, capture)

    def _drop(
        self, now: Instant, book: object, everyone: Iterable[Waiting], kind: Kind, state: PageState
    ) -> None:
        everyone = list(everyone)
        for waiting in everyone:
            self.frontier.settled(waiting.page)
        super()._drop(now, book, everyone, kind, state)  # type: ignore[arg-type]
