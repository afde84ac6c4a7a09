"""Collectors come, go, hang and die, and the database restarts: no page is lost, none comes twice beyond
those that were under way, and no site is asked too soon."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.fleetweb import FleetWeb
from tests.support.postgres import TemporaryPostgres, find_postgres

from headway.cluster.collecting import begin
from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.store.postgres.connection import Address
from headway.view.summary import summarise

HEADWAY = Path(sys.executable).with_name("headway")
INTERVAL_S = 0.1
IN_FLIGHT = 12
"""Pages that one collector can have fetched and not committed when it dies: some tenths of a second."""


def make_crawl(web, store, **crawl):
    settings = {"allow_private": True, "interval": f"{INTERVAL_S} s", **crawl}
    tables = {"crawl": settings, "site": [{"url": seed} for seed in web.seeds]}
    source = Source("test")
    begin(build_job(convert(tables, source), source), Address.parse(store), time.time())


class Fleet:
    def __init__(self, store, folder, lease="3 s"):
        self._store, self._folder, self._lease = store, folder, lease
        self.members = {}

    def start(self, name):
        command = [HEADWAY, "collect", "--store", self._store, "-o", self._folder / name, "--name", name]
        command += ["--lease", self._lease, "-q"]
        with (self._folder / f"{name}.txt").open("wb") as said:
            self.members[name] = subprocess.Popen(command, stdout=said, stderr=said)

    def signal(self, name, signum):
        self.members[name].send_signal(signum)

    def wait(self, timeout=60):
        codes = {}
        for name, process in self.members.items():
            codes[name] = process.wait(timeout)
            said = (self._folder / f"{name}.txt").read_text()
            assert "Traceback" not in said, said
        return codes

    def close(self):
        for process in self.members.values():
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def fleet(postgres_store, tmp_path):
    fleet = Fleet(postgres_store, tmp_path)
    yield fleet
    fleet.close()


def until_asked(web, count, timeout_s=30):
    end = time.monotonic() + timeout_s
    while len(web.asked) < count:
        assert time.monotonic() < end, f"only {len(web.asked)} requests"
        time.sleep(0.02)


def test_two_collectors_share_a_crawl_and_fetch_each_page_once(fleet, postgres_store):
    with FleetWeb(sites=6, pages=20) as web:
        make_crawl(web, postgres_store)
        fleet.start("a")
        fleet.start("b")
        assert fleet.wait() == {"a": 0, "b": 0}
        verdict = web.judge(INTERVAL_S)
    assert verdict[:4] == (120, 0, 0, 0), verdict
    assert summarise(postgres_store).done == 120


def test_a_collector_that_joins_gets_work_within_two_seconds(fleet, postgres_store):
    with FleetWeb(sites=6, pages=60) as web:
        make_crawl(web, postgres_store)
        fleet.start("a")
        until_asked(web, 40)
        fleet.start("b")
        joined_at = _when(postgres_store, "SELECT extract(epoch FROM now()) FROM collector WHERE name = 'b'")
        worked_at = _when(
            postgres_store,
            "SELECT extract(epoch FROM now()) FROM holding JOIN collector ON id = collector_id "
            "WHERE name = 'b' AND is_taken",
        )
        fleet.close()
    assert worked_at - joined_at < 2.0


def test_a_collector_that_is_killed_loses_nothing(fleet, postgres_store):
    with FleetWeb(sites=6, pages=20) as web:
        make_crawl(web, postgres_store)
        fleet.start("a")
        fleet.start("b")
        until_asked(web, 40)
        fleet.signal("a", signal.SIGKILL)
        assert fleet.wait()["b"] == 0
        verdict = web.judge(INTERVAL_S)
    assert (verdict.lost, verdict.too_soon) == (0, 0), verdict
    assert verdict.doubled <= IN_FLIGHT, verdict


def test_a_collector_asked_to_stop_hands_its_sites_over_at_once(fleet, postgres_store):
    with FleetWeb(sites=6, pages=20) as web:
        make_crawl(web, postgres_store)
        fleet.start("a")
        fleet.start("b")
        until_asked(web, 40)
        fleet.signal("a", signal.SIGTERM)
        assert fleet.wait() == {"a": 11, "b": 0}
        verdict = web.judge(INTERVAL_S)
    assert verdict[:4] == (120, 0, 0, 0), verdict


def test_a_collector_that_hangs_beyond_its_lease_asks_nothing_when_it_wakes(fleet, postgres_store):
    with FleetWeb(sites=6, pages=20) as web:
        make_crawl(web, postgres_store)
        fleet.start("a")
        fleet.start("b")
        until_asked(web, 40)
        fleet.signal("a", signal.SIGSTOP)
        time.sleep(4.5)
        fleet.signal("a", signal.SIGCONT)
        fleet.wait()
        verdict = web.judge(INTERVAL_S)
    assert (verdict.lost, verdict.too_soon) == (0, 0), verdict
    assert verdict.doubled <= IN_FLIGHT, verdict


@pytest.mark.parametrize("hard", [False, True], ids=["restart", "power failure"])
def test_the_crawl_continues_after_a_restart_of_the_database(tmp_path, hard):
    if find_postgres() is None:
        pytest.skip("PostgreSQL is not installed")
    with TemporaryPostgres(fsync="on") as server, FleetWeb(sites=6, pages=25) as web:
        store = server.address("restart")
        make_crawl(web, store)
        fleet = Fleet(store, tmp_path)
        try:
            fleet.start("a")
            fleet.start("b")
            until_asked(web, 40)
            server.restart(hard=hard)
            assert fleet.wait() == {"a": 0, "b": 0}
        finally:
            fleet.close()
        verdict = web.judge(INTERVAL_S)
        assert summarise(store).done == 150
    assert verdict[:4] == (150, 0, 0, 0), verdict


def _when(store, query):
    address = Address.parse(store)
    with address.connect() as connection:
        for _ in range(500):
            row = connection.execute(query).fetchone()
            if row is not None:
                return row[0]
            time.sleep(0.02)
    raise AssertionError(f"never: {query}")
