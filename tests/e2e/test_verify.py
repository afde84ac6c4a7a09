"""Damage of ten kinds: `headway verify` names it, `--repair` and the next crawl make up for it, and
`headway rebuild` makes the database again."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from headway.demoweb import QUICK, Served, ServedProcess, design_web
from headway.runtime.rebuild import rebuild
from headway.store.reader import RunReader
from headway.store.verify import Report, verify


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with ServedProcess(design_web(seed=21, scale=0.25, roster=("plain", "plain"), tempo=QUICK)) as served:
        yield served


def crawl(served: Served, run: Path) -> None:
    command = [sys.executable, "-m", "headway", "crawl", *served.urls, "--allow-private", "--interval", "1ms"]
    subprocess.run([*command, "-q", "-o", str(run)], check=True, timeout=60)


@pytest.fixture(scope="module")
def whole(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("whole") / "run"
    crawl(served, run)
    return run


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def archive(run: Path) -> Path:
    (path,) = (run / "archive").glob("*.warc.gz")
    return path


def write(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def execute(run: Path, statement: str) -> None:
    connection = sqlite3.connect(run / "crawl.sqlite")
    connection.execute(statement)
    connection.commit()
    connection.close()


def cut(path: Path, part: float) -> None:
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * part))


def edit(path: Path, change: Callable[[list[bytes]], None]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    change(lines)
    path.write_bytes(b"".join(lines))


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "4 KB of zeros in the archive": ("record", lambda run: write(archive(run), 20_000, bytes(4096))),
    "one bit of a record": ("record", lambda run: write(archive(run), 5_000, b"\x55")),
    "an archive that is cut off": ("file", lambda run: cut(archive(run), 0.7)),
    "an archive that is gone": ("file", lambda run: archive(run).unlink()),
    "a line of pages.jsonl that is gone": ("line", lambda run: edit(run / "pages.jsonl", lambda x: x.pop(3))),
    "a line of pages.jsonl that is changed": (
        "line",
        lambda run: edit(run / "pages.jsonl", lambda x: x.__setitem__(2, x[2].replace(b"200", b"201"))),
    ),
    "garbage in crawl.log": ("log line", lambda run: write(run / "crawl.log", 300, b"\xff\n\xfe\n")),
    "an index line that is changed": (
        "index",
        lambda run: edit(run / "indexes/index.cdxj", lambda x: x.__setitem__(1, x[0])),
    ),
    "a row that names another place": (
        "record",
        lambda run: execute(run, "UPDATE page SET warc_offset = warc_offset + 1 WHERE id = 5"),
    ),
    "a page that is no longer known": (
        "row",
        lambda run: execute(run, "DELETE FROM seen WHERE page_id = (SELECT max(id) FROM page)"),
    ),
    "a sum that is wrong": ("sum", lambda run: execute(run, "UPDATE site SET done = done + 5 WHERE id = 1")),
}


def pages_of(run: Path) -> list[tuple[str, str]]:
    with RunReader(run) as reader:
        return sorted({page.url: (page.url, page.state) for page in reader.pages()}.values())


def test_a_whole_run_has_nothing_to_be_named(run: Path) -> None:
    report = verify(run)
    assert report.findings == []
    assert report.pages == len(pages_of(run))
    assert report.records > 2 * report.pages


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_and_made_up_for(name: str, run: Path, served: Served) -> None:
    kind, damage = DAMAGE[name]
    before = pages_of(run)
    damage(run)
    report = verify(run)
    assert kind in report.counts or "capture" in report.counts, report
    repaired = verify(run, repairs=True)
    assert repaired.is_repaired
    crawl(served, run)  # fetches again what was lost
    after = verify(run)
    still = {found.kind for found in after.findings}
    # What is damaged in the middle of the archive stays there: nothing refers to it any more.
    assert still <= {"record"}, after
    assert len(after.findings) <= len(report.findings)
    assert pages_of(run) == before
    with RunReader(run) as reader:
        newest = {page.url: page for page in reader.pages()}
        assert all(page.warc_file for page in newest.values())


@pytest.mark.parametrize("how", ["gone", "damaged", "empty"])
def test_a_database_is_made_again_from_archive_and_logs(how: str, run: Path, served: Served) -> None:
    database, before = run / "crawl.sqlite", pages_of(run)
    lines = sorted((run / "pages.jsonl").read_bytes().splitlines())
    if how == "gone":
        database.unlink()
    elif how == "damaged":
        write(database, 0, bytes(20_000))
    else:
        database.write_bytes(b"")
    result = rebuild(run)
    assert result.skipped == []
    assert (result.pages, result.captures, result.waiting) == (len(before), len(before), 0)
    assert pages_of(run) == before
    assert verify(run).findings == []
    assert _without_time(lines) == _without_time(sorted((run / "pages.jsonl").read_bytes().splitlines()))
    crawl(served, run)
    assert pages_of(run) == before, "a crawl that was complete fetched pages again"


def _without_time(lines: list[bytes]) -> list[dict[str, object]]:
    """The log has durations in milliseconds."""
    return [{**json.loads(line), "duration_s": 0} for line in lines]


def test_pages_that_waited_wait_again_after_a_rebuild(served: Served, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "headway", "crawl", *served.urls, "--allow-private", "--interval", "1ms"]
    subprocess.run([*command, "--max-pages", "4", "-q", "-o", str(run)], check=True, timeout=60)
    (run / "crawl.sqlite").unlink()
    assert rebuild(run).waiting > 0
    crawl(served, run)
    assert {url for url, state in pages_of(run) if state == "done"} == set(served.expected())


def test_the_commands_say_what_they_found_by_their_exit_codes(run: Path) -> None:
    def headway(*args: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "headway", *args]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        return ended.returncode, ended.stdout, ended.stderr

    assert headway("verify", str(run))[0] == 0
    write(archive(run), 20_000, bytes(4096))
    code, said, _ = headway("verify", str(run), "--json")
    assert code == 1
    assert msgspec.json.decode(said, type=Report).counts["record"] >= 1
    code, _, said = headway("verify", str(run), "--repair")
    assert (code, "will be fetched again" in said) == (0, True)
    write(run / "crawl.sqlite", 0, bytes(20_000))
    code, _, said = headway("verify", str(run))
    assert (code, "headway rebuild" in said) == (5, True)
    code, _, said = headway("rebuild", str(run))
    assert (code, "settled pages" in said) == (0, True), said
