"""The CDXJ index: keys as pywb reckons them, sorted, whole or not there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.archive.records import cdx_timestamp, uri
from headway.archive.warc import surt
from headway.errors import StoreError
from headway.model.command import PageState, SaveSettled
from headway.model.page import Kind, Outcome, Page
from headway.ports import Response
from headway.store import run_folder
from headway.store.rows import cdxj_lines, url_of
from headway.store.run_folder import RunFolder, write_index

VECTORS = [
    line.split("\t") for line in (Path(__file__).parent / "surt_vectors.tsv").read_text().splitlines() if line
]
SITE = "http://www.example.org"
NOW = 1_763_251_446.5


@pytest.mark.parametrize(("url", "key"), VECTORS)
def test_keys_are_equal_to_those_of_pywb(url, key):
    assert surt(url) == key


def capture(folder, url, body, number, kind=Kind.FETCHED):
    digest = f"x:{body!r}"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
    response = Response(Kind.FETCHED, url, NOW + number, 0.5, 200, head=head, payload=body)
    original = folder.store.find_digest(digest)
    where = folder.archive.write(response, digest=digest, revisit_of=original)
    outcome = Outcome(kind, 200, 10, 0.5, "Text/HTML; charset=utf-8", len(body), digest)
    page = Page(url, SITE, number)
    folder.save([SaveSettled(page, outcome, PageState.DONE, 0, NOW + number + 1, capture=where)])
    return where


@pytest.fixture
def folder(tmp_path):
    with RunFolder.open(tmp_path / "run", {}, NOW) as folder:
        yield folder


def lines_of(path):
    return [tuple(line.split(" ", 2)) for line in path.read_text().splitlines()]


def test_a_line_has_what_pywb_needs(folder):
    where = capture(folder, SITE + "/A/?y=2&x=1", b"body", 0)
    ((key, timestamp, fields),) = lines_of(folder.write_index())
    assert key == "org,example)/a?x=1&y=2"
    assert timestamp == "20251116000406"
    assert json.loads(fields) == {
        "url": SITE + "/A/?y=2&x=1",
        "mime": "text/html",
        "status": "200",
        "digest": folder.store.payload_digest_of("x:b'body'").removeprefix("sha1:"),
        "length": str(where.warc_length),
        "offset": str(where.warc_offset),
        "filename": where.warc_file.removeprefix("archive/"),
    }


def test_a_revisit_is_marked_and_has_its_originals_digest(folder):
    capture(folder, SITE + "/1", b"same", 0)
    capture(folder, SITE + "/2", b"same", 1, Kind.DUPLICATE)
    first, second = (json.loads(fields) for _, _, fields in lines_of(folder.write_index()))
    assert (first["mime"], second["mime"]) == ("text/html", "warc/revisit")
    assert first["digest"] == second["digest"]


def test_lines_are_sorted_by_their_octets_in_one_run_or_many(folder, monkeypatch):
    for number in range(25):
        capture(folder, f"{SITE}/{number * 7 % 25}?é={number}", b"%d" % number, number)
    whole = folder.write_index().read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) == 25
    assert lines == sorted(lines)
    assert whole.isascii()
    for run_lines in (1, 4, 25):
        assert write_index(folder.path, run_lines=run_lines).read_bytes() == whole
    monkeypatch.setattr("headway.store.run_folder._MOST_RUNS", 3)
    assert write_index(folder.path, run_lines=2).read_bytes() == whole


def test_a_page_without_a_capture_is_not_in_the_index(folder):
    outcome = Outcome(Kind.FETCHED, 200)
    folder.save([SaveSettled(Page(SITE + "/", SITE, 1), outcome, PageState.DONE, 0, NOW)])
    assert folder.write_index().read_bytes() == b""


def test_an_index_that_fails_leaves_the_old_one_and_no_litter(folder, monkeypatch):
    capture(folder, SITE + "/1", b"1", 0)
    old = folder.write_index().read_bytes()
    capture(folder, SITE + "/2", b"2", 1)

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder.os, "fsync", fail)
    with pytest.raises(StoreError, match="the disk is full"):
        folder.write_index()
    index = folder.path / "indexes" / "index.cdxj"
    assert index.read_bytes() == old
    assert os.listdir(index.parent) == ["index.cdxj"]  # noqa: PTH208 - the names alone


def test_odd_urls_keep_to_their_line(folder):
    for number, tail in enumerate(["/a b", "/\n", "/\u2028", '/"', "/\\", "/é", "/\x00", "/{}"]):
        capture(folder, SITE + tail, b"%d" % number, number)
    lines = lines_of(folder.write_index())
    assert len(lines) == 8
    for key, timestamp, fields in lines:
        assert key.startswith("org,example)/")
        assert len(timestamp) == 14
        assert json.loads(fields)["url"].startswith(SITE)


@given(
    path=st.one_of(
        st.from_regex(r"(/[A-Za-z0-9_.-]{1,6}){1,4}/?", fullmatch=True),
        st.text(max_size=20).map(lambda text: "/" + text),
        st.just("=http://elsewhere.example/ä?b=%20"),
    ),
    content_type=st.one_of(st.just("Text/HTML; charset=x"), st.text(max_size=10)),
    status=st.sampled_from([0, 200]),
)
def test_a_line_has_the_key_and_the_fields_of_its_capture(path, content_type, status):
    site = "http://www.example.org:8080"
    row = (1, site, path, NOW, content_type, status, "sha1:ABC", 10, 20, "archive/a.warc.gz", "response")
    (line,) = cdxj_lines([row])
    assert line.endswith(b"}\n")
    key, timestamp, fields = line[:-1].decode().split(" ", 2)
    url = uri(url_of(path, site))
    assert key == surt(url)
    assert timestamp == cdx_timestamp(NOW)
    mime = content_type.partition(";")[0].strip().lower() or "unk"
    names = ("url", "mime", "status", "digest", "length", "offset", "filename")
    values = (url, mime, str(status) if status else "-", "ABC", "10", "20", "a.warc.gz")
    assert list(json.loads(fields).items()) == list(zip(names, values, strict=True))
