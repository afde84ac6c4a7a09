"""A web, its servers and the crawler's link as one world in virtual time: for graphs, recorded runs and drawn
webs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from headway.engine.decisions import in_order
from headway.errors import HeadwayError
from headway.model.command import (
    CutRequests,
    FetchPage,
    FetchRobots,
    FindServer,
    SetCapacity,
    SetContention,
    SetRates,
)
from headway.model.event import Event, PageSettled, RobotsSettled, ServerFound
from headway.model.page import AllowAll, Kind, Outcome, Page, RobotsRules, Site, Timing, tries_before
from headway.sim.link import (
    ClaimedLink,
    advance,
    begin_transfer,
    drop_transfer,
    new_slots,
    next_change_at,
    share_link,
)
from headway.sim.web import ERROR_PAGE_BYTES, Answering, ServerModel, Trouble, Web
from headway.units import FOREVER, UNBOUNDED, BytesPerSecond, Instant, Seconds

ROBOTS_BYTES = 500
_ALLOW_ALL = AllowAll()
NO_RULES: Mapping[Site, RobotsRules] = {}
NO_ADDRESSES: Mapping[Site, str] = {}
_UNKNOWN_SITE = Answering(0.0, 0.0, 1e6)
_ROUNDING_S = 1e-9


class _Transfer(NamedTuple):
    started_at: Instant
    answered_at: Instant
    command: FetchPage | FetchRobots
    outcome: Outcome
    site: Site
    answering: Answering
    is_kept: bool
    page: int | None
    """Its number; None for a robots.txt, and for a page that is not in the web."""


class GraphWorld:
    """Servers answer after their latency; the link is shared by rate, and the unused share of a site goes to
    the others at once, as with the live pacer. A world ignores commands to save."""

    def __init__(
        self,
        web: Web,
        servers: ServerModel,
        trouble: Trouble,
        *,
        max_connections: int,
        keep_open_s: Seconds,
        rules: Mapping[Site, RobotsRules] = NO_RULES,
        link_use: float = 1.0,
        addresses: Mapping[Site, str] = NO_ADDRESSES,
    ) -> None:
        """`rules`: the rules of sites with a robots.txt. `addresses`: of sites that share servers.
        `link_use`: the part of a bound that is used when there is enough to fetch."""
        if len(servers) != len(web.sites):
            raise HeadwayError("the number of servers is not that of the web's sites")
        self._web = web
        self._servers = servers
        self._trouble = trouble
        self._keep_open_s = keep_open_s
        self._rules = rules
        self._link_use = link_use
        self._addresses = addresses
        self.finds_servers = bool(addresses)
        self._found: list[Event] = []
        self._capacity_bytes_per_s = UNBOUNDED
        self._slots = new_slots(max_connections)
        self._under_way: dict[int, _Transfer] = {}
        self._cancelled: list[Event] = []
        """The ends of requests that were cut."""
        self.log: list[tuple[int, float, float, float, int, bool]] = []
        """The requested pages in the order of their ends: `sim.study.Record` has the columns."""
        self.link: list[tuple[float, float]] = []
        """The bytes per second on the link, since when."""
        self._open_until: dict[Site, Instant] = {}
        """Until when the server keeps the connection open."""
        self._rates: Mapping[Site, BytesPerSecond] = {}
        self._claimed: ClaimedLink | None = None
        """The link from the first rates on. Without rates, the arithmetic is that of the accelerator."""
        self._site_number = {web.site(number): number for number in range(len(web.sites))}
        self._page_number: dict[str, int] = {}
        """By URL, pages whose key is not their number: such as those of a job."""

    def start(
        self,
        now: Instant,
        command: FetchPage | FetchRobots | FindServer | CutRequests | SetRates | SetCapacity | SetContention,
    ) -> None:
        match command:
            case SetRates(rates):
                self._rates = rates
                self._set_wishes(now)
            case SetCapacity(capacity):
                self._capacity_bytes_per_s = BytesPerSecond(capacity * self._link_use)
                self._share(now)
            case SetContention():
                pass  # its servers do not stall
            case FindServer(site):
                self._found.append(ServerFound(site, self._addresses.get(site, "")))
            case CutRequests(sites):
                self._cut(now, sites)
            case _:
                self._ask(now, command)
        self._note_link(now)

    def next_at(self) -> Instant:
        if self._found or self._cancelled:
            return Instant(-FOREVER)
        if not self._under_way:
            return FOREVER
        return Instant(next_change_at(self._slots) if self._claimed is None else self._claimed.next_at())

    def settle(self, now: Instant) -> Sequence[Event]:
        if self._claimed is None:
            count = advance(self._slots, now, self._capacity_bytes_per_s)
            slots = sorted(self._slots.finished[:count].tolist(), key=self._turn)
        else:
            slots = sorted(self._claimed.advance(now), key=self._turn)
        found, self._found = [*self._found, *self._cancelled], []
        self._cancelled.clear()
        events = in_order([*found, *(self._ended(now, slot) for slot in slots)])
        self._note_link(now)
        return events

    def _cut(self, now: Instant, sites: frozenset[Site] | None) -> None:
        """End requests under way; what has arrived of their answers is lost."""
        dropped = []
        for slot, transfer in list(self._under_way.items()):
            if sites is None or transfer.site in sites:
                dropped.append(slot)
                del self._under_way[slot]
                outcome = Outcome(
                    Kind.CANCELLED, keep_alive=False, duration_s=Seconds(now - transfer.started_at)
                )
                command = transfer.command
                if isinstance(command, FetchRobots):
                    self._cancelled.append(RobotsSettled(transfer.site, None, FOREVER, outcome))
                else:
                    self._cancelled.append(PageSettled(command.lease, outcome))
        if self._claimed is not None:
            self._claimed.drop(now, dropped)
            return
        for slot in dropped:
            drop_transfer(self._slots, slot)
        self._share(now)

    # -- requests ---------------------------------------------------------------------------------------

    def _ask(self, now: Instant, command: FetchPage | FetchRobots) -> None:
        site = command.lease.page.site if isinstance(command, FetchPage) else command.site
        number = self._site_number.get(site)
        answering = _UNKNOWN_SITE if number is None else self._servers.answering(now, number)
        is_kept = now <= self._open_until.get(site, -FOREVER)
        latency_s = answering.turnaround_s + answering.first_byte_s
        if not is_kept:
            latency_s += answering.connect_s
        page = self._number_of(command.lease.page) if isinstance(command, FetchPage) else None
        outcome = self._outcome(command, number, page)
        size = float(outcome.wire_bytes)
        rate = answering.rate_bytes_per_s
        if self._claimed is None:
            slot = begin_transfer(self._slots, now, latency_s, size, rate, 1.0)
        else:
            slot = self._claimed.begin(now, latency_s, size, rate, self._rates.get(site, 0.0))
        self._under_way[slot] = _Transfer(
            now, Instant(now + latency_s), command, outcome, site, answering, is_kept, page
        )

    def _outcome(self, command: FetchPage | FetchRobots, site: int | None, page: int | None) -> Outcome:
        if isinstance(command, FetchRobots):
            if site is not None and self._trouble.is_down[site]:
                return Outcome(Kind.CONNECT, keep_alive=False)
            return Outcome(Kind.FETCHED, 200, ROBOTS_BYTES)
        if site is None or page is None:
            return Outcome(Kind.MISSING, 404, ERROR_PAGE_BYTES)
        attempt = tries_before(command.lease.attempt)
        return self._trouble.outcome(page, site, attempt, int(self._web.size_bytes[page]))

    def _number_of(self, page: Page) -> int | None:
        if 0 <= page.key < self._web.pages:
            return page.key
        if not self._page_number:
            self._page_number = {self._web.url(number): number for number in range(self._web.pages)}
        return self._page_number.get(page.url)

    def _turn(self, slot: int) -> float:
        command = self._under_way[slot].command
        return command.lease.number if isinstance(command, FetchPage) else FOREVER

    def _ended(self, now: Instant, slot: int) -> Event:
        transfer = self._under_way.pop(slot)
        command, outcome, site = transfer.command, transfer.outcome, transfer.site
        answering = transfer.answering
        alone_s = outcome.wire_bytes / answering.rate_bytes_per_s
        held_s = now - transfer.answered_at - alone_s
        # Rounding leaves a little also where nothing was held back.
        held_s = held_s if held_s > _ROUNDING_S else 0.0
        asked_at = Instant(transfer.started_at + answering.turnaround_s)
        outcome = msgspec.structs.replace(
            outcome,
            duration_s=Seconds(now - asked_at),
            held_s=Seconds(held_s),
            peer=self._addresses.get(site, site),
            timing=Timing(
                asked_at,
                now,
                0.0 if transfer.is_kept else answering.connect_s,
                0.0,
                answering.first_byte_s,
                alone_s,
                held_s,
                transfer.is_kept,
            ),
        )
        if isinstance(command, FetchRobots):
            self._keep(now, site, is_open=outcome.keep_alive)
            rules = self._rules.get(site, _ALLOW_ALL) if outcome.kind is Kind.FETCHED else None
            return RobotsSettled(site, rules, FOREVER, outcome)
        is_fetched = outcome.kind is Kind.FETCHED
        page = transfer.page
        if page is not None:
            self.log.append(
                (page, transfer.started_at, transfer.answered_at, now, outcome.wire_bytes, is_fetched)
            )
        self._keep(now, site, is_open=outcome.keep_alive and not command.close_after)
        links = self._links(page, command.lease.page.depth) if is_fetched and page is not None else ()
        return PageSettled(command.lease, outcome, links)

    def _keep(self, now: Instant, site: Site, *, is_open: bool) -> None:
        self._open_until[site] = Instant(now + self._keep_open_s) if is_open else Instant(-FOREVER)

    def _links(self, page: int, depth: int) -> tuple[Page, ...]:
        return tuple(self._web.page(target, depth + 1) for target in self._web.links_of(page))

    # -- the link ---------------------------------------------------------------------------------------

    def _share(self, now: Instant) -> None:
        if self._claimed is None:
            share_link(self._slots, now, self._capacity_bytes_per_s)
        else:
            self._claimed.set_capacity(now, self._capacity_bytes_per_s)

    def _set_wishes(self, now: Instant) -> None:
        rate_of, under_way = self._rates.get, self._under_way
        if self._claimed is None:
            link = self._claimed = ClaimedLink(now, self._capacity_bytes_per_s)
            self._under_way = {
                link.adopt(self._slots, slot, rate_of(transfer.site, 0.0)): transfer
                for slot, transfer in under_way.items()
            }
        else:
            wishes = ((slot, rate_of(transfer.site, 0.0)) for slot, transfer in under_way.items())
            self._claimed.set_wishes(now, wishes)

    def _note_link(self, now: Instant) -> None:
        if self._claimed is None:
            slots = self._slots
            rate = float(slots.rate[slots.receiving[: slots.counts[0]]].sum())
        else:
            rate = self._claimed.rate_bytes_per_s
        if not self.link or rate != self.link[-1][1]:
            self.link.append((now, rate))
