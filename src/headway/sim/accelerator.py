"""The accelerator: the engine's crawl on arrays, for ordering studies without bound or deadlines.

It takes the engine's decisions by the engine's rules (order of events, ties, politeness, orderings) without
its objects, for webs of millions of pages; a property test holds both to the same pages in the same order at
the same instants. It has no planner, deadlines, orders, retries or robots.txt: those are the engine's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.policy.ordering import parse_ordering
from headway.policy.ordering.ranked import Ranks, rank_again
from headway.policy.ordering.simple import Random
from headway.policy.timetable import Timetable
from headway.sim.accelerator_queues import (
    BY_FIRST_PAGE,
    BY_FIRST_SERIAL,
    BY_LENGTH,
    Pages,
    Sites,
    join_line,
    new_pages,
    new_sites,
    order_all_lines,
    place_site,
    raise_page,
    take_first,
    wake_sites,
)
from headway.sim.link import (
    Slots,
    advance,
    begin_transfer,
    compiled,
    compiled_making_arrays,
    new_slots,
    next_change_at,
    share_link,
)
from headway.sim.study import Record, Setup
from headway.sim.web import ERROR_PAGE_BYTES, Servers, Trouble, Web
from headway.units import FOREVER, Instant, Seconds

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


_STRETCH_S = Seconds(28 * 86400.0)


class CapacityLine:
    """From `from_at[i]` on, the link has `bytes_per_s[i]`; known up to `known_until`."""

    def __init__(self, timetable: Timetable, start_at: Instant = Instant(0.0)) -> None:
        self._timetable = timetable
        self.from_at: NDArray[np.float64] = np.array([start_at], dtype=np.float64)
        self.bytes_per_s: NDArray[np.float64] = np.array([timetable.capacity_at(start_at)], dtype=np.float64)
        self.known_until = FOREVER if not timetable.entries else start_at

    def extend(self) -> None:
        """Look four weeks further ahead."""
        begin = self.known_until
        pieces = self._timetable.segments(begin, _STRETCH_S)
        from_at = [begin + piece[0] for piece in pieces]
        rates = [piece[2] for piece in pieces]
        at = np.concatenate((self.from_at, from_at))
        bytes_per_s = np.concatenate((self.bytes_per_s, rates))
        is_change = np.concatenate(([True], np.diff(bytes_per_s) != 0))
        self.from_at, self.bytes_per_s = at[is_change], bytes_per_s[is_change]
        self.known_until = Instant(begin + _STRETCH_S)


_SITES_BY = {"length": BY_LENGTH, "deadline": BY_LENGTH, "klwf": BY_FIRST_SERIAL}
_LEARNS = {
    "batch": IN_BATCHES,
    "partial": PARTIALLY,
    "flow": PARTIALLY,
}
_BY_DEPTH = frozenset({"depth", "length", "deadline"})


def run_fast(
    web: Web, servers: Servers, setup: Setup, *, trouble: Trouble, ranks: Ranks | None = None
) -> Record:
    """Equal to `runtime.simulation.run_machine`, for troubles without retries."""
    setup.check(web)
    state = _new_state(web, servers, setup, trouble, ranks)
    capacity = CapacityLine(setup.timetable)
    state.counters.capacity[0] = capacity.bytes_per_s[0]
    known_ranks: Ranks = np.zeros(0)
    while True:
        known_until = float(capacity.known_until)
        reason = run_loop(state, capacity.from_at, capacity.bytes_per_s, known_until)
        if reason == OVER:
            break
        if reason == DUE:
            known_ranks = _learn(state, known_ranks)
        elif math.isinf(known_until):
            raise HeadwayError("the simulated crawl waits for something that will never happen")
        else:
            capacity.extend()
    count = int(state.counters.ended[0])
    log = state.log
    return Record(
        log.page[:count],
        log.started_at[:count],
        log.answered_at[:count],
        log.ended_at[:count],
        log.wire_bytes[:count],
        log.is_fetched[:count],
    )


def _new_state(web: Web, servers: Servers, setup: Setup, trouble: Trouble, ranks: Ranks | None) -> State:
    word, every = parse_ordering(setup.strategy)
    politeness, robots = setup.politeness, min(setup.robots, len(web.sites))
    rules = Rules(
        robots,
        float(politeness.interval_s),
        politeness.pages_per_connection,
        float(politeness.keep_open_s),
        word in _BY_DEPTH,
        _SITES_BY.get(word, BY_FIRST_PAGE),
        _LEARNS.get(word, PLAIN),
        every or 0,
        word == "flow",
    )
    given = Given(
        web.starts,
        web.targets,
        web.site_of,
        web.size_bytes,
        trouble.is_missing,
        servers.connect_s,
        servers.answer_s,
        servers.rate_bytes_per_s,
    )
    count, sites = web.pages, len(web.sites)
    state = State(
        rules,
        given,
        new_pages(count),
        new_sites(web),
        new_slots(robots),
        new_flights(robots),
        new_flights(robots),
        Connections(np.zeros(sites, np.int32), np.full(sites, -math.inf)),
        Log(
            np.zeros(count, np.int32),
            np.zeros(count),
            np.zeros(count),
            np.zeros(count),
            np.zeros(count, np.int64),
            np.zeros(count, np.bool_),
        ),
        Learnt(np.zeros(count, np.int32), np.zeros(count, np.bool_), np.zeros(count)),
        new_counters(),
    )
    state.pages.key[:] = _fixed_keys(word, count, setup.seed, ranks)
    for seed in web.seeds.tolist():
        site = int(web.site_of[seed])
        find_page(state.pages, state.sites, state.counters, state.learnt.found, site, seed, rules.sites_by)
    return state


def _fixed_keys(word: str, count: int, seed: int, ranks: Ranks | None) -> NDArray[np.float64]:
    match word:
        case "batch":
            return np.full(count, math.inf)
        case "random":
            return Random(seed).keys_of(np.arange(count, dtype=np.uint64))
        case "optimal":
            if ranks is None:
                raise HeadwayError("the ordering 'optimal' needs the ranks of the pages")
            return -ranks
        case _:
            return np.zeros(count)


def _learn(state: State, before: Ranks) -> Ranks:
    """Rank the known web, as `policy.ordering.ranked` does, and compute the keys of all waiting pages
    again."""
    counters, pages, learnt = state.counters, state.pages, state.learnt
    known = learnt.found[: counters.found[0]]
    starts, rows = _known_rows(state.given, known, learnt.has_links, pages.serial)
    ranks = rank_again(before, starts, rows)
    is_waiting = pages.place[known] >= 0
    waiting = known[is_waiting]
    if state.rules.learns == IN_BATCHES:
        best = np.argsort(-ranks[is_waiting], kind="stable")[: state.rules.learns_every]
        pages.key[waiting] = math.inf
        pages.key[waiting[best]] = -ranks[is_waiting][best]
        counters.open[0] = len(best)
    else:
        learnt.rank[known] = ranks
        pages.key[waiting] = -ranks[is_waiting]
        counters.open[0] = 0
    counters.ranked[0] = len(known)
    order_all_lines(pages, state.sites)
    _place_all(pages, state.sites, float(counters.now[0]), state.rules.sites_by)
    return ranks


@compiled
def _place_all(pages: Pages, sites: Sites, now: float, by: int) -> None:
    # Keys have changed everywhere, so the heap of ready sites is rebuilt rather than repaired.
    for place in range(sites.counts[0]):
        sites.ready_place[sites.ready[place]] = -1
    sites.counts[0] = 0
    for site in range(len(sites.waiting)):
        place_site(pages, sites, site, now, by)


@compiled_making_arrays
def _known_rows(
    given: Given,
    known: NDArray[np.int32],
    has_links: NDArray[np.bool_],
    serial: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The links of the known web, pages numbered as they were found."""
    starts = np.zeros(len(known) + 1, dtype=np.int64)
    for number in range(len(known)):
        page = known[number]
        count = given.starts[page + 1] - given.starts[page] if has_links[page] else 0
        starts[number + 1] = starts[number] + count
    rows = np.empty(starts[-1], dtype=np.int32)
    for number in range(len(known)):
        page = known[number]
        if has_links[page]:
            for link in range(given.starts[page + 1] - given.starts[page]):
                rows[starts[number] + link] = serial[given.targets[given.starts[page] + link]] - 1
    return starts, rows
