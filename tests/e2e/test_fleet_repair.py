"""A collector whose files a power cut has shortened takes up its folder; what was lost is fetched again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.fleetweb import FleetWeb

from headway.cluster.leader import Leader
from headway.cluster.postgres import LeaderElection
from headway.model.command import SaveFound
from headway.model.page import Page
from headway.planning.allocator import Allocator
from headway.policy.timetable import Timetable
from headway.store.postgres.connection import Address
from headway.store.postgres.reader import PostgresReader
from headway.store.postgres.store import PostgresStore

HEADWAY = Path(sys.executable).with_name("headway")


def crawl(web, store, out, expected=0):
    options = ["--allow-private", "--interval", "0.02s", "--store", store, "-o", out]
    done = subprocess.run(
        [HEADWAY, "crawl", *web.seeds, *options], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == expected, done.stderr.decode()
    return done.stderr.decode()


def archive_of(out):
    (path,) = (out / "archive").iterdir()
    return path


def test_pages_whose_captures_were_lost_are_fetched_again(postgres_store, tmp_path):
    with FleetWeb(sites=2, pages=10) as web:
        crawl(web, postgres_store, tmp_path / "c")
        asked = len(web.asked)
        archive = archive_of(tmp_path / "c")
        os.truncate(archive, archive.stat().st_size // 2)
        os.truncate(tmp_path / "c" / "pages.jsonl", 100)
        said = crawl(web, postgres_store, tmp_path / "c")
        again = {(each.site, each.path) for each in web.asked[asked:] if each.path != "/robots.txt"}
    assert "truncated" in said
    assert 5 < len(again) < 15
    with PostgresReader(postgres_store) as reader:
        kept = {page.url for page in reader.captures()}
        assert reader.totals().waiting == 0
    assert len(kept) == 20
    index = (tmp_path / "c" / "indexes" / "index.cdxj").read_text().splitlines()
    assert len(index) == 20


def test_a_file_that_is_gone_altogether_is_for_a_person_to_decide(postgres_store, tmp_path):
    with FleetWeb(sites=1, pages=3) as web:
        crawl(web, postgres_store, tmp_path / "c")
        archive_of(tmp_path / "c").unlink()
        said = crawl(web, postgres_store, tmp_path / "c", expected=5)
    assert "bytes are missing" in said
    assert "Traceback" not in said


def test_a_crawl_for_which_pages_are_queued_just_now_does_not_end(postgres_store):
    address = Address.parse(postgres_store)
    store = PostgresStore(address)
    store.create(1.0, {})
    store.commit([SaveFound((Page("http://a.test/", "http://a.test", 1),), is_elsewhere=True)], {})
    store.close()
    election = LeaderElection(address, Leader(Timetable(1e6), Allocator))
    with address.connect() as repair, address.connect() as live_reader, ThreadPoolExecutor(1) as leading:
        repair.execute("CREATE TABLE set_aside AS SELECT * FROM waiting")
        repair.execute("DELETE FROM waiting")
        with repair.transaction():
            repair.execute("UPDATE crawl SET ended_at = NULL")
            round_of_the_leader = leading.submit(election.round)
            waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid <> pg_backend_pid()"
            until = time.monotonic() + 30.0
            while not live_reader.execute(waits).fetchall() and time.monotonic() < until:
                time.sleep(0.01)
            repair.execute("INSERT INTO waiting SELECT * FROM set_aside")
        assert round_of_the_leader.result()
        assert live_reader.execute("SELECT ended_at FROM crawl").fetchone() == (None,)
        repair.execute("DELETE FROM waiting")
        election.round()
        assert live_reader.execute("SELECT ended_at FROM crawl").fetchone() != (None,)
    election.close()
