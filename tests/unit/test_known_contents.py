from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headway.model.command import PageState, SaveFound, SaveSettled
from headway.model.page import Capture, Kind, Outcome
from headway.pages.url import page_of
from headway.store.recrawl import KnownContents
from headway.store.sqlite import SqliteStore
from headway.units import Instant, Seconds

FINGERPRINTS = st.sets(st.integers(0, 2**63 - 1), max_size=50)


@given(FINGERPRINTS, FINGERPRINTS)
def test_never_says_no_to_what_was_added(first: set[int], later: set[int]) -> None:
    known = KnownContents(first)
    for fingerprint in later:
        known.add(fingerprint)
    assert all(known.may_have(fingerprint) for fingerprint in first | later)


def test_says_no_to_nearly_all_others() -> None:
    known = KnownContents(number * 0x9E3779B97F4A7C15 % 2**63 for number in range(1, 1000))
    others = [number * 0x9E3779B97F4A7C15 % 2**63 for number in range(1000, 11_000)]
    assert sum(map(known.may_have, others)) < 50


def test_a_content_is_found_in_the_commit_after_and_in_the_next_run(tmp_path: Path) -> None:
    page = page_of("http://h.example/x")
    assert page is not None
    outcome = Outcome(Kind.FETCHED, 200, 10, Seconds(0.1), "text/html", 5, "sha256:ab")
    capture = Capture("archive/a.warc.gz", 0, 10)
    with closing(SqliteStore(tmp_path / "crawl.sqlite")) as store:
        store.create(Instant(0.0), {})
        assert store.find_digest("sha256:ab") is None
        settled = SaveSettled(page, outcome, PageState.DONE, 0, Instant(1.0), capture=capture)
        store.commit([SaveFound((page,)), settled], {})
        found = store.find_digest("sha256:ab")
        assert found is not None
        assert found.url == page.url
    with closing(SqliteStore(tmp_path / "crawl.sqlite")) as store:
        assert store.find_digest("sha256:ab") == found
        assert store.find_digest("sha256:cd") is None


def test_another_who_has_the_file_sees_what_is_added_before_and_after() -> None:
    known = KnownContents([7])
    fd = known.share()
    try:
        others = KnownContents.shared(fd)
    finally:
        os.close(fd)
    known.add(70)
    assert others.may_have(7)
    assert others.may_have(70)
    assert not others.may_have(700)
