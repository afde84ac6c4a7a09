"""What the control of a crawl costs by the number of its sites, as counts of operations. The times are in
`benchmarks/sites`."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.support.script import Answer, Script, ScriptedWorld

from headway.cli.running import LISTED_OF_MANY, _most_important
from headway.cluster.coordinator import MOST_REPORTED, Report, demands_of
from headway.cluster.leader import Fleet, Leader, Standing
from headway.engine.bandwidth import BandwidthPlanner, LinkBound
from headway.engine.demands import CAP, IS_OPEN, LEFT, DemandTable
from headway.engine.frontier import Frontier
from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.engine.shares import Shares
from headway.engine.site_queue import MemorySiteQueue
from headway.engine.start_pages import FETCHED, NOT_FETCHED, REDIRECTS
from headway.engine.stats import CrawlStats, SiteStats
from headway.model.command import (
    Command,
    FetchPage,
    SaveFound,
    SaveNotice,
    SaveSettled,
    SaveSite,
    SaveTasks,
    SetRates,
)
from headway.model.event import Seeded
from headway.model.page import Kind, Outcome, Page, PageKey, Site, Task
from headway.planning.allocator import Allocator
from headway.planning.priority_lists import rates_in_order
from headway.planning.problem import Timetable as Capacity
from headway.policy.ordering.simple import Deadline
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.prediction import Prediction
from headway.policy.scope import Scope
from headway.policy.timetable import Timetable
from headway.runtime.driver import VirtualDriver
from headway.store.reader import DATABASE, RunDatabase
from headway.store.sqlite import SqliteStore
from headway.units import BytesPerSecond, Instant, Seconds
from headway.view.summary import SiteResult, summarise, summarise_some

NOW = Instant(1000.0)


def site_of(number: int) -> Site:
    return Site(f"https://site{number}.test")


def page_of(number: int, page: int) -> Page:
    return Page(f"{site_of(number)}/{page}", site_of(number), PageKey(number * 100 + page), 0)


def start_of(sites: int, pages: int = 2) -> list[SaveTasks | SaveFound]:
    tasks = tuple(Task(site_of(number)) for number in range(sites))
    return [
        SaveTasks(tasks),
        SaveFound(tuple(page_of(number, page) for number in range(sites) for page in range(pages))),
    ]


# -- the store --------------------------------------------------------------------------------------------


def instructions_of_a_start(folder: Path, sites: int) -> int:
    """The instructions of SQLite's machine, in hundreds."""
    folder.mkdir()
    store = SqliteStore(folder / "crawl.sqlite")
    store.create(NOW, {})
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1

    store._connection.set_progress_handler(tick, 100)
    store.commit(start_of(sites), {})
    store.close()
    return count


def test_the_start_of_ten_times_the_sites_is_about_ten_times_the_work_of_the_database(tmp_path: Path) -> None:
    few, many = (instructions_of_a_start(tmp_path / str(sites), sites) for sites in (200, 2000))
    assert few > 10
    assert many < 14 * few


def test_the_statements_of_a_restart_do_not_grow_with_the_sites(tmp_path: Path) -> None:
    statements = {}
    for sites in (20, 500):
        (tmp_path / str(sites)).mkdir()
        store = SqliteStore(tmp_path / str(sites) / "crawl.sqlite")
        store.create(NOW, {})
        store.commit(start_of(sites), {})
        told: list[str] = []
        store._connection.set_trace_callback(told.append)
        snapshot = store.load(most_waiting=100_000)
        assert snapshot is not None
        assert len(snapshot.waiting) == 2 * sites
        statements[sites] = len(told)
        store.close()
    assert statements[500] == statements[20]


@pytest.mark.parametrize("most", [None, 1, 40, 10_000])
def test_a_restart_loads_all_waiting_pages_or_counts_them(tmp_path: Path, most: int | None) -> None:
    store = SqliteStore(tmp_path / "crawl.sqlite")
    store.create(NOW, {})
    store.commit(start_of(3, pages=2), {})
    store.commit([SaveFound(tuple(page_of(7, page) for page in range(90)))], {})
    snapshot = store.load(most)
    store.close()
    assert snapshot is not None
    counts = {site_of(0): 2, site_of(1): 2, site_of(2): 2, site_of(7): 90}
    if most is not None and most < 96:
        assert (list(snapshot.waiting), snapshot.unloaded) == ([], counts)
        return
    by_site: dict[Site, list[PageKey]] = {}
    for record in snapshot.waiting:
        by_site.setdefault(record.page.site, []).append(record.page.key)
    assert {site: len(pages) for site, pages in by_site.items()} == counts
    assert by_site[site_of(7)] == [700 + page for page in range(90)]
    assert not snapshot.unloaded


def test_tasks_keep_the_order_in_which_they_were_first_saved(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "crawl.sqlite")
    store.create(NOW, {})
    store.commit([SaveTasks((Task(site_of(5)), Task(site_of(1))))], {})
    store.commit([SaveTasks((Task(site_of(1), weight=3.0), Task(site_of(9)), Task(site_of(0))))], {})
    snapshot = store.load()
    store.close()
    assert snapshot is not None
    assert [(task.site, task.weight) for task in snapshot.tasks] == [
        (site_of(5), 1.0),
        (site_of(1), 3.0),
        (site_of(9), 1.0),
        (site_of(0), 1.0),
    ]


def test_the_log_of_the_store_is_copied_into_the_file_by_a_thread_and_begins_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "crawl.sqlite")
    store.create(NOW, {})
    store.checkpoint_bytes = 200_000
    begins_again, longest, before = 0, 0, 0
    for part in range(300):
        pages = tuple(page_of(part, page) for page in range(90))
        store.commit([SaveTasks((Task(site_of(part)),)), SaveFound(pages)], {})
        length = (tmp_path / "crawl.sqlite-wal").stat().st_size
        begins_again += length < before
        longest, before = max(longest, length), length
        if store._checkpoint is not None:
            store._checkpoint.result()
    assert begins_again > 3
    assert longest < 1_000_000
    store.close()
    kept = SqliteStore(tmp_path / "crawl.sqlite")
    snapshot = kept.load()
    kept.close()
    assert snapshot is not None
    assert (len(snapshot.tasks), len(snapshot.waiting)) == (300, 27_000)


# -- the planner ------------------------------------------------------------------------------------------

CAPACITY = 1_000_000.0


def engine_of(sites: int, most_held: int | None = None) -> Engine:
    politeness = Politeness(interval_s=Seconds(1.0))
    return Engine(
        Policies(ordering=Deadline(), scope=Scope(), politeness=politeness, retry=RetryPolicy()),
        EngineSettings(max_connections=50, lease_s=Seconds(1e6), asks_robots=False, most_held=most_held),
        bound=LinkBound(Timetable(BytesPerSecond(CAPACITY))),
        planner=BandwidthPlanner(Allocator(), politeness, Prediction(BytesPerSecond(1e6))),
    )


def crawl_for(engine: Engine, sites: int, until: float) -> list[tuple[Instant, Command]]:
    """Every third site has one page; a page takes 50 ms and has 10 KB."""
    tasks = tuple(Task(site_of(n), deadline_at=Instant(1000.0 + n), max_pages=10) for n in range(sites))
    pages = tuple(page_of(n, page) for n in range(sites) for page in range(1 if n % 3 else 9))
    ok = Answer(Seconds(0.05), Outcome(Kind.FETCHED, 200, 10_000, Seconds(0.05), peer="192.0.2.1"))
    told: list[tuple[Instant, Command]] = []
    driver = VirtualDriver(
        engine, ScriptedWorld(Script({}, default=ok)), on_command=lambda now, c: told.append((now, c))
    )
    driver.run([Seeded(tasks, pages)], until=Instant(until))
    return told


def test_a_plan_computes_only_the_rows_of_sites_that_have_changed() -> None:
    rows = {}
    for sites in (400, 4000):
        engine = engine_of(sites)
        told = crawl_for(engine, sites, until=20.0)
        assert engine.planner is not None
        settled = sum(isinstance(command, SaveSettled) for _, command in told)
        assert settled > 500
        rows[sites] = (engine.planner.table.rows_computed - sites) / settled
    # A page changes its site twice: when it is asked for, and when it has come.
    assert max(rows.values()) <= 2.1


def test_plans_for_more_sites_are_made_less_often_and_shares_are_handed_on_in_between() -> None:
    engine = engine_of(20_000)
    told = crawl_for(engine, 20_000, until=30.0)
    assert engine.planner is not None
    assert engine.planner.plans_made <= 2 + 30 / 0.6
    rates = [(now, sum(c.rates_bytes_per_s.values())) for now, c in told if isinstance(c, SetRates)]
    ended = sum(isinstance(c, SaveSite) and c.ended_at is not None for _, c in told)
    assert ended > 100
    assert len(rates) > 2 * engine.planner.plans_made
    # A claim may be above the share, because a site pauses between its pages.
    assert all(total > 0.5 * CAPACITY for now, total in rates if now > 1.0)


def test_the_same_events_lead_to_the_same_decisions_with_many_sites() -> None:
    one, other = (
        [
            (now, c)
            for now, c in crawl_for(engine_of(6000), 6000, until=8.0)
            if isinstance(c, SetRates | FetchPage)
        ]
        for _ in range(2)
    )
    assert one == other


@pytest.mark.parametrize("sites", [300, 3000])
def test_a_change_of_the_open_sites_looks_at_those_that_have_changed(
    sites: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = Frontier(Deadline(), holds_sites=True)
    for n in range(sites):
        frontier.put(page_of(n, 0))
    frontier.serve_only(frozenset(range(10)))
    looked_at: list[int] = []
    judge = Frontier._judge
    monkeypatch.setattr(
        Frontier, "_judge", lambda self, number: (looked_at.append(number), judge(self, number))
    )
    frontier.serve_only(frozenset(range(5, 15)))
    # Those that were released or held back in the first call have changed.
    first = len(looked_at)
    looked_at.clear()
    frontier.serve_only(frozenset(range(6, 16)))
    assert first <= 25
    assert len(looked_at) <= 12


@given(
    st.booleans(),
    st.lists(
        st.tuples(st.sampled_from(["put", "later", "take", "none"]), st.integers(0, 9))
        | st.tuples(st.just("serve"), st.frozensets(st.integers(0, 9), max_size=4)),
        max_size=40,
    ),
)
def test_sites_are_held_back_as_if_all_were_looked_at(
    holds: bool, happenings: list[tuple[str, object]]
) -> None:
    frontier, now = Frontier(Deadline(), holds_sites=holds), NOW
    for turn, (what, value) in enumerate(happenings):
        now = Instant(now + 1.0)
        served = None
        match what, value:
            case "put", int(n):
                frontier.put(page_of(n, turn))
            case "later", int(n):
                frontier.put(page_of(n, turn), 0, Instant(now + 3.0))
            case "take", _:
                if (queue := frontier.next_site(now)) is not None:
                    frontier.take(queue)
            case "none", _ if not holds:
                frontier.serve_only(None)
                assert not any(queue.is_held for queue in frontier.queues())
            case "serve", frozenset() as served:
                frontier.next_site(now)
                frontier.serve_only(served)
                for queue in frontier.queues():
                    assert queue.is_held == (queue.due > 0 and queue.number not in served)


# -- what a collector reports -------------------------------------------------------------------------------


def test_the_active_sites_are_found_by_looking_at_those_that_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = engine_of(3000)
    crawl_for(engine, 3000, until=10.0)
    frontier = engine.frontier

    def walked() -> set[int]:
        return {queue.number for queue in frontier.queues() if queue.waiting or queue.busy}

    assert set(frontier.active()) == walked() != set()
    monkeypatch.setattr(Frontier, "queues", lambda _: pytest.fail("all queues were walked"))
    site = site_of(0)
    frontier.take_all(site)
    frontier.free(site, NOW)
    assert len(frontier._uncounted) == 1
    assert frontier.number_of(site) not in frontier.active()
    assert len(frontier._uncounted) == 0
    monkeypatch.undo()
    assert set(frontier.active()) == walked()


def test_all_active_sites_are_named_in_turn() -> None:
    engine = engine_of(500)
    crawl_for(engine, 500, until=0.2)
    active = {engine.frontier.at(number).site for number in engine.frontier.active()}
    named = [site for _ in range(-(-len(active) // 50)) for site in engine.frontier.next_active(50)]
    assert len(active) > 300
    assert set(named) == active


def test_the_most_urgent_demands_are_reported_and_the_others_as_sums() -> None:
    engine = engine_of(6000)
    crawl_for(engine, 6000, until=1.0)
    assert engine.planner is not None
    every = {each.site: each for each in engine.planner.on_a_faster_link(Instant(1.0), engine.stats)}
    demands, outlooks = demands_of(Instant(1.0), engine, 7)
    named, sums = demands[: len(outlooks)], demands[len(outlooks) :]
    assert len(every) > 2 * MOST_REPORTED
    assert (len(named), len(sums)) == (MOST_REPORTED, 16)
    assert {each.site for each in named} <= every.keys()
    assert not {each.site for each in sums} & every.keys()

    def latest_start_at(site: Site) -> float:
        each = every[site]
        assert each.deadline_at is not None
        return each.deadline_at - each.remaining_bytes / each.cap_bytes_per_s

    others = every.keys() - {each.site for each in named}
    assert max(latest_start_at(each.site) for each in named) <= min(map(latest_start_at, others))
    assert sum(each.remaining_bytes for each in demands) == pytest.approx(
        sum(each.remaining_bytes for each in every.values())
    )


def test_a_collector_with_very_many_deadlines_gets_what_it_would_get_if_it_reported_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another one has as many sites without deadlines."""
    now, bound = Instant(1.0), 12e6
    engines = []
    for first, due_s in ((0, 50.0), (6000, None)):
        engine = engine_of(6000)
        tasks = tuple(
            Task(
                site_of(first + n),
                deadline_at=None if due_s is None else Instant(due_s + n / 40),
                max_pages=10,
            )
            for n in range(6000)
        )
        pages = tuple(page_of(first + n, page) for n in range(6000) for page in range(4))
        VirtualDriver(engine, ScriptedWorld(Script({}))).run([Seeded(tasks, pages)], until=now)
        engines.append(engine)
    shares = []
    for most in (MOST_REPORTED, 100_000):
        monkeypatch.setattr("headway.cluster.coordinator.MOST_REPORTED", most)
        standing = []
        for number, engine in enumerate(engines, 1):
            demands, outlooks = demands_of(now, engine, number)
            report = Report(demands=demands, outlooks=outlooks, active_in_all=len(engine.frontier.active()))
            assert report.active_sites > 5000
            standing.append(Standing(number, "", report, 0))
        leader = Leader(Timetable(BytesPerSecond(bound)), Allocator)
        fleet = Fleet(standing, (), {}, ())
        given = [leader.decide(Instant(now + turn / 4), fleet).shares for turn in range(20)][-1]
        shares.append({share.collector: share.rate_bytes_per_s for share in given}[1])
    in_sums, by_itself = shares
    assert by_itself > 0.7 * bound
    assert in_sums == pytest.approx(by_itself, rel=0.1)


@given(
    st.lists(st.tuples(st.floats(1.0, 50.0), st.booleans()), min_size=1, max_size=30),
    st.floats(1.0, 400.0),
    st.integers(1, 40),
    st.data(),
)
def test_what_ended_sites_leave_goes_to_the_next_of_the_plan(
    sites: list[tuple[float, bool]], link: float, seats: int, data: st.DataObject
) -> None:
    table, order = DemandTable(Politeness(), Prediction(BytesPerSecond(1e6))), np.arange(len(sites))
    table._make_room(len(sites))
    table._rows[: len(sites), IS_OPEN] = 1.0
    table._rows[: len(sites), LEFT] = 100.0
    table._rows[: len(sites), CAP] = [cap for cap, _ in sites]
    order = np.array(data.draw(st.permutations(range(len(sites)))), dtype=np.int64)
    work = table.work(Instant(0.0), np.arange(len(sites)), Capacity.constant(link), seats)
    rates = rates_in_order(work, order, link)
    shares = Shares()
    shares.set({row: float(rates[row]) for row in np.flatnonzero(rates).tolist()}, order, link, seats)
    ended = [row for row, (_, ends) in enumerate(sites) if ends]
    table._rows[ended, IS_OPEN] = 0.0
    shares.hand_on(ended, table)
    left = order[~np.isin(order, ended)]
    again = rates_in_order(work, left, link)
    assert sum(shares.rates.values()) <= link * (1 + 1e-9)
    for row in range(len(sites)):
        expected = 0.0 if row in ended else float(again[row])
        assert shares.rates.get(row, 0.0) == pytest.approx(expected, abs=1e-6 * link)


# -- memory -------------------------------------------------------------------------------------------------


def objects_of(engine: Engine) -> int:
    kept = [*engine.frontier._queues, *engine.stats._entries]
    return sum(isinstance(each, MemorySiteQueue | SiteStats) for each in kept)


@pytest.mark.parametrize("sites", [2000, 6000])
def test_only_sites_in_progress_are_objects_whatever_the_number_of_the_others(sites: int) -> None:
    engine = engine_of(sites, most_held=100)
    tasks = tuple(Task(site_of(n), (page_of(n, 0).url,), Instant(9e5 + n)) for n in range(sites))
    pages = tuple(page_of(n, page) for n in range(sites) for page in range(3))
    engine.step(NOW, Seeded(tasks, pages))
    assert len(engine.stats.by_site) == sites
    assert engine.frontier.waiting + engine.in_flight == 3 * sites
    assert objects_of(engine) < 300
    assert [engine.stats.by_site[task.site].task for task in tasks] == list(tasks)
    waiting = sum(engine.frontier.waiting_of(task.site) for task in tasks)
    assert waiting == engine.frontier.waiting
    assert objects_of(engine) < 300, "looking makes no objects that stay"


@given(
    st.lists(st.sampled_from(["/", "/a", "/b?c=d", "//x"]), max_size=3),
    st.one_of(st.none(), st.floats(0, 1e10)),
    st.floats(0.01, 100),
    st.one_of(st.none(), st.integers(0, 10**12)),
)
def test_a_packed_task_is_the_same_task(
    paths: list[str], due: float | None, weight: float, most: int | None
) -> None:
    site = site_of(1)
    seeds = (*(f"{site}{path}" for path in paths), "https://elsewhere.test/")
    task = Task(site, seeds, None if due is None else Instant(due), weight, most, most, None, None)
    stats = CrawlStats()
    stats.open(task)
    assert stats.has(task)
    assert not stats.has(Task(site, seeds, Instant(1.5), weight, 7))
    assert stats.by_site[site].task == task
    assert stats.site_stats(site).task == task


# -- views --------------------------------------------------------------------------------------------------


def test_status_lists_the_most_important_of_very_many_sites() -> None:
    def result(number: int, verdict: str, due_s: float | None, end_s: float | None = None) -> SiteResult:
        return SiteResult(site_of(number), verdict, due_s, end_s, 1, 0, 0, 1000)

    many = [result(n, "met", 10.0 + n, 5.0) for n in range(3000)]
    some = [result(4000, "open", 900.0), result(4001, "missed", 20.0), result(4002, "open", 800.0)]
    listed = _most_important([*many, *some])
    assert [each.site for each in listed[:3]] == [site_of(4001), site_of(4002), site_of(4000)]
    assert len(listed) == 100
    assert _most_important(many[:1000]) == many[:1000], "of some hundred sites, all are listed"


@pytest.mark.parametrize("seed", range(3))
def test_the_sums_of_a_status_are_those_of_all_sites_and_only_some_are_read(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    store = SqliteStore(tmp_path / DATABASE)
    store.create(NOW, {})
    sites = [site_of(n) for n in range(3000)]
    due_at = [chance.choice([None, Instant(1500.0 + n), Instant(5e9 + n)]) for n in range(3000)]
    store.commit([SaveTasks(tuple(map(Task, sites, [()] * 3000, due_at)))], {})
    store.commit([SaveFound(tuple(page_of(n, 0) for n in range(0, 3000, 2)))], {})
    noticed = [
        SaveNotice(sites[n], NOW, chance.choice([NOT_FETCHED, FETCHED, REDIRECTS]), "x") for n in range(9)
    ]
    store.commit(noticed, {})
    store.close()
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database:
        for n in range(1, 2900):
            ended_at = chance.choice([None, None, 1400.0 + n, 2500.0 + n])
            row = (chance.choice([0, 1, 30]), chance.choice([0, 0, 2]), chance.randrange(9999), ended_at, n)
            database.execute(
                "UPDATE site SET free_at = 1, done = ?, failed = ?, wire_bytes = ?, ended_at = ?"
                " WHERE id = ?",
                row,
            )
            if chance.random() < 0.3:
                database.execute("UPDATE task SET max_pages = 0 WHERE site_id = ?", (n,))
            if row[0]:
                kind = chance.choice(["fetched", "redirect"])
                database.execute("INSERT INTO outcome VALUES (?, 'done', ?, '', 1)", (n, kind))
        database.commit()
    every = summarise(tmp_path)
    rows: list[int] = []
    ask = RunDatabase._all
    monkeypatch.setattr(
        RunDatabase, "_all", lambda *asked: [(found := ask(*asked), rows.append(len(found)))[0]][0]
    )
    some, listed_of = summarise_some(tmp_path, LISTED_OF_MANY)
    assert sum(rows) < 1000
    assert listed_of == len(every.sites) > 2000
    assert structs.replace(some, sites=()) == structs.replace(every, sites=())
    important = _most_important(every.sites)
    assert len(some.sites) == len(important) == LISTED_OF_MANY
    assert [site.deadline_s for site in some.sites] == [site.deadline_s for site in important]
    assert set(some.sites) <= set(every.sites)
