"""`headway simulate` of a job and of a run folder, from the command line: the engine, and nothing changed."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.demoweb import QUICK, Served, ServedProcess, design_web

JOB = """\
[crawl]
bandwidth = "2 Mbit/s"
interval = "20 ms"
pages_per_connection = 3
max_connections = 5
strategy = "depth"
allow_private = true
retry_penalty = "100 ms"
backoff = "50 ms"
max_backoff = "200 ms"
[crawl.timeouts]
first_byte = "1 s"
idle = "1 s"
"""


def headway(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headway", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def simulated(*args: object) -> Any:
    done = headway("simulate", *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with ServedProcess(design_web(seed=5, scale=0.05, tempo=QUICK)) as served:
        yield served


@pytest.fixture(scope="module")
def job(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("job") / "job.toml"
    sites = "".join(
        f'[[site]]\nurl = "{url}"\nmax_pages = 12\ndeadline = "{10 * (place + 1)} min"\n'
        for place, url in enumerate(served.urls)
    )
    path.write_text(JOB + sites)
    return path


@pytest.fixture(scope="module")
def run(job: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl of the job, and then all of it once more."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    for target in ((job, "-o", folder), ("--again", folder)):
        done = headway("crawl", *target, "-q")
        assert done.returncode == 0, done.stderr
    return folder


def test_a_run_is_simulated_with_its_own_job(run: Path) -> None:
    told = simulated(run)
    assert told["strategy"] == "depth"
    assert told["robots"] == 5
    assert told["interval_s"] == pytest.approx(0.02)
    assert told["pages_per_connection"] == 3
    assert told["bandwidth_bytes_per_s"] == 250_000.0
    assert told["simulated_by"] == "engine"
    deadlines = [site["deadline_s"] for site in told["sites"]]
    assert deadlines
    assert all(deadline_s % 600 == pytest.approx(0.0, abs=1e-3) for deadline_s in deadlines)
    assert all(site["end_s"] <= site["deadline_s"] for site in told["sites"])


def test_an_option_replaces_what_the_job_says(run: Path) -> None:
    usual, slow = simulated(run), simulated(run, "--bandwidth", "20 KB/s", "--strategy", "random")
    assert slow["strategy"] == "random"
    assert slow["seconds"] > 2 * usual["seconds"]
    assert slow["interval_s"] == usual["interval_s"]
    rates = [rate for _, rate in slow["bandwidth_by_time"]]
    assert max(rates) <= 20_000 * (1 + 1e-9)
    assert sum(rates) * slow["seconds"] / len(rates) == pytest.approx(slow["wire_bytes"], rel=0.03)


def test_pages_have_the_size_of_their_newest_full_answer(run: Path) -> None:
    database = sqlite3.connect(f"file:{run / 'crawl.sqlite'}?mode=ro", uri=True)
    rows = database.execute(
        "SELECT site_id, key, status, wire_bytes FROM page WHERE state = 'done' OR status > 0 ORDER BY id"
    ).fetchall()
    database.close()
    assert any(status == 304 for _, _, status, _ in rows)
    full = {(site, key): size for site, key, status, size in rows if status != 304}
    told = simulated(run)
    assert told["wire_bytes"] <= sum(full.values())
    assert told["wire_bytes"] > 0.9 * sum(full.values())


def test_the_run_folder_is_left_as_it_is(run: Path) -> None:
    before = digests(run)
    simulated(run)
    simulated(run, "--compare", "--robots", "3")
    assert digests(run) == before


def test_strategies_are_compared_on_a_run(run: Path) -> None:
    told = simulated(run, "--compare")
    assert [one["strategy"].partition("(")[0] for one in told][:2] == ["optimal", "length"]
    assert len({one["pages"] for one in told}) == 1


def test_a_job_is_simulated_with_what_a_run_learnt(job: Path, run: Path) -> None:
    before = digests(run)
    told = simulated(job, "--draws", "1", "--sizes-from", run)
    sources = {site["assumed"]["data_bytes"]["source"] for site in told["sites"]}
    assert sources == {"learnt in run run"}
    assert told["all_met"] == 1.0
    assert digests(run) == before


def test_a_person_reads_when_each_site_ends(job: Path, run: Path) -> None:
    for target in ((job, "--draws", "1"), (run,)):
        done = headway("simulate", *target)
        assert done.returncode == 0, done.stderr
        assert "the engine" in done.stdout
        assert "deadline" in done.stdout
        assert "127.0.0.1" in done.stdout


# -- what cannot be simulated -----------------------------------------------------------------------------


def refused(*args: object) -> str:
    done = headway("simulate", *args)
    assert done.returncode not in {0, 11}
    assert "Traceback" not in done.stdout + done.stderr
    assert "a bug in headway" not in done.stderr
    return done.stderr


def damaged(run: Path, folder: Path) -> Path:
    copy = folder / "damaged"
    shutil.copytree(run, copy)
    return copy


@pytest.mark.parametrize("where", [0, 100, 4096, 40_000])
def test_a_damaged_store_is_named(run: Path, tmp_path: Path, where: int) -> None:
    copy = damaged(run, tmp_path)
    database = copy / "crawl.sqlite"
    content = bytearray(database.read_bytes())
    content[where : where + 30_000] = b"\xa5" * 30_000
    database.write_bytes(content)
    before = digests(copy)
    assert str(database) in refused(copy)
    assert digests(copy) == before


def test_a_truncated_store_is_named(run: Path, tmp_path: Path) -> None:
    copy = damaged(run, tmp_path)
    database = copy / "crawl.sqlite"
    database.write_bytes(database.read_bytes()[:5000])
    assert str(database) in refused(copy)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE crawl SET job = '{'", "job"),
        ("UPDATE crawl SET job = '[]'", "job"),
        ("""UPDATE crawl SET job = '{"site": []}'""", "no site"),
        ("UPDATE page SET path = x'00'", "path"),
        ("UPDATE page SET wire_bytes = 'many'", "wire_bytes"),
        ("UPDATE page SET duration_s = -5", "duration_s"),
        ("UPDATE page SET links = x'0102'", "links"),
        ("DELETE FROM page", "has fetched no page"),
        ("DROP TABLE page", "page"),
        ("UPDATE crawl SET job = json_set(job, '$.crawl.strategy', 'nowhere.orders:Newest')", "nowhere"),
        ("UPDATE crawl SET job = json_set(job, '$.crawl.strategy', 'json:dumps')", "json"),
    ],
)
def test_a_store_that_makes_no_sense_is_named(run: Path, tmp_path: Path, statement: str, words: str) -> None:
    copy = damaged(run, tmp_path)
    connection = sqlite3.connect(copy / "crawl.sqlite")
    try:
        connection.execute(statement)
        connection.commit()
    finally:
        connection.close()
    message = refused(copy)
    assert words in message
    assert str(copy) in message


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('strategy = "nowhere.orders:Newest"', "nowhere"),
        ('strategy = "json:dumps"', "json:dumps"),
        ('bandwith = "1 MB/s"', "bandwith"),
    ],
)
def test_a_job_that_cannot_be_simulated_names_file_and_line(tmp_path: Path, more: str, words: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f'[crawl]\n{more}\n[[site]]\nurl = "http://a.test/"\n')
    message = refused(path)
    assert words in message
    assert "job.toml" in message
    assert "line 2" in message
