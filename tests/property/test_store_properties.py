"""Whatever is committed, in whatever batches and with whatever restarts, SQLite says what memory says."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.memory_store import MemoryStore

from headway.model.command import PageState, SaveFound, SaveSettled, SaveSite, SaveTasks
from headway.model.page import Capture, Kind, Outcome, Page, Task
from headway.store.reader import RunReader
from headway.store.sqlite import SqliteStore

MEMORY_DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None
SITES = ("http://a.example", "https://b.example:8443", "http://[::1]:80")
PAGES = [
    Page(f"{site}/{number}", site, number * 1009 - 7 + place, depth=number % 3)
    for place, site in enumerate(SITES)
    for number in range(6)
]
instants = st.floats(0, 2e9, allow_nan=False)
pages = st.sampled_from(PAGES)
outcomes = st.builds(
    Outcome,
    kind=st.sampled_from([Kind.FETCHED, Kind.DUPLICATE, Kind.RESET, Kind.OUT_OF_SCOPE, Kind.LIMIT]),
    status=st.sampled_from([0, 200, 404]),
    wire_bytes=st.integers(0, 10**12),
    duration_s=st.sampled_from([0.0, 0.25, 3.0]),
    content_bytes=st.integers(0, 10**12),
    digest=st.sampled_from(["", "sha1:A", "sha1:B"]),
    detail=st.sampled_from(["", "host", "too deep"]),
)
savings = st.one_of(
    st.builds(SaveFound, st.lists(pages, max_size=5).map(tuple)),
    st.builds(
        SaveSettled,
        page=pages,
        outcome=outcomes,
        state=st.sampled_from([PageState.WAITING, PageState.DONE, PageState.FAILED, PageState.EXCLUDED]),
        attempt=st.integers(0, 4),
        at=instants,
        retry_at=st.none() | instants,
        capture=st.none()
        | st.builds(Capture, st.sampled_from(["archive/a", "archive/b"]), st.integers(0, 9), st.just(5)),
        links=st.lists(pages, max_size=4).map(tuple),
    ),
    st.builds(
        SaveSite,
        site=st.sampled_from(SITES),
        free_at=instants,
        failures_in_a_row=st.integers(0, 9),
        robots_text=st.none() | st.text(max_size=5),
        robots_expires_at=st.none() | instants,
        ended_at=st.none() | instants,
    ),
    st.builds(SaveTasks, st.lists(st.builds(Task, st.sampled_from(SITES)), max_size=2).map(tuple)),
)
batches = st.lists(
    st.tuples(
        st.lists(savings, max_size=8),
        st.dictionaries(st.sampled_from(["archive/a", "pages.jsonl"]), st.integers(0, 2**40)),
        st.booleans(),
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(batches)
def test_sqlite_and_memory_agree_after_any_batches_and_restarts(batches):
    memory = MemoryStore()
    memory.create(1.5, {})
    with TemporaryDirectory(dir=MEMORY_DISK) as folder:
        path = f"{folder}/crawl.sqlite"
        store = SqliteStore(path)
        try:
            store.create(1.5, {})
            for batch, lengths, restart in batches:
                memory.commit(batch, lengths)
                store.commit(batch, lengths)
                if restart:
                    store.close()
                    store = SqliteStore(path)
            _check_same(store, memory)
            with RunReader(path) as reader:
                _check_reader(reader, store)
        finally:
            store.close()


def _check_same(store, memory):
    ours, theirs = store.load(), memory.load()
    assert ours.tasks == theirs.tasks
    assert sorted(ours.sites, key=str) == sorted(theirs.sites, key=str)
    assert _places(ours) == _places(theirs)
    assert isinstance(ours.seen, np.ndarray)
    assert sorted(ours.seen.tolist()) == sorted(theirs.seen)
    assert store.committed_lengths() == memory.committed_lengths()
    for digest in ("sha1:A", "sha1:B", "sha1:C"):
        assert store.find_digest(digest) == memory.find_digest(digest)


def _places(snapshot):
    return {record.page.key: record for record in snapshot.waiting}


def _check_reader(reader, store):
    snapshot, totals = store.load(), reader.totals()
    settled = {page.key: page for page in reader.pages()}.values()
    assert totals.waiting == len(snapshot.waiting) == sum(row.waiting for row in reader.sites())
    assert totals.known == len(snapshot.seen)
    assert totals.done == sum(page.state == "done" and page.kind != "out-of-scope" for page in settled)
    assert totals.failed == sum(page.state == "failed" and page.kind != "out-of-scope" for page in settled)
    assert {page.key for page in settled} <= set(snapshot.seen.tolist())
    assert {page.url for page in settled} <= {page.url for page in PAGES}
