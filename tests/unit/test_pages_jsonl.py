"""`pages.jsonl`: one line a fetched page, with exactly the fields that are documented."""

from __future__ import annotations

import json

import pytest

from headway.model.command import PageState, SaveSettled
from headway.model.page import Capture, Kind, Outcome, Page
from headway.ports import CaptureNote
from headway.store.rows import page_line
from headway.store.run_folder import RunFolder

PAGE = Page("https://www.example.org/a?b=ü", "https://www.example.org", 5, depth=3)
FIELDS = [
    "url", "site", "status", "content_type", "bytes", "depth", "digest", "fetched_at", "duration_s",
    "warc_file", "warc_offset",
]  # fmt: skip


def settled(state=PageState.DONE, kind=Kind.FETCHED, capture=None):
    outcome = Outcome(
        kind, 200, 1300, 0.125, "text/html; charset=utf-8", 1200, "sha1:ABC", detail="not in the line"
    )
    return SaveSettled(PAGE, outcome, state, 0, 1_763_251_446.5, capture=capture)


def test_a_line_has_exactly_the_documented_fields(tmp_path):
    with RunFolder.open(tmp_path / "run", {}, 0.0) as folder:
        folder.save([settled(capture=Capture("archive/x.warc.gz", 77, 5))])
    (line,) = (tmp_path / "run" / "pages.jsonl").read_text().splitlines()
    values = json.loads(line)
    assert list(values) == FIELDS
    assert values == {
        "url": PAGE.url,
        "site": PAGE.site,
        "status": 200,
        "content_type": "text/html; charset=utf-8",
        "bytes": 1200,
        "depth": 3,
        "digest": "sha1:ABC",
        "fetched_at": "2025-11-16T00:04:06.375000Z",
        "duration_s": 0.125,
        "warc_file": "archive/x.warc.gz",
        "warc_offset": 77,
    }


def test_the_date_is_the_archives_when_it_is_known():
    note = CaptureNote(1_763_251_400.25, "sha1:P", "response")
    assert page_line(settled(), note).fetched_at == "2025-11-16T00:03:20.250000Z"


@pytest.mark.parametrize("kind", [Kind.FETCHED, Kind.REDIRECT, Kind.DUPLICATE])
def test_every_answer_that_was_kept_has_a_line(kind):
    assert page_line(settled(kind=kind), None) is not None


@pytest.mark.parametrize("state", [PageState.WAITING, PageState.FAILED, PageState.EXCLUDED])
def test_what_was_not_fetched_has_none(state):
    assert page_line(settled(state, Kind.TIMEOUT_IDLE), None) is None


def test_a_page_that_asked_not_to_be_kept_has_none():
    assert page_line(settled(kind=Kind.NOINDEX), None) is None


def test_a_page_without_a_capture_has_null_for_its_place():
    line = page_line(settled(), None)
    assert (line.warc_file, line.warc_offset) == (None, None)
