"""When sites end: pages still to be found, the time of a shared link, and ranges that hold."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.config.job import build_job
from headway.config.reading import Source
from headway.config.schema import CrawlTable, JobFile, SiteTable
from headway.model.event import Seeded
from headway.planning.ends import BUCKETS, WANTED, Factors, Level, Workload, expected_ends
from headway.planning.estimate import FEATURES, Growth, PagesModel, read_trees, write_trees
from headway.planning.forecast_table import SHIPPED
from headway.runtime.driver import VirtualClock, VirtualDriver
from headway.runtime.runtime import Circumstances, Runtime
from headway.runtime.simulation import seed_pages, without_what_is_not_simulated
from headway.sim.web import Servers, SyntheticSpec, Trouble, make_web
from headway.sim.world import GraphWorld
from headway.units import Instant, Seconds

MODEL = PagesModel(*SHIPPED.pages)
COUNTS = st.lists(st.tuples(st.integers(0, 70), st.integers(0, 300), st.integers(0, 300)), max_size=60)


def work_of(*sites: tuple[float, float, float, float, float]) -> Workload:
    return Workload(*(np.array(column, dtype=np.float64) for column in zip(*sites, strict=True)))


# -- pages ---------------------------------------------------------------------------------------------------


@given(COUNTS, st.integers(0, 10**7))
def test_no_site_is_expected_to_have_less_than_what_waits(counts, waiting):
    growth = Growth()
    for depth, links, new in counts:
        growth.note(depth, links, new)
    features = np.array([growth.features(waiting)])
    assert np.isfinite(features).all()
    left = float(MODEL.left(features)[0])
    assert max(1, waiting) * 0.999 <= left <= max(1, waiting) * math.exp(4.0) * 1.001


def test_growth_knows_how_many_pages_were_found_at_an_earlier_time():
    growth = Growth()
    for _ in range(1000):
        growth.note(1, 10, 2)
    assert growth.found_after(500) == pytest.approx(1000, rel=0.02)
    assert growth.rate_over(0.1) == pytest.approx(2.0, rel=0.02)
    for _ in range(1000):
        growth.note(2, 10, 0)
    assert growth.rate_over(0.25) == 0.0


def test_a_site_that_still_grows_has_more_left_than_one_that_does_not():
    growing, known = Growth(), Growth()
    for number in range(100):
        growing.note(number // 30, 12, 4)
        known.note(number // 30, 12, 4 if number < 10 else 0)
    rows = np.array([growing.features(200), known.features(200)])
    more, less = MODEL.left(rows)
    assert more > less


def test_trees_are_read_as_they_were_written():
    trees = read_trees(SHIPPED.pages[0])
    assert len(trees) >= 20
    assert read_trees(write_trees(trees)) == trees
    assert all(max(tree.feature) < len(FEATURES) for tree in trees)


# -- time ----------------------------------------------------------------------------------------------------


def test_a_site_alone_takes_its_pauses_delays_and_transfers():
    # 10 pages of 1,000 bytes at 500 B/s, 0.5 s of delay, 1 s of pause
    (end_s,) = expected_ends(work_of((10, 1000, 0.5, 1.0, 500.0)), [(0.0, math.inf)])
    assert end_s == pytest.approx(10 * 3.5)


def test_a_closed_link_is_waited_for():
    (end_s,) = expected_ends(work_of((10, 1000, 0.0, 0.0, 1e9)), [(0.0, 0.0), (50.0, 1000.0)])
    assert end_s == pytest.approx(60.0)
    (never,) = expected_ends(work_of((10, 1000, 0.0, 0.0, 1e9)), [(0.0, 0.0)])
    assert never > 1e9


SITES = st.lists(
    st.tuples(
        st.integers(1, 300), st.floats(100, 1e5), st.floats(0.001, 2), st.floats(0, 5), st.floats(1e3, 1e7)
    ),
    min_size=1,
    max_size=25,
)


@given(SITES, st.floats(1e3, 1e7))
def test_no_forecast_beats_the_link_or_a_site_alone(sites, bound):
    work = work_of(*sites)
    ends = expected_ends(work, [(0.0, bound)])
    alone = work.pages * (
        work.overhead_s + work.pause_s + work.page_bytes / np.minimum(work.server_bytes_per_s, bound)
    )
    assert (ends >= alone * (1 - 1e-6)).all()
    assert ends.max() >= (work.pages * work.page_bytes).sum() / bound * (1 - 1e-6)
    assert (expected_ends(work, [(0.0, bound * 4)]) <= ends * 1.05 + 1.0).all()


def test_the_ends_of_many_sites_cost_no_more_than_a_hundred_phases():
    chance = np.random.default_rng(3)
    count = 3000
    work = Workload(
        chance.integers(1, 300, count).astype(np.float64),
        np.full(count, 20_000.0),
        chance.uniform(0.02, 0.4, count),
        np.full(count, 1.0),
        np.full(count, 1e6),
    )
    ends = expected_ends(work, [(0.0, 5e6)])
    assert np.isfinite(ends).all()
    assert ends.max() >= (work.pages * work.page_bytes).sum() / 5e6


def test_connections_limit_the_sites_that_are_asked_at_once():
    work = work_of(*[(100, 100, 1.0, 0.0, 1e9)] * 10)
    assert expected_ends(work, [(0.0, math.inf)], 5).max() == pytest.approx(200.0)


def test_the_analysis_agrees_with_a_crawl_by_the_engine():
    """Where pages, sizes and servers are known, what is left to err is the sharing of the link."""
    web = make_web(SyntheticSpec(pages=400, sites=5, locality=1.0, seed=5))
    servers = Servers.alike(5, answer_s=0.1, rate_bytes_per_s=60_000.0)
    bound = 60_000.0
    crawl = CrawlTable(interval="0.2 s", bandwidth=f"{bound:g} B/s", respect_robots=False, timezone="UTC")
    job = build_job(JobFile(crawl=crawl, site=(SiteTable(url="http://a.test"),)), Source("a test"))
    world = GraphWorld(
        web, servers, Trouble.drawn(web.pages, 5, 0), max_connections=99, keep_open_s=Seconds(9)
    )
    clock = VirtualClock(Instant(0.0))
    circumstances = Circumstances(links_at_once=None, shares_evenly=True)
    runtime = Runtime.from_job(without_what_is_not_simulated(job), clock, world, circumstances)
    end_at = VirtualDriver(runtime.engine, world).run([Seeded((), seed_pages(web))])
    count = np.bincount(web.site_of, minlength=5).astype(np.float64)
    size = np.bincount(web.site_of, web.size_bytes, minlength=5) / count
    work = Workload(count, size, np.full(5, 0.1), np.full(5, 0.2), np.full(5, 60_000.0))
    assert expected_ends(work, [(0.0, bound)]).max() == pytest.approx(end_at, rel=0.1)


# -- ranges --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [SHIPPED.sites, SHIPPED.crawls], ids=["sites", "crawls"])
def test_the_shipped_factors_are_quantiles(rows):
    assert len(rows) == BUCKETS
    for row in rows:
        assert len(row) == len(SHIPPED.probabilities)
        assert all(low <= high for low, high in pairwise(row))


@given(st.floats(0, 1), st.floats(0.01, 30))
def test_a_chance_grows_with_the_time_until_the_deadline(progress, factor):
    factors = Factors(SHIPPED.probabilities, SHIPPED.sites)
    assert 0 <= factors.chance(progress, factor) <= factors.chance(progress, factor * 1.5) <= 1
    middle = float(factors.of(np.array([progress]), 0.5)[0])
    assert factors.chance(progress, middle) == pytest.approx(0.5, abs=0.02)


def test_ranges_that_hold_too_seldom_become_wider():
    level = Level()
    assert level.tails == pytest.approx((0.1, 0.9))
    for _ in range(3):
        level.crawl_ended(0.0)
    assert level.value > WANTED
    for _ in range(1000):
        level.crawl_ended(1.0)
    assert 0.3 <= level.value < WANTED


def test_the_first_sites_that_end_do_not_change_the_ranges():
    level = Level()
    for _ in range(20):
        level.site_ended(0.0)
    assert level.value == WANTED
    level.site_ended(0.0)
    assert level.value > WANTED
