"""The accelerator: the engine's crawl on arrays, for ordering studies without bound or deadlines."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.policy.ordering import parse_ordering
from headway.policy.ordering.ranked import Ranks, rank_again
from headway.policy.ordering.simple import Random
from headway.policy.timetable import Timetable
from headway.sim import accelerator_loop
from headway.sim.accelerator_queues import (
    BY_FIRST_PAGE,
    BY_FIRST_SERIAL,
    BY_LENGTH,
    Pages,
    Sites,
    new_pages,
    new_sites,
    order_all_lines,
    place_site,
)
from headway.sim.link import compiled, compiled_making_arrays, new_slots
from headway.sim.study import Record, Setup
from headway.sim.web import Servers, Trouble, Web
from headway.units import FOREVER, Instant, Seconds

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
    "batch": accelerator_loop.IN_BATCHES,
    "partial": accelerator_loop.PARTIALLY,
    "flow": accelerator_loop.PARTIALLY,
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
        reason = accelerator_loop.run_loop(state, capacity.from_at, capacity.bytes_per_s, known_until)
        if reason == accelerator_loop.OVER:
            break
        if reason == accelerator_loop.DUE:
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


def _new_state(
    web: Web, servers: Servers, setup: Setup, trouble: Trouble, ranks: Ranks | None
) -> accelerator_loop.State:
    word, every = parse_ordering(setup.strategy)
    politeness, robots = setup.politeness, min(setup.robots, len(web.sites))
    rules = accelerator_loop.Rules(
        robots,
        float(politeness.interval_s),
        politeness.pages_per_connection,
        float(politeness.keep_open_s),
        word in _BY_DEPTH,
        _SITES_BY.get(word, BY_FIRST_PAGE),
        _LEARNS.get(word, accelerator_loop.PLAIN),
        every or 0,
        word == "flow",
    )
    given = accelerator_loop.Given(
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
    state = accelerator_loop.State(
        rules,
        given,
        new_pages(count),
        new_sites(web),
        new_slots(robots),
        accelerator_loop.new_flights(robots),
        accelerator_loop.new_flights(robots),
        accelerator_loop.Connections(np.zeros(sites, np.int32), np.full(sites, -math.inf)),
        accelerator_loop.Log(
            np.zeros(count, np.int32),
            np.zeros(count),
            np.zeros(count),
            np.zeros(count),
            np.zeros(count, np.int64),
            np.zeros(count, np.bool_),
        ),
        accelerator_loop.Learnt(np.zeros(count, np.int32), np.zeros(count, np.bool_), np.zeros(count)),
        accelerator_loop.new_counters(),
    )
    state.pages.key[:] = _fixed_keys(word, count, setup.seed, ranks)
    for seed in web.seeds.tolist():
        site = int(web.site_of[seed])
        accelerator_loop.find_page(
            state.pages, state.sites, state.counters, state.learnt.found, site, seed, rules.sites_by
        )
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


def _learn(state: accelerator_loop.State, before: Ranks) -> Ranks:
    """Rank the known web, as `policy.ordering.ranked` does, and compute the keys of all waiting pages
    again."""
    counters, pages, learnt = state.counters, state.pages, state.learnt
    known = learnt.found[: counters.found[0]]
    starts, rows = _known_rows(state.given, known, learnt.has_links, pages.serial)
    ranks = rank_again(before, starts, rows)
    is_waiting = pages.place[known] >= 0
    waiting = known[is_waiting]
    if state.rules.learns == accelerator_loop.IN_BATCHES:
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
    given: accelerator_loop.Given,
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
