"""The accelerator for ordering studies and the engine fetch the same pages at the same instants."""

from __future__ import annotations

import dataclasses
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.policy.ordering.ranked import pagerank
from headway.policy.timetable import Entry, Timetable
from headway.runtime.simulation import run_machine
from headway.sim.accelerator import run_fast
from headway.sim.study import Record, Setup
from headway.sim.web import Servers, Trouble, Web
from headway.units import UNBOUNDED, BytesPerSecond, Seconds

STRATEGIES = ("depth", "length", "klwf", "random", "score", "deadline", "optimal", "batch", "partial", "flow")
# Quarters of a second and powers of two add up without rounding, so that many events share an instant.
quarters = st.integers(0, 6).map(lambda quarter: quarter / 4)
powers = st.integers(8, 14).map(lambda power: 2**power)


@st.composite
def webs(draw: st.DrawFn) -> Web:
    sites = draw(st.integers(1, 5))
    pages = draw(st.integers(sites, 24))
    rows = [
        sorted(draw(st.sets(st.integers(0, pages - 1), max_size=5)) - {number}) for number in range(pages)
    ]
    site_of = [*range(sites), *draw(st.lists(st.integers(0, sites - 1), min_size=pages, max_size=pages))]
    seeds = draw(st.lists(st.integers(0, pages - 1), min_size=1, max_size=6, unique=True))
    return Web(
        "drawn",
        np.cumsum([0, *map(len, rows)]),
        np.array([target for row in rows for target in row], dtype=np.int32),
        np.array(site_of[:pages], dtype=np.int32),
        np.array(draw(st.lists(powers | st.just(0), min_size=pages, max_size=pages)), dtype=np.int64),
        [f"s{number}.test" for number in range(sites)],
        np.array(seeds, dtype=np.int32),
    )


@st.composite
def servers_of(draw: st.DrawFn, web: Web) -> Servers:
    count = len(web.sites)
    columns = [
        np.array(draw(st.lists(values, min_size=count, max_size=count)), dtype=np.float64)
        for values in (quarters, quarters, powers)
    ]
    return Servers(*columns)


bandwidths = st.sampled_from(
    [
        UNBOUNDED,
        BytesPerSecond(2.0**13),
        BytesPerSecond(777.0),
        # The crawl begins at midnight of a Thursday: two slow minutes. While a link is closed the engine
        # starts no request; the accelerator, which knows no such pauses, starts them at rate 0.
        Timetable(
            BytesPerSecond(2.0**12),
            (
                Entry.parse("daily", "00:00-00:01", BytesPerSecond(2.0**8)),
                Entry.parse("daily", "00:01-00:02", BytesPerSecond(2.0**6)),
            ),
        ),
    ]
)


@st.composite
def setups(draw: st.DrawFn, web: Web, strategy: str) -> Setup:
    if strategy in {"batch", "partial", "flow"}:
        strategy = f"{strategy}({draw(st.integers(1, web.pages))})"
    return Setup(
        strategy=strategy,
        robots=draw(st.integers(1, 6)),
        interval_s=Seconds(draw(st.sampled_from([0.0, 0.5, 2.0, 15.0]))),
        pages_per_connection=draw(st.integers(1, 3)),
        bandwidth=draw(bandwidths),
        seed=draw(st.integers(0, 3)),
    )


def both(web: Web, servers: Servers, setup: Setup, missing: float) -> tuple[Record, Record]:
    trouble = Trouble.drawn(web.pages, len(web.sites), 5, missing=missing)
    ranks = pagerank(web.starts, web.targets)
    slow = run_machine(web, servers, setup, trouble=trouble, ranks=ranks)
    return slow, run_fast(web, servers, setup, trouble=trouble, ranks=ranks)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(data=st.data(), missing=st.sampled_from([0.0, 0.3]))
@settings(max_examples=60, deadline=None)
def test_engine_and_accelerator_agree_bit_by_bit(strategy: str, data: st.DataObject, missing: float) -> None:
    web = data.draw(webs())
    setup = data.draw(setups(web, strategy))
    slow, fast = both(web, data.draw(servers_of(web)), setup, missing)
    for column in dataclasses.fields(Record):
        np.testing.assert_array_equal(getattr(slow, column.name), getattr(fast, column.name), column.name)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(data=st.data(), missing=st.sampled_from([0.0, 0.3]))
@settings(max_examples=20, deadline=None)
def test_without_a_bound_the_engine_with_everything_on_fetches_as_the_accelerator(
    strategy: str, data: st.DataObject, missing: float
) -> None:
    """What `headway simulate graph/` chooses between: the engine that a job gets, and the accelerator."""
    web = data.draw(webs())
    setup = msgspec.structs.replace(data.draw(setups(web, strategy)), bandwidth=UNBOUNDED)
    servers = data.draw(servers_of(web))
    trouble = Trouble.drawn(web.pages, len(web.sites), 5, missing=missing)
    ranks = pagerank(web.starts, web.targets)
    engine = run_machine(web, servers, setup, trouble=trouble, ranks=ranks, plans=True)
    fast = run_fast(web, servers, setup, trouble=trouble, ranks=ranks)
    for column in dataclasses.fields(Record):
        np.testing.assert_array_equal(getattr(engine, column.name), getattr(fast, column.name), column.name)


@given(data=st.data(), strategy=st.sampled_from(STRATEGIES))
@settings(max_examples=60, deadline=None)
def test_every_page_that_can_be_reached_is_fetched_once_and_politely(
    data: st.DataObject, strategy: str
) -> None:
    web = data.draw(webs())
    setup = data.draw(setups(web, strategy))
    trouble = Trouble.drawn(web.pages, len(web.sites), 0)
    ranks = pagerank(web.starts, web.targets)
    record = run_fast(web, data.draw(servers_of(web)), setup, trouble=trouble, ranks=ranks)
    assert sorted(record.page.tolist()) == sorted(_reachable(web))
    assert _most_at_once(record) <= setup.robots
    for site in range(len(web.sites)):
        rows = np.flatnonzero(web.site_of[record.page] == site)
        rows = rows[np.argsort(record.started_at[rows], kind="stable")]
        gaps = record.started_at[rows][1:] - record.ended_at[rows][:-1]
        assert (gaps >= 0).all()
        rests = np.count_nonzero(gaps >= setup.interval_s - 1e-9)
        assert rests >= math.ceil(len(rows) / setup.pages_per_connection) - 1


def _reachable(web: Web) -> set[int]:
    seen, coming = set(web.seeds.tolist()), web.seeds.tolist()
    while coming:
        for target in web.links_of(coming.pop()):
            if target not in seen:
                seen.add(target)
                coming.append(target)
    return seen


def _most_at_once(record: Record) -> int:
    starts, ends = np.sort(record.started_at), np.sort(record.ended_at)
    begun = np.searchsorted(starts, starts, side="right")
    over = np.searchsorted(ends, starts, side="right")
    return int((begun - over).max(initial=0))
