"""The accelerator for ordering studies: what `runtime.simulation.run_machine` does, on arrays.

It takes the engine's decisions by the engine's rules (order of events, ties, politeness, orderings) without
its objects, for webs of millions of pages; a property test holds both to the same pages in the same order at
the same instants. It has no planner, deadlines, orders, retries or robots.txt: those are the engine's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.sim.accelerator_queues import (
    Pages,
    Sites,
    join_line,
    place_site,
    raise_page,
    take_first,
    wake_sites,
)
from headway.sim.link import Slots, advance, begin_transfer, compiled, next_change_at, share_link
from headway.sim.web import ERROR_PAGE_BYTES

OVER, DUE, BEYOND_CAPACITY = 0, 1, 2
"""Why the loop has returned: the crawl is over, pages must be ordered again, or the timetable must be
extended."""
PLAIN, IN_BATCHES, PARTIALLY = 0, 1, 2
"""How the ordering learns: not at all, `Batch`, `Partial` and `Flow`."""


class Rules(NamedTuple):
    robots: int
    interval_s: float
    pages_per_connection: int
    keep_open_s: float
    keys_by_depth: bool
    """Or fixed keys that exist from the start."""
    sites_by: int
    learns: int
    learns_every: int
    divides: bool
    """`Flow`: a page's rank is divided among its links."""


class Given(NamedTuple):
    """The web and its servers; nothing here changes."""

    starts: NDArray[np.int64]
    targets: NDArray[np.int32]
    site_of: NDArray[np.int32]
    size_bytes: NDArray[np.int64]
    is_missing: NDArray[np.bool_]
    connect_s: NDArray[np.float64]
    answer_s: NDArray[np.float64]
    rate: NDArray[np.float64]


class Flights(NamedTuple):
    """By slot, the page in flight; or in sequence, the pages whose answers have arrived."""

    page: NDArray[np.int32]
    lease: NDArray[np.int64]
    started_at: NDArray[np.float64]
    answered_at: NDArray[np.float64]
    closes: NDArray[np.bool_]


def new_flights(count: int) -> Flights:
    page, lease = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=np.int64)
    return Flights(page, lease, np.zeros(count), np.zeros(count), np.zeros(count, dtype=np.bool_))


class Connections(NamedTuple):
    """By site."""

    pages_on: NDArray[np.int32]
    open_until: NDArray[np.float64]


class Log(NamedTuple):
    """The columns of `sim.study.Record`."""

    page: NDArray[np.int32]
    started_at: NDArray[np.float64]
    answered_at: NDArray[np.float64]
    ended_at: NDArray[np.float64]
    wire_bytes: NDArray[np.int64]
    is_fetched: NDArray[np.bool_]


class Learnt(NamedTuple):
    """The state of a learning ordering."""

    found: NDArray[np.int32]
    """The known pages, in the order in which they were found."""
    has_links: NDArray[np.bool_]
    """By page: fetched, so that its links are known."""
    rank: NDArray[np.float64]


class Counters(NamedTuple):
    """Numbers that change, one cell each."""

    now: NDArray[np.float64]
    capacity: NDArray[np.float64]
    found: NDArray[np.int64]
    leases: NDArray[np.int64]
    in_flight: NDArray[np.int64]
    waiting: NDArray[np.int64]
    ended: NDArray[np.int64]
    """Rows of the log."""
    to_settle: NDArray[np.int64]
    """Answers of this instant, and how many of them have been processed."""
    settled: NDArray[np.int64]
    turn: NDArray[np.int64]
    """The current entry of the timetable."""
    ranked: NDArray[np.int64]
    """How many pages were known when they were last ranked."""
    open: NDArray[np.int64]
    """Pages of the batch that have not settled; or pages settled since the last ranking."""


def new_counters() -> Counters:
    now, capacity = np.zeros(1), np.zeros(1)
    whole = [np.zeros(1, dtype=np.int64) for _ in range(10)]
    found, leases, in_flight, waiting, ended, to_settle, settled, turn, ranked, opened = whole
    return Counters(
        now, capacity, found, leases, in_flight, waiting, ended, to_settle, settled, turn, ranked, opened
    )


class State(NamedTuple):
    rules: Rules
    given: Given
    pages: Pages
    sites: Sites
    slots: Slots
    flights: Flights
    answers: Flights
    connections: Connections
    log: Log
    learnt: Learnt
    counters: Counters


@compiled
def find_page(  # noqa: PLR0917  compiled functions take positional arguments
    pages: Pages, sites: Sites, counters: Counters, found: NDArray[np.int32], site: int, page: int, by: int
) -> None:
    """Add a page seen for the first time to the queue of its site; its key and depth are set already."""
    found[counters.found[0]] = page
    counters.found[0] += 1
    counters.waiting[0] += 1
    pages.serial[page] = counters.found[0]
    join_line(pages, sites, site, page)
    if not sites.is_busy[site]:
        place_site(pages, sites, site, counters.now[0], by)


@compiled
def run_loop(
    state: State, from_at: NDArray[np.float64], rates: NDArray[np.float64], known_until: float
) -> int:
    """Run until one of the three reasons to return; called again, it continues."""
    rules, counters, slots, sites = state.rules, state.counters, state.slots, state.sites
    while True:
        # After each answer, and if none came: a site may have woken.
        if counters.settled[0] > 0 or counters.to_settle[0] == 0:
            if _is_due(counters, rules.learns, rules.learns_every):
                return DUE
            _hand_out(state)
        if counters.settled[0] < counters.to_settle[0]:
            counters.settled[0] += 1
            _settle(state, int(counters.settled[0] - 1))
            continue
        if counters.in_flight[0] == 0 and counters.waiting[0] == 0:
            return OVER
        at = next_change_at(slots)
        if counters.in_flight[0] < rules.robots and sites.counts[1] > 0:
            at = min(at, sites.free_at[sites.sleeping[0]])
        turn = counters.turn[0] + 1
        if turn < len(from_at):
            at = min(at, from_at[turn])
        if at >= known_until:
            return BEYOND_CAPACITY
        now = max(counters.now[0], at)
        counters.now[0] = now
        counters.settled[0] = 0
        counters.to_settle[0] = advance(slots, now, counters.capacity[0])
        _take_answers(slots, state.flights, state.answers, int(counters.to_settle[0]))
        if turn < len(from_at) and from_at[turn] <= now:
            counters.turn[0] = turn
            counters.capacity[0] = rates[turn]
            share_link(slots, now, rates[turn])


@compiled
def _is_due(counters: Counters, learns: int, every: int) -> bool:
    """Whether the ordering must learn before the next page is taken."""
    if learns == PLAIN or counters.waiting[0] == 0:
        return False
    if counters.ranked[0] == 0:
        return True
    if learns == IN_BATCHES:
        return bool(counters.open[0] == 0)
    return bool(counters.open[0] >= every)


@compiled
def _hand_out(state: State) -> None:
    rules, given, counters, connections = state.rules, state.given, state.counters, state.connections
    pages, sites, flights = state.pages, state.sites, state.flights
    now = counters.now[0]
    while counters.in_flight[0] < rules.robots:
        wake_sites(pages, sites, now, rules.sites_by)
        if sites.counts[0] == 0:
            return
        site = int(sites.ready[0])
        sites.is_busy[site] = True
        # While it is busy it is in no heap: it is removed first, since its page leaves the queue.
        place_site(pages, sites, site, now, rules.sites_by)
        page = take_first(pages, sites, site)
        counters.waiting[0] -= 1
        latency_s = given.answer_s[site]
        if now > connections.open_until[site]:
            latency_s += given.connect_s[site]
        size = given.size_bytes[page]
        if given.is_missing[page]:
            size = ERROR_PAGE_BYTES
        slot = begin_transfer(state.slots, now, latency_s, size, given.rate[site], 1.0)
        counters.in_flight[0] += 1
        counters.leases[0] += 1
        is_last = connections.pages_on[site] + 1 >= rules.pages_per_connection
        flights.page[slot] = page
        flights.lease[slot] = counters.leases[0]
        flights.started_at[slot] = now
        flights.answered_at[slot] = now + latency_s
        flights.closes[slot] = is_last and rules.interval_s > rules.keep_open_s


@compiled
def _settle(state: State, number: int) -> None:
    rules, given, counters, connections = state.rules, state.given, state.counters, state.connections
    log, sites, answers = state.log, state.sites, state.answers
    now, page = counters.now[0], int(answers.page[number])
    site, is_fetched = int(given.site_of[page]), not given.is_missing[page]
    row = counters.ended[0]
    counters.ended[0] += 1
    counters.in_flight[0] -= 1
    log.page[row] = page
    log.started_at[row] = answers.started_at[number]
    log.answered_at[row] = answers.answered_at[number]
    log.ended_at[row] = now
    log.wire_bytes[row] = given.size_bytes[page] if is_fetched else ERROR_PAGE_BYTES
    log.is_fetched[row] = is_fetched
    if rules.learns == IN_BATCHES:
        counters.open[0] -= 1
    elif rules.learns == PARTIALLY:
        counters.open[0] += 1
    if is_fetched:
        _follow(state, page)
    connections.open_until[site] = -math.inf if answers.closes[number] else now + rules.keep_open_s
    connections.pages_on[site] += 1
    if is_fetched and connections.pages_on[site] < rules.pages_per_connection:
        sites.free_at[site] = now
    else:
        sites.free_at[site] = now + rules.interval_s
    if sites.free_at[site] > now:
        connections.pages_on[site] = 0
    sites.is_busy[site] = False
    place_site(state.pages, sites, site, now, rules.sites_by)


@compiled
def _follow(state: State, page: int) -> None:
    rules, given, pages, sites, learnt = state.rules, state.given, state.pages, state.sites, state.learnt
    begin, end = given.starts[page], given.starts[page + 1]
    learnt.has_links[page] = True
    if rules.learns == PARTIALLY and end > begin:
        share = learnt.rank[page]
        if rules.divides:
            share /= end - begin
        for link in range(begin, end):
            target = int(given.targets[link])
            if pages.serial[target] == 0 or pages.serial[target] > state.counters.ranked[0]:
                learnt.rank[target] += share
                if pages.place[target] >= 0:
                    pages.key[target] = -learnt.rank[target]
                    site = int(given.site_of[target])
                    raise_page(pages, sites.stretch[site], int(pages.place[target]))
                    place_site(pages, sites, site, state.counters.now[0], rules.sites_by)
    for link in range(begin, end):
        target = int(given.targets[link])
        if pages.serial[target] == 0:
            pages.depth[target] = pages.depth[page] + 1
            if rules.keys_by_depth:
                pages.key[target] = pages.depth[target]
            elif rules.learns == PARTIALLY:
                pages.key[target] = -learnt.rank[target]
            site = int(given.site_of[target])
            find_page(pages, sites, state.counters, learnt.found, site, target, rules.sites_by)


@compiled
def _take_answers(slots: Slots, flights: Flights, answers: Flights, count: int) -> None:
    """Answers of one instant in the order in which their pages were taken. They are copied, since a slot may
    be used again before all are settled."""
    for number in range(count):
        slot = slots.finished[number]
        place = number
        while place > 0 and answers.lease[place - 1] > flights.lease[slot]:
            _copy_flight(answers, place - 1, answers, place)
            place -= 1
        _copy_flight(flights, slot, answers, place)


@compiled
def _copy_flight(source: Flights, one: int, target: Flights, other: int) -> None:
    target.page[other] = source.page[one]
    target.lease[other] = source.lease[one]
    target.started_at[other] = source.started_at[one]
    target.answered_at[other] = source.answered_at[one]
    target.closes[other] = source.closes[one]
