"""A web, its servers and the crawler's link as one world in virtual time, for `sim.kernel.simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headway.crawl.inbox import in_order
from headway.errors import HeadwayError
from headway.model.command import FetchPage, FetchRobots, SetCapacity, SetRates
from headway.model.event import Event, PageSettled, RobotsSettled
from headway.model.outcome import Kind, Outcome
from headway.model.page import Page, Site
from headway.model.robots import AllowAll
from headway.sim.link import (
    advance,
    begin_transfer,
    new_slots,
    next_change_at,
    set_weight,
    share_link,
)
from headway.sim.trouble import Trouble
from headway.sim.web import Servers, Web
from headway.units import FOREVER, UNBOUNDED, BytesPerSecond, Instant, Seconds

ROBOTS_BYTES = 500
_NO_CLAIM = 1e-9
"""The weight of a site that an allocation does not name: it takes what the others leave."""


class _Transfer(NamedTuple):
    started_at: Instant
    answered_at: Instant
    command: FetchPage | FetchRobots
    outcome: Outcome


class GraphWorld:
    def __init__(
        self,
        web: Web,
        servers: Servers,
        trouble: Trouble,
        *,
        max_connections: int,
        keep_open_s: Seconds,
    ) -> None:
        if len(servers.rate_bytes_per_s) != len(web.sites):
            raise HeadwayError("the servers are not those of this web: their number differs")
        self._web = web
        self._servers = servers
        self._capacity_bytes_per_s = UNBOUNDED
        self._trouble = trouble
        self._keep_open_s = keep_open_s
        self._slots = new_slots(max_connections)
        self._under_way: dict[int, _Transfer] = {}
        self.log: list[tuple[int, float, float, float, int, bool]] = []
        """The pages asked for, as they ended: `sim.record.Record` has the columns."""
        self._open_until: dict[int, Instant] = {}
        """By site: until when the server keeps the connection."""
        self._weights: dict[Site, BytesPerSecond] | None = None
        self._site_number = {web.site(number): number for number in range(len(web.sites))}

    def start(self, now: Instant, command: FetchPage | FetchRobots | SetRates | SetCapacity) -> None:
        match command:
            case SetRates():
                self._set_rates(now, command)
            case SetCapacity(capacity):
                self._capacity_bytes_per_s = capacity
                share_link(self._slots, now, capacity)
            case _:
                self._ask(now, command)

    def _ask(self, now: Instant, command: FetchPage | FetchRobots) -> None:
        if isinstance(command, FetchPage):
            page, attempt = command.lease.page, command.lease.attempt
            site, name = self._site_number[page.site], page.site
            outcome = self._trouble.outcome(page.key, site, attempt, int(self._web.size_bytes[page.key]))
        else:
            site, name = self._site_number[command.site], command.site
            is_down = bool(self._trouble.is_down[site])
            outcome = Outcome(Kind.CONNECT) if is_down else Outcome(Kind.FETCHED, 200, ROBOTS_BYTES)
        latency_s = float(self._servers.answer_s[site])
        if now > self._open_until.get(site, -FOREVER):
            latency_s += float(self._servers.connect_s[site])
        rate = float(self._servers.rate_bytes_per_s[site])
        size = float(outcome.wire_bytes)
        slot = begin_transfer(self._slots, now, latency_s, size, rate, self._weight(name))
        self._under_way[slot] = _Transfer(now, Instant(now + latency_s), command, outcome)

    def next_at(self) -> Instant:
        return Instant(next_change_at(self._slots)) if self._under_way else FOREVER

    def settle(self, now: Instant) -> Sequence[Event]:
        count = advance(self._slots, now, self._capacity_bytes_per_s)
        slots = sorted(self._slots.finished[:count].tolist(), key=self._turn)
        return in_order([self._ended(now, slot) for slot in slots])

    def _turn(self, slot: int) -> float:
        command = self._under_way[slot].command
        return command.lease.number if isinstance(command, FetchPage) else FOREVER

    def _ended(self, now: Instant, slot: int) -> Event:
        started_at, answered_at, command, outcome = self._under_way.pop(slot)
        outcome = msgspec.structs.replace(outcome, duration_s=Seconds(now - started_at))
        if isinstance(command, FetchRobots):
            self._keep(now, command.site, is_open=outcome.keep_alive)
            rules = AllowAll() if outcome.kind is Kind.FETCHED else None
            return RobotsSettled(command.site, rules, FOREVER, outcome)
        page = command.lease.page
        is_fetched = outcome.kind is Kind.FETCHED
        self.log.append((page.key, started_at, answered_at, now, outcome.wire_bytes, is_fetched))
        self._keep(now, page.site, is_open=outcome.keep_alive and not command.close_after)
        return PageSettled(command.lease, outcome, self._links(page) if is_fetched else ())

    def _keep(self, now: Instant, site: Site, *, is_open: bool) -> None:
        until = Instant(now + self._keep_open_s) if is_open else Instant(-FOREVER)
        self._open_until[self._site_number[site]] = until

    def _links(self, page: Page) -> tuple[Page, ...]:
        return tuple(self._web.page(target, page.depth + 1) for target in self._web.links_of(page.key))

    def _set_rates(self, now: Instant, command: SetRates) -> None:
        self._weights = command.rates_bytes_per_s
        for slot, transfer in self._under_way.items():
            fetch = transfer.command
            site = fetch.lease.page.site if isinstance(fetch, FetchPage) else fetch.site
            set_weight(self._slots, slot, self._weight(site))
        share_link(self._slots, now, self._capacity_bytes_per_s)

    def _weight(self, site: Site) -> float:
        if self._weights is None:
            return 1.0
        return max(_NO_CLAIM, self._weights.get(site, 0.0))
