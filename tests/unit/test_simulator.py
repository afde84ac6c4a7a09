"""A simulated crawl meets what it should: links, failures, robots.txt, timetables; and is judged rightly."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.errors import HeadwayError, JobError
from headway.model.command import (
    Command,
    Decision,
    SaveFound,
    SaveServers,
    SaveSettled,
    SaveSite,
    SaveTasks,
    SetCapacity,
    SetRates,
)
from headway.model.event import Seeded
from headway.model.page import Site, Task
from headway.policy.ordering import make_ordering
from headway.policy.ordering.ranked import pagerank
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.timetable import Entry, Timetable
from headway.runtime.driver import simulate
from headway.runtime.simulation import EVERYTHING, run_crawl, run_machine, seed_pages
from headway.sim.graph import RecordedServers, ranks_of_run, web_of_run
from headway.sim.study import Record, Setup, active_robots, area_under, bandwidth_used, judge, rank_curve
from headway.sim.web import ERROR_PAGE_BYTES, Servers, SyntheticSpec, Trouble, Web, make_web
from headway.sim.world import GraphWorld
from headway.store.sqlite import SqliteStore
from headway.units import BytesPerSecond, Instant, Seconds


def small_web(rows: list[list[int]], site_of: list[int], size: int = 1000) -> Web:
    return Web(
        "small",
        np.cumsum([0, *map(len, rows)]),
        np.array([target for row in rows for target in row], dtype=np.int32),
        np.array(site_of, dtype=np.int32),
        np.full(len(rows), size, dtype=np.int64),
        [f"s{number}.test" for number in range(max(site_of) + 1)],
        np.array([0], dtype=np.int32),
    )


CHAIN = small_web([[1], [2], [3], []], [0, 0, 1, 0])
ALIKE = Servers.alike(2, connect_s=1.0, answer_s=0.5, rate_bytes_per_s=1000.0)


def test_a_page_takes_its_latency_and_its_size_over_the_servers_rate() -> None:
    record = run_crawl(CHAIN, ALIKE, Setup(interval_s=Seconds(10.0)))
    assert record.page.tolist() == [0, 1, 2, 3]
    assert (record.ended_at - record.started_at).tolist() == [2.5] * 4
    assert record.started_at.tolist() == [0.0, 12.5, 15.0, 25.0]
    assert (record.answered_at - record.started_at).tolist() == [1.5] * 4


def test_an_open_connection_saves_the_time_to_connect_and_the_pause() -> None:
    record = run_crawl(CHAIN, ALIKE, Setup(interval_s=Seconds(10.0), pages_per_connection=2))
    assert (record.ended_at - record.started_at).tolist() == [2.5, 1.5, 2.5, 2.5]
    assert record.started_at.tolist() == [0.0, 2.5, 4.0, 14.0]


def test_a_saturated_link_makes_robots_pointless() -> None:
    web = small_web([list(range(1, 41))] + [[]] * 40, [0, *range(1, 41)])
    servers = Servers.alike(41, rate_bytes_per_s=1000.0)
    hours = [
        run_crawl(web, servers, Setup(robots=robots, bandwidth=BytesPerSecond(1000.0))).seconds
        for robots in (1, 8, 40)
    ]
    assert hours == pytest.approx([41.0] * 3)
    assert run_crawl(web, servers, Setup(robots=40)).seconds == pytest.approx(2.0)


def test_a_timetable_is_kept() -> None:
    web = small_web([[]], [0], size=100_000)
    nights = Timetable(BytesPerSecond(1000.0), (Entry.parse("daily", "00:00-01:00", BytesPerSecond(10.0)),))
    record = run_crawl(web, Servers.alike(1), Setup(bandwidth=nights))
    # An hour at 10 bytes a second, the other 64,000 bytes at a thousand.
    assert record.seconds == pytest.approx(3600 + 64)


def test_what_is_gone_is_asked_once_and_what_fails_is_tried_again() -> None:
    trouble = Trouble(
        np.array([False, True, False, False]), np.array([0, 0, 2, 0], dtype=np.int8), np.zeros(2, dtype=bool)
    )
    web = small_web([[1, 2, 3], [], [], []], [0, 0, 1, 0])
    decisions: list[Decision] = []
    record = run_machine(web, ALIKE, Setup(), trouble=trouble, log=decisions.append)
    asked = record.page.tolist()
    assert [asked.count(page) for page in range(4)] == [1, 1, 3, 1]
    assert record.fetched == 3
    assert record.wire_bytes[record.page == 1].tolist() == [ERROR_PAGE_BYTES]
    assert [d.reason for d in decisions if d.decision == "retry"] == ["server-error"] * 2
    assert [d.reason for d in decisions if d.decision == "give-up"] == ["missing"]


def test_a_site_that_is_down_fails_and_delays_no_other() -> None:
    web = small_web([[1, 2], [], []], [0, 1, 0])
    trouble = Trouble(np.zeros(3, dtype=bool), np.zeros(3, dtype=np.int8), np.array([False, True]))
    record = run_crawl(web, ALIKE, Setup(), trouble=trouble)
    assert sorted(record.page[record.is_fetched].tolist()) == [0, 2]
    assert set(record.page[~record.is_fetched].tolist()) == {1}


def test_robots_txt_is_asked_for_first_where_that_is_wanted() -> None:
    decisions: list[Decision] = []
    run_machine(CHAIN, ALIKE, Setup(asks_robots_txt=True), log=decisions.append)
    assert [d.decision for d in decisions[:2]] == ["ask-robots", "fetch"]
    assert sum(d.decision == "ask-robots" for d in decisions) == 2


def test_politeness_is_kept_whatever_fails() -> None:
    web = make_web(SyntheticSpec(pages=300, sites=9, seed=4))
    trouble = Trouble.drawn(web.pages, len(web.sites), 4, missing=0.1, flaky=0.3, down=0.3)
    assert trouble.is_down.any()
    setup = Setup(robots=5, interval_s=Seconds(7.0), pages_per_connection=2)
    record = run_machine(web, Servers.drawn(len(web.sites), 4), setup, trouble=trouble)
    for site in range(len(web.sites)):
        mine = np.flatnonzero(web.site_of[record.page] == site)
        mine = mine[np.argsort(record.started_at[mine], kind="stable")]
        gaps = record.started_at[mine][1:] - record.ended_at[mine][:-1]
        assert (gaps >= 0).all(), "never two connections to a site"
        rests = np.count_nonzero(gaps >= 7.0 - 1e-9)
        assert rests >= math.ceil(len(mine) / 2) - 1
        after_trouble = gaps[~record.is_fetched[mine][:-1]]
        assert (after_trouble >= 7.0 - 1e-9).all(), "no rapid fire at a site that fails"
    at_once = [(record.started_at <= at) & (record.ended_at > at) for at in record.started_at]
    assert max(map(np.count_nonzero, at_once)) <= 5
    asked, found = set(record.page.tolist()), set(record.page[record.is_fetched].tolist())
    assert not found & set(np.flatnonzero(trouble.is_missing).tolist())
    links = {target for page in found for target in web.links_of(page)}
    known = links | set(web.seeds.tolist())
    answering = {page for page in known if not trouble.is_down[web.site_of[page]]}
    assert answering <= asked <= known, "every page that is known is asked for, where a server answers"


def test_more_robots_are_never_slower_and_a_wider_link_never_is() -> None:
    web = make_web(SyntheticSpec(pages=2000, sites=60, seed=5))
    servers = Servers.drawn(60, 5)

    def seconds(robots: int, bandwidth: float) -> float:
        setup = Setup(strategy="depth", robots=robots, bandwidth=BytesPerSecond(bandwidth))
        return run_crawl(web, servers, setup).seconds

    by_robots = [seconds(robots, 1e6) for robots in (1, 4, 16, 60)]
    by_bandwidth = [seconds(16, bandwidth) for bandwidth in (1e3, 1e4, 1e5, 1e6)]
    # Another order may bring a few pages later: one part in fifty is no slowing down.
    assert all(later <= 1.02 * before for before, later in itertools.pairwise(by_robots))
    assert all(later <= 1.02 * before for before, later in itertools.pairwise(by_bandwidth))
    total_bytes = float(web.size_bytes.sum())
    for bandwidth, length_s in zip((1e3, 1e4, 1e5, 1e6), by_bandwidth, strict=True):
        assert length_s >= total_bytes / bandwidth * (1 - 1e-9), "never faster than the link"


@pytest.mark.parametrize("per_connection", [1, 2, 5, 100])
def test_k_pages_on_a_connection_save_all_but_one_pause_in_k(per_connection: int) -> None:
    web = small_web([list(range(1, 101)), *[[]] * 100], [0] * 101)
    servers = Servers.alike(1, connect_s=0.0, answer_s=0.25, rate_bytes_per_s=4000.0)
    setup = Setup(interval_s=Seconds(20.0), pages_per_connection=per_connection)
    pauses = math.ceil(101 / per_connection) - 1
    assert run_crawl(web, servers, setup).seconds == pytest.approx(101 * 0.5 + pauses * 20.0)


def test_an_allocation_shares_the_link_by_its_rates() -> None:
    web = small_web([[], []], [0, 1], size=10_000)
    crawl = _crawl()
    world = GraphWorld(
        web,
        Servers.alike(2, rate_bytes_per_s=1e6),
        Trouble.drawn(2, 2, 0),
        max_connections=2,
        keep_open_s=Seconds(5.0),
    )
    rates = {Site("http://s0.test"): BytesPerSecond(750.0), Site("http://s1.test"): BytesPerSecond(250.0)}
    world.start(Instant(0.0), SetRates(rates))
    world.start(Instant(0.0), SetCapacity(BytesPerSecond(1000.0)))
    pages = tuple(web.page(number, 0) for number in range(2))
    simulate(crawl, world, [Seeded((), pages)])
    ends = {row[0]: row[3] for row in world.log}
    assert ends[0] == pytest.approx(10_000 / 750)
    assert ends[1] == pytest.approx(20.0), "what the first leaves goes to the second"


def test_the_web_of_a_run_is_the_web_that_was_crawled(tmp_path: Path) -> None:
    web = small_web([[1, 2], [0, 3], [], [2]], [0, 0, 1, 1])
    store = SqliteStore(tmp_path / "crawl.sqlite")
    store.create(Instant(0.0), {})
    world = GraphWorld(web, ALIKE, Trouble.drawn(4, 2, 0), max_connections=2, keep_open_s=Seconds(5.0))

    def keep(_: Instant, command: Command) -> None:
        if isinstance(command, SaveFound | SaveServers | SaveSettled | SaveSite | SaveTasks):
            store.commit([command], {})

    tasks = tuple(Task(web.site(number)) for number in range(2))
    simulate(_crawl(), world, [Seeded(tasks, seed_pages(web))], on_command=keep)
    store.close()
    again, servers = web_of_run(tmp_path)
    urls = [again.page(number, 0).url for number in range(again.pages)]
    place = [urls.index(web.page(number, 0).url) for number in range(web.pages)]
    for number in range(web.pages):
        assert sorted(place[target] for target in web.links_of(number)) == again.links_of(place[number])
    assert again.size_bytes.tolist() == web.size_bytes.tolist()
    assert again.seeds.tolist() == [place[0]]
    assert isinstance(servers, RecordedServers)
    servers = servers.constant()
    length_s = servers.connect_s + servers.answer_s + 1000 / servers.rate_bytes_per_s
    assert (length_s > 1.0).all()
    assert run_crawl(again, servers, Setup()).fetched == 4
    ranks = ranks_of_run(tmp_path)
    values = pagerank(web.starts, web.targets).tolist()
    expected = {web.page(number, 0).url: rank for number, rank in enumerate(values)}
    assert ranks == pytest.approx(expected, abs=1e-8)


def test_a_run_that_has_fetched_nothing_has_no_web(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "crawl.sqlite")
    store.create(Instant(0.0), {})
    store.close()
    with pytest.raises(HeadwayError, match="has fetched no page"):
        web_of_run(tmp_path)


# -- judging ----------------------------------------------------------------------------------------------


def record_of(*rows: tuple[int, float, float, float, int]) -> Record:
    return Record.of([(*row, True) for row in rows])


def test_robots_and_bandwidth_are_means_over_each_span() -> None:
    record = record_of((0, 0.0, 1.0, 3.0, 200), (1, 2.0, 2.0, 4.0, 100))
    edges = np.array([0.0, 2.0, 4.0])
    assert active_robots(record, edges).tolist() == [1.0, 1.5]
    assert bandwidth_used(record, edges).tolist() == pytest.approx([50.0, 100.0])


def test_the_area_is_a_half_for_equal_pages_and_more_for_the_best_first() -> None:
    record = record_of(*((page, 0.0, 0.0, float(page), 1) for page in range(4)))
    alike = rank_curve(record, np.full(4, 0.25), 4)
    assert area_under(*alike[:2]) == pytest.approx(0.5)
    best_first = rank_curve(record, np.array([0.7, 0.1, 0.1, 0.1]), 4)
    assert area_under(*best_first[:2]) > 0.7


def test_a_crawl_that_ends_early_keeps_what_it_has() -> None:
    assert area_under(np.array([0.0, 0.5]), np.array([0.0, 1.0])) == pytest.approx(0.75)


def test_one_robot_with_no_need_to_wait_has_a_speed_up_of_one() -> None:
    web = small_web([[1], [2], [3], []], [0, 1, 2, 3])
    servers = Servers.drawn(4, 3)
    setup = Setup(robots=1)
    result = judge(web, servers, setup, run_crawl(web, servers, setup), pagerank(web.starts, web.targets))
    assert result.speedup == pytest.approx(1.0)
    assert result.mean_active_robots == pytest.approx(1.0)
    assert result.pagerank_curve[-1] == [1.0, pytest.approx(1.0)]
    assert result.seconds == result.pagerank_by_time[-1][0]


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setup", "words"),
    [
        (Setup(robots=0), "0 robots"),
        (Setup(interval_s=Seconds(-1.0)), "zero or more seconds"),
        (Setup(interval_s=Seconds(math.nan)), "zero or more seconds"),
        (Setup(pages_per_connection=0), "0 pages per connection"),
        (Setup(strategy="batch(5)"), "only 4 pages"),
        (Setup(strategy="nonsense"), "not an ordering"),
        (Setup(bandwidth=BytesPerSecond(0.0)), "above zero"),
    ],
)
def test_a_setup_that_is_not_valid_is_refused(setup: Setup, words: str) -> None:
    with pytest.raises(JobError) as caught:
        run_crawl(CHAIN, ALIKE, setup)
    assert words in str(caught.value)


def test_servers_of_another_web_are_refused() -> None:
    with pytest.raises(HeadwayError, match="number of servers"):
        run_machine(CHAIN, Servers.alike(5), Setup())


def test_shares_of_trouble_lie_between_nothing_and_all() -> None:
    with pytest.raises(HeadwayError, match=r"1\.5 flaky"):
        Trouble.drawn(3, 1, 0, flaky=1.5)


def _crawl() -> Engine:
    return Engine(
        Policies(
            ordering=make_ordering("depth"), scope=EVERYTHING, politeness=Politeness(), retry=RetryPolicy()
        ),
        EngineSettings(max_connections=2, lease_s=Seconds(math.inf), asks_robots=False),
    )
