"""The pages of a run for other programs: every settled page once, in each format the same."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.runs import make_run

from headway.errors import HeadwayError, StoreError
from headway.view.export import export_pages


@pytest.fixture
def run(tmp_path: Path) -> Path:
    make_run(tmp_path / "run", ["http://a.test", "http://b.test"], pages=12, waiting=3)
    return tmp_path / "run"


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_json_lines_have_every_settled_page_whatever_came_of_it(run: Path, tmp_path: Path) -> None:
    assert export_pages(run, "jsonl", tmp_path / "out.jsonl") == 24
    pages = rows(tmp_path / "out.jsonl")
    assert {page["state"] for page in pages} == {"done", "failed"}
    assert len({page["url"] for page in pages}) == 24
    assert pages[0]["settled_at"] == "2023-11-14T22:13:21.000000Z"


def test_parquet_has_the_same_rows(run: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs the extra 'parquet'")
    export_pages(run, "jsonl", tmp_path / "out.jsonl")
    assert export_pages(run, "parquet", tmp_path / "out.parquet") == 24
    assert parquet.read_table(tmp_path / "out.parquet").to_pylist() == rows(tmp_path / "out.jsonl")


def test_the_index_is_that_of_the_archive(run: Path) -> None:
    assert export_pages(run, "cdxj", io.BytesIO()) == 0  # a run made up has no archive
    assert (run / "indexes" / "index.cdxj").exists()


def test_a_stream_gets_what_a_file_gets(run: Path, tmp_path: Path) -> None:
    stream = io.BytesIO()
    export_pages(run, "jsonl", stream)
    export_pages(run, "jsonl", tmp_path / "out.jsonl")
    assert stream.getvalue() == (tmp_path / "out.jsonl").read_bytes()


def test_what_goes_wrong_leaves_no_half_file(run: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such folder"):
        export_pages(tmp_path / "nowhere", "jsonl", tmp_path / "out.jsonl")
    (run / "crawl.sqlite").write_bytes(b"no database" * 500)
    (tmp_path / "old.jsonl").write_text("as before")
    with pytest.raises(StoreError):
        export_pages(run, "jsonl", tmp_path / "old.jsonl")
    assert (tmp_path / "old.jsonl").read_text() == "as before"
    assert {path.name for path in tmp_path.iterdir()} == {"run", "old.jsonl"}
    with pytest.raises(HeadwayError, match="no folder"):
        export_pages(run, "jsonl", tmp_path / "nowhere" / "out.jsonl")


def test_a_pipe_is_written_into_and_a_link_stays_one(run: Path, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link.jsonl"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "out.jsonl")
    descriptor = os.open(pipe, os.O_RDWR)  # nobody waits for the other end to be opened
    try:
        export_pages(run, "jsonl", pipe)
        export_pages(run, "jsonl", link)
        assert pipe.is_fifo()
        assert link.is_symlink()
        assert os.read(descriptor, 1_000_000) == (tmp_path / "out.jsonl").read_bytes()
    finally:
        os.close(descriptor)


def test_the_command_guesses_the_format_and_survives_a_reader_that_leaves(run: Path, tmp_path: Path) -> None:
    def headway(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headway", "export", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    told = headway(run, "-o", tmp_path / "pages.jsonl", "--json")
    assert json.loads(told.stdout)["rows"] == 24
    assert len(headway(run).stdout.splitlines()) == 24
    assert headway(run, "--json").returncode == 2
    pipe = f"{sys.executable} -m headway export {run} | head -n 1"
    gone = subprocess.run(pipe, shell=True, capture_output=True, text=True, check=False, env=os.environ)
    assert "Traceback" not in gone.stderr
