"""The run folder: what it takes, what it refuses, and that saving is one act."""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from warcio.cli import main as warcio_main

from headway.errors import StoreError
from headway.model.command import PageState, SaveFound, SaveSettled, SaveSite
from headway.model.page import Capture, Kind, Outcome, Page
from headway.ports import Response
from headway.store.reader import RunReader
from headway.store.repair import cut_back
from headway.store.run_folder import RunFolder

SITE = "http://www.example.org"
NOW = 1_763_251_446.5


def page(number):
    return Page(f"{SITE}/{number}", SITE, number + 1, depth=2)


def capture_of(folder, number, body=b"hello"):
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    response = Response(
        Kind.FETCHED,
        page(number).url,
        NOW + number,
        0.25,
        200,
        request_head=b"GET / HTTP/1.1\r\n\r\n",
        head=head,
        payload=body,
    )
    return folder.archive.write(response, digest=f"sha1:{body!r}")


def settled(number, capture=None, state=PageState.DONE, kind=Kind.FETCHED, **outcome):
    values = {
        "status": 200,
        "duration_s": 0.25,
        "content_type": "text/html; charset=utf-8",
        "content_bytes": 5,
    }
    return SaveSettled(
        page(number), Outcome(kind, **(values | outcome)), state, 0, NOW + number + 0.3, capture=capture
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run"


def open_folder(path):
    return RunFolder.open(path, {"bandwidth": "1 MB/s"}, NOW)


def test_a_new_folder_gets_the_whole_layout(path):
    with open_folder(path) as folder:
        assert folder.snapshot is None
    names = {str(each.relative_to(path)) for each in path.rglob("*")}
    assert {
        "crawl.sqlite",
        "archive",
        "indexes",
        "report",
        "pages.jsonl",
        "crawl.log",
        "decisions.jsonl",
    } <= names
    for each in path.rglob("*"):
        allowed = 0o755 if each.is_dir() else 0o644
        assert stat.S_IMODE(each.stat().st_mode) & ~allowed == 0, each


def test_an_empty_folder_is_taken(path):
    path.mkdir()
    open_folder(path).close()


def test_the_same_folder_again_takes_the_crawl_up(path):
    with open_folder(path) as folder:
        folder.save([SaveFound((page(1), page(2)))])
        folder.save([settled(1, capture_of(folder, 1))])
    with RunFolder.open(path, {"other": "job"}, NOW + 100) as folder:
        assert folder.snapshot.started_at == NOW
        assert [record.page for record in folder.snapshot.waiting] == [page(2)]
    with RunReader(path) as reader:
        assert reader.job == {"bandwidth": "1 MB/s"}


def test_a_folder_with_other_files_is_refused_and_untouched(path):
    path.mkdir()
    (path / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match=r"not a run folder .* use a new or empty folder"):
        open_folder(path)
    assert [each.name for each in path.iterdir()] == ["thesis.tex"]


def test_a_path_under_a_file_is_reported(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(StoreError, match=r"notes\.txt/run: a part of this path is a file"):
        RunFolder.open(tmp_path / "notes.txt" / "run", {}, 0.0)


def test_a_file_in_the_place_of_the_folder_is_refused(path):
    path.write_text("precious")
    with pytest.raises(StoreError, match="a file, not a folder"):
        open_folder(path)
    with pytest.raises(StoreError):
        open_folder(path / "below")
    assert path.read_text() == "precious"


def test_a_folder_in_use_is_refused_and_its_files_are_not_cut(path):
    with open_folder(path) as folder:
        folder.save([settled(1, capture_of(folder, 1))])
        capture_of(folder, 2)
        lengths = folder.archive.flush()
        with pytest.raises(StoreError, match="is crawling into this folder"):
            open_folder(path)
        for name, length_bytes in lengths.items():
            assert (path / name).stat().st_size == length_bytes


def test_a_folder_of_another_version_is_refused_and_not_cut(path):
    with open_folder(path) as folder:
        folder.save([settled(1, capture_of(folder, 1))])
        folder.store._connection.execute("PRAGMA user_version = 99")
    with (path / "crawl.log").open("a") as file:
        file.write("later\n")
    with pytest.raises(StoreError, match="version 99"):
        open_folder(path)
    assert (path / "crawl.log").read_text().endswith("later\n")


@contextmanager
def as_nobody():
    """Root may write anywhere, so it is somebody else for a while."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_folder_without_permission_is_refused():
    # Not pytest's, into which nobody else may look.
    with TemporaryDirectory() as there:
        Path(there).chmod(0o555)
        try:
            with as_nobody(), pytest.raises(StoreError, match="no permission"):
                open_folder(Path(there) / "run")
        finally:
            Path(there).chmod(0o700)


# -- saving -------------------------------------------------------------------------------------------------


def test_what_was_not_saved_is_gone_after_a_restart(path):
    folder = open_folder(path)
    folder.save([SaveFound((page(1), page(2))), settled(1, capture_of(folder, 1))])
    kept = {each: each.read_bytes() for each in path.rglob("*") if each.suffix in {".gz", ".jsonl", ".log"}}
    capture_of(folder, 2)
    folder.decisions.append({"decision": "fetch"})
    folder.log.append_text("a line of a page that the store never heard of")
    folder.archive.flush(), folder.log.flush(), folder.decisions.flush()
    _drop(folder)
    with open_folder(path) as folder:
        assert [record.page for record in folder.snapshot.waiting] == [page(2)]
    assert {each: each.read_bytes() for each in kept} == kept
    assert len(list((path / "archive").iterdir())) == 1


def test_files_that_the_store_does_not_know_are_removed_but_not_those_of_others(path):
    folder = open_folder(path)
    capture_of(folder, 1)
    folder.archive.flush()
    _drop(folder)
    (path / "archive" / "mine.warc.gz").write_bytes(b"precious")
    open_folder(path).close()
    assert [each.name for each in (path / "archive").iterdir()] == ["mine.warc.gz"]


def test_a_failed_save_leaves_nothing_and_can_be_repeated(path, monkeypatch):
    batch = [SaveFound((page(1), page(2))), settled(1)]
    with open_folder(path) as folder:
        batch[1] = settled(1, capture_of(folder, 1))
        with monkeypatch.context() as broken:
            broken.setattr(folder.store, "_check_still_there", _refuse)
            with pytest.raises(StoreError):
                folder.save(batch)
        assert (path / "pages.jsonl").read_bytes() == b""
        assert folder.store.load().waiting == []
        folder.save(batch)
        assert len((path / "pages.jsonl").read_text().splitlines()) == 1
        assert folder.store.find_digest("") is None
    with RunReader(path) as reader:
        (row,) = reader.captures()
    assert (row.record_type, row.fetched_at) == ("response", NOW + 1)


def test_closing_saves_what_has_no_rows(path):
    with open_folder(path) as folder:
        folder.decisions.append({"decision": "finish"})
        capture_of(folder, 1)
    with open_folder(path):
        pass
    assert (path / "decisions.jsonl").read_text() == '{"decision":"finish"}\n'
    (file,) = (path / "archive").iterdir()
    with pytest.raises(SystemExit) as exit_info:
        warcio_main(["check", str(file)])
    assert exit_info.value.code == 0


def test_a_second_look_at_equal_content_is_kept_as_a_revisit(path):
    with open_folder(path) as folder:
        folder.save([settled(1, capture_of(folder, 1, b"same"), digest="sha1:b'same'")])
        original = folder.store.find_digest("sha1:b'same'")
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
        again = Response(Kind.FETCHED, page(2).url, NOW + 9, 0.1, 200, head=head, payload=b"same")
        capture = folder.archive.write(again, digest="sha1:b'same'", revisit_of=original)
        folder.save([settled(2, capture, kind=Kind.DUPLICATE, digest="sha1:b'same'")])
    with RunReader(path) as reader:
        assert [row.record_type for row in reader.captures()] == ["response", "revisit"]


# -- cutting back -------------------------------------------------------------------------------------------


def test_a_file_shorter_than_committed_is_a_clear_error_and_nothing_is_cut(tmp_path):
    (tmp_path / "archive").mkdir()
    (tmp_path / "a").write_bytes(b"12345")
    with pytest.raises(StoreError, match=r"a: 5 bytes are missing that the store refers to"):
        cut_back(tmp_path, {"a": 10})
    assert (tmp_path / "a").read_bytes() == b"12345"
    with pytest.raises(StoreError, match="10 bytes are missing"):
        cut_back(tmp_path, {"gone": 10})
    cut_back(tmp_path, {"gone": 0})


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "archive/../../outside", ""])
def test_no_name_in_the_database_leads_out_of_the_folder(tmp_path, name):
    (tmp_path / "outside").write_bytes(b"precious")
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(StoreError, match="outside the folder"):
        cut_back(run, {name: 0})
    assert (tmp_path / "outside").read_bytes() == b"precious"


# -- lines --------------------------------------------------------------------------------------------------


def test_the_log_has_a_line_for_each_attempt_with_fixed_columns(path):
    with open_folder(path) as folder:
        folder.save(
            [
                settled(1, capture_of(folder, 1), digest="sha1:X"),
                settled(2, None, PageState.WAITING, Kind.RESET, status=0, detail="reset\nby peer"),
                settled(3, None, PageState.EXCLUDED, Kind.ROBOTS_DENIED, duration_s=0.0),
                SaveSite(SITE, NOW, 0),
            ]
        )
    first, second = (path / "crawl.log").read_text().splitlines()
    columns = re.split(r" +", first, maxsplit=10)
    assert columns == [
        "2025-11-16T00:04:07.800000Z", "200", "5", "http://www.example.org/1", "2", "text/html",
        "2025-11-16T00:04:07.500000Z+0.250", "sha1:X", "done", "fetched", "-",
    ]  # fmt: skip
    assert second.endswith(" - waiting reset reset by peer")


def test_decisions_are_lines_of_json(path):
    with open_folder(path) as folder:
        folder.decisions.append({"at": 1.5, "decision": "fetch", "url": "http://é/\n"})
        folder.save(())
    (line,) = (path / "decisions.jsonl").read_text().splitlines()
    assert json.loads(line) == {"at": 1.5, "decision": "fetch", "url": "http://é/\n"}


def _refuse():
    raise StoreError("no")


def _drop(folder):
    """Let go of a folder as a killed process does: no last save."""
    for part in (folder.archive, folder.pages, folder.log, folder.decisions, folder.store):
        part.close()


def test_captures_without_a_page_do_not_pile_up_in_memory(path, monkeypatch):
    monkeypatch.setattr("headway.archive.warc._NOTES_KEPT", 3)
    with open_folder(path) as folder:
        captures = [capture_of(folder, number) for number in range(6)]
        assert len(folder.archive.notes_of(captures)) == 3
        folder.save([settled(5, captures[5])])
        assert len(folder.archive.notes_of(captures)) == 2
        assert isinstance(captures[0], Capture)
