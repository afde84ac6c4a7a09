"""The SQLite store beyond the port's contract: versions, locks, faults, readers, sizes."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import stat
import threading
from contextlib import closing

import numpy as np
import pytest

from headway.errors import StoreError
from headway.model.command import PageState, SaveAgain, SaveFound, SaveSettled, SaveSite, SaveTasks
from headway.model.page import Capture, Kind, Outcome, Page, Task
from headway.ports import CaptureNote
from headway.store import schema
from headway.store.reader import OutcomeCount, RunReader, RunSums, Sample
from headway.store.sqlite import SqliteStore
from headway.units import Instant
from headway.view.reporting import LinkGraph

SITE = "https://www.example.org"


def page(number, site=SITE, depth=0):
    return Page(f"{site}/{number}", site, number * 7_919 + len(site), depth)


def settled(which, state=PageState.DONE, kind=Kind.FETCHED, **changes):
    outcome = Outcome(
        kind,
        changes.pop("status", 200),
        wire_bytes=1100,
        duration_s=0.5,
        content_type="text/html",
        content_bytes=1000,
        digest=changes.pop("digest", ""),
        detail=changes.pop("detail", ""),
    )
    return SaveSettled(which, outcome, state, changes.pop("attempt", 0), changes.pop("at", 100.0), **changes)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "crawl.sqlite"


@pytest.fixture
def store(path):
    store = SqliteStore(path)
    store.create(50.0, {"bandwidth": "1 MB/s"})
    yield store
    store.close()


# -- who may open it ----------------------------------------------------------------------------------------


def test_two_crawls_cannot_use_one_store(store, path):
    with pytest.raises(StoreError, match=rf"process {os.getpid()} is crawling into this folder"):
        SqliteStore(path)


def test_the_lock_goes_with_the_store(path):
    SqliteStore(path).close()
    SqliteStore(path).close()


def test_a_refused_store_leaves_no_lock_behind(path):
    path.write_bytes(b"not a database, but long enough to look like one" * 20)
    for _ in range(2):
        with pytest.raises(StoreError, match="damaged or not an SQLite database"):
            SqliteStore(path)


def test_a_store_of_another_version_names_both_and_what_to_do(path):
    SqliteStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(StoreError, match=rf"version 7, this one reads version {schema.VERSION}.* new folder"):
        SqliteStore(path)
    with pytest.raises(StoreError, match="version 7"):
        RunReader(path)


def test_a_database_of_another_program_is_left_alone(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_an_empty_file_left_by_a_killed_start_is_no_obstacle(path):
    path.touch()
    store = SqliteStore(path)
    assert store.load() is None
    store.close()


def test_files_are_writable_only_by_their_owner(store, path):
    store.commit([SaveFound((page(1),))], {})
    for each in path.parent.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) & ~0o644 == 0, each


def test_a_missing_folder_is_a_clear_error(tmp_path):
    with pytest.raises(StoreError, match="cannot be reached"):
        SqliteStore(tmp_path / "gone" / "crawl.sqlite")


# -- all or nothing -----------------------------------------------------------------------------------------


def test_a_full_disk_leaves_what_was_committed_and_loses_no_number(store, path):
    store.commit([SaveFound((page(1), page(2)))], {"pages.jsonl": 5})
    many = [SaveFound(tuple(page(number, f"http://host{number}.example") for number in range(3, 5000)))]
    (pages_now,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages_now + 3}")
    with pytest.raises(StoreError, match=r"the disk is full; free some space.* no committed data is lost"):
        store.commit([settled(page(1)), *many], {"pages.jsonl": 99})
    assert [record.page for record in store.load().waiting] == [page(1), page(2)]
    assert store.committed_lengths() == {"pages.jsonl": 5}
    store._connection.execute("PRAGMA max_page_count = 1000000")
    store.commit([settled(page(1)), *many], {"pages.jsonl": 99})
    snapshot = store.load()
    assert len(snapshot.waiting) == 4998
    assert store.committed_lengths() == {"pages.jsonl": 99}


@pytest.mark.parametrize("value", [2**63, "no number"])
def test_a_batch_that_cannot_be_written_leaves_nothing_of_itself(store, value):
    broken = settled(page(3), at=value if value == "no number" else 1.0)
    found = SaveFound((page(1), Page(SITE + "/x", SITE, 2**63)))
    batch = [found] if value == 2**63 else [SaveFound((page(1),)), broken]
    with pytest.raises((StoreError, OverflowError, TypeError)):
        store.commit(batch, {"pages.jsonl": 5})
    assert len(store.load().seen) == 0
    assert store.committed_lengths() == {}
    store.commit([SaveFound((page(1),))], {})
    assert len(store.load().waiting) == 1


def test_a_store_that_was_removed_is_noticed_before_it_is_too_late(store, path):
    path.rename(path.with_name("elsewhere"))
    with pytest.raises(StoreError, match="removed or replaced during the crawl"):
        store.commit([SaveFound((page(1),))], {})


def test_another_program_that_holds_the_database_is_a_clear_error(store, path, monkeypatch):
    store._connection.execute("PRAGMA busy_timeout = 20")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreError, match="another program has locked it"):
            store.commit([SaveFound((page(1),))], {})
    finally:
        other.execute("ROLLBACK")
        other.close()
    store.commit([SaveFound((page(1),))], {})


def test_a_damaged_database_is_a_clear_error(store, path):
    for start in range(0, 20_000, 500):
        store.commit([SaveFound(tuple(map(page, range(start, start + 500))))], {})
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))
    with pytest.raises(StoreError, match="damaged"), closing(SqliteStore(path)) as damaged:
        damaged.load()


def test_closing_twice_does_no_harm(store):
    store.close()
    store.close()


# -- readers ------------------------------------------------------------------------------------------------


def test_a_reader_sees_commits_during_the_crawl(store, path):
    store.commit([SaveFound((page(1), page(2)))], {})
    with RunReader(path.parent) as reader:
        assert reader.totals().waiting == 2
        store.commit([settled(page(1))], {})
        assert reader.totals().waiting == 1
        assert reader.totals().done == 1


def test_a_reader_in_the_middle_of_a_list_does_not_stop_the_crawl(store, path):
    store.commit([settled(page(number)) for number in range(12_000)], {})
    with RunReader(path) as reader:
        pages = reader.pages()
        next(pages)
        store.commit([settled(page(12_000))], {})
        # No transaction stays open between slices, so the log can be folded in and restarted.
        busy, *_ = store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert busy == 0
        assert sum(1 for _ in pages) == 12_000


def test_a_reader_cannot_write(store, path):
    with RunReader(path) as reader, pytest.raises(StoreError, match="no permission"):
        reader._all("DELETE FROM site")


def test_a_reader_of_nothing_says_what_is_wrong(tmp_path):
    with pytest.raises(StoreError, match="not a run folder"):
        RunReader(tmp_path)
    (tmp_path / "crawl.sqlite").touch()
    with pytest.raises(StoreError, match="before it started"):
        RunReader(tmp_path)


def test_a_reader_names_what_it_was_given_instead(tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("hello")
    with pytest.raises(StoreError, match=r"notes\.txt: a file, .* give the run folder"):
        RunReader(notes)
    with pytest.raises(StoreError, match="there is no such folder"):
        RunReader(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="File name too long"):
        RunReader(tmp_path / ("x" * 300))


def test_a_finished_run_is_one_plain_file_and_reading_leaves_nothing_behind(store, path):
    store.commit([settled(page(1))], {})
    store.close()
    names = {"crawl.sqlite", "crawl.sqlite-lock"}
    assert {each.name for each in path.parent.iterdir()} == names
    before = path.read_bytes()
    with RunReader(path) as reader:
        assert reader.totals().done == 1
        assert {each.name for each in path.parent.iterdir()} == names
    assert path.read_bytes() == before


def test_a_reader_does_not_keep_a_crawl_from_ending_or_starting(store, path):
    store.commit([settled(page(number)) for number in range(6000)], {})
    with RunReader(path) as reader:
        pages = reader.pages()
        next(pages)
        store.close()
        with closing(SqliteStore(path)) as again:
            again.commit([settled(page(6000))], {})
            assert sum(1 for _ in pages) == 6000


def test_the_table_of_sites_has_what_status_shows(store, path):
    other = "http://other.example"
    store.commit([SaveTasks((Task(SITE, deadline_at=3600.0), Task("http://idle.example")))], {})
    store.commit([SaveFound((page(1), page(2), page(3), page(4), page(5, other)))], {})
    store.commit(
        [
            settled(page(1), at=60.0),
            settled(page(2), PageState.FAILED, Kind.MISSING, at=70.0),
            settled(page(3), PageState.EXCLUDED, Kind.ROBOTS_DENIED),
            SaveSite(SITE, 75.0, 0, ended_at=None),
        ],
        {},
    )
    with RunReader(path) as reader:
        first, idle, second = reader.sites()
    assert (first.site, first.done, first.failed, first.excluded, first.waiting) == (SITE, 1, 1, 1, 1)
    assert (first.wire_bytes, first.content_bytes) == (3300, 3000)
    assert (first.deadline_at, first.started_at, first.ended_at, first.free_at) == (3600.0, 59.5, None, 75.0)
    assert (idle.site, idle.waiting, idle.deadline_at) == ("http://idle.example", 0, None)
    assert (second.site, second.waiting, second.started_at) == (other, 1, None)


def test_exclusions_are_counted_by_their_reason(store, path):
    for number, rule in enumerate(["host", "host", "too deep"]):
        outcome = Outcome(Kind.OUT_OF_SCOPE, detail=rule)
        store.commit([SaveSettled(page(number), outcome, PageState.EXCLUDED, 0, 1.0)], {})
    store.commit([settled(page(9), PageState.WAITING, Kind.RESET, detail="varied prose")], {})
    with RunReader(path) as reader:
        assert reader.outcomes() == [
            OutcomeCount("excluded", "out-of-scope", "host", 2),
            OutcomeCount("excluded", "out-of-scope", "too deep", 1),
            OutcomeCount("waiting", "reset", "", 1),
        ]
        assert reader.outcomes("http://nobody.example") == []
        assert len(reader.outcomes(SITE)) == 3


def test_rate_samples_come_with_the_next_commit(store, path):
    store.record_sample(1.0, 1000, 125_000.0)
    store.record_sample(2.0, 3000, math.inf)
    with RunReader(path) as reader:
        assert list(reader.samples()) == []
        store.commit([], {})
        first, second = reader.samples()
        assert (first, second) == (
            Sample(1.0, 1000, 125_000.0, number=1),
            Sample(2.0, 3000, math.inf, number=2),
        )
        assert list(reader.samples(after=first.number)) == [second]
        store.commit([], {})
        assert len(list(reader.samples())) == 2


def test_the_job_is_kept_as_it_was_given(store, path):
    with RunReader(path) as reader:
        assert reader.job == {"bandwidth": "1 MB/s"}
        assert reader.started_at == 50.0


def test_settled_pages_are_read_back_whole(store, path):
    capture = Capture("archive/a.warc.gz", 10, 20)
    saving = settled(page(1, depth=4), digest="sha1:CONTENT", capture=capture, at=200.0, attempt=2)
    notes = {("archive/a.warc.gz", 10): CaptureNote(199.25, "sha1:PAYLOAD", "response")}
    store.commit([saving], {"archive/a.warc.gz": 30}, notes)
    with RunReader(path) as reader:
        (row,) = reader.pages()
        assert list(reader.captures()) == [row]
    assert (row.url, row.site, row.key, row.depth) == (page(1).url, SITE, page(1).key, 4)
    assert (row.state, row.kind, row.status, row.attempt) == ("done", "fetched", 200, 2)
    assert (row.settled_at, row.fetched_at, row.duration_s) == (200.0, 199.25, 0.5)
    assert (row.warc_file, row.warc_offset, row.warc_length) == ("archive/a.warc.gz", 10, 20)
    assert (row.digest, row.payload_digest, row.record_type) == ("sha1:CONTENT", "sha1:PAYLOAD", "response")
    assert store.payload_digest_of("sha1:CONTENT") == "sha1:PAYLOAD"
    assert store.find_digest("sha1:CONTENT").captured_at == 199.25


def test_a_revisit_is_no_original(store):
    notes = {("archive/a", 0): CaptureNote(1.0, "sha1:P", "revisit")}
    store.commit([settled(page(1), digest="sha1:D", capture=Capture("archive/a", 0, 1))], {}, notes)
    assert store.find_digest("sha1:D") is None


def test_references_are_counted_from_the_links(store, path):
    a, b, c, unknown = (page(number) for number in range(4))
    store.commit([SaveFound((a, b, c))], {})
    store.commit([settled(a, links=(b, c, c)), settled(b, links=(a, c, unknown))], {})
    with RunSums(path.parent) as sums:
        found = {each.url: each.links for each in LinkGraph(sums).most_referenced(10)}
        assert found == {a.url: 1, b.url: 1, c.url: 3}
        assert [sums.url_of(key) for key in (a.key, c.key, unknown.key)] == [a.url, c.url, None]


def test_links_of_a_page_fetched_twice_count_once_and_as_they_are_now(store, path):
    a, b, c = (page(number) for number in range(3))
    store.commit([SaveFound((a, b, c))], {})
    store.commit([settled(a, links=(b, c)), settled(b, links=(a,))], {})
    store.commit([SaveAgain((a, b), Instant(150.0))], {})
    store.commit([settled(a, links=(b,), at=200.0)], {})
    with RunSums(path.parent) as sums:
        assert {found.url: found.links for found in LinkGraph(sums).most_referenced(9)} == {
            a.url: 1,
            b.url: 1,
        }


# -- size and threads ---------------------------------------------------------------------------------------


def test_seen_keys_are_loaded_as_eight_bytes_each(store):
    keys = np.arange(50_000) * 104_729 - 10**9
    store.commit([SaveFound(tuple(Page(f"{SITE}/{key}", SITE, key) for key in keys.tolist()))], {})
    seen = store.load().seen
    assert isinstance(seen, np.ndarray)
    assert seen.dtype == np.int64
    assert np.array_equal(np.sort(seen), np.sort(keys))


def test_commits_and_questions_may_come_from_different_threads(store):
    failures = []

    def commit():
        try:
            for number in range(40):
                store.commit([settled(page(number), digest=f"sha1:{number}", capture=Capture("a", 0, 1))], {})
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    while thread.is_alive():
        store.find_digest("sha1:1")
    thread.join()
    assert failures == []
    assert store.find_digest("sha1:39").url == page(39).url


def test_a_job_with_values_of_its_own_is_kept_as_text(path):
    store = SqliteStore(path)
    store.create(1.0, {"folder": path, "sizes": [1, 2.5, None]})
    store.close()
    with RunReader(path) as reader:
        assert json.dumps(reader.job) == json.dumps({"folder": str(path), "sizes": [1, 2.5, None]})
