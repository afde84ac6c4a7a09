"""Whatever URLs and headers say, a crawl writes into its run folder alone, where nobody else may write."""

from __future__ import annotations

import fnmatch
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.chaos.process import ChaosProcess

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.soak.crawling import build, chaos_sites, crawl  # noqa: E402

OURS = [
    *("crawl.sqlite", "crawl.sqlite-lock", "crawl.sqlite-wal", "crawl.sqlite-shm"),
    *("pages.jsonl", "crawl.log", "decisions.jsonl", "indexes/index.cdxj", "archive/headway-*.warc.gz"),
]
"""Names that no server has a say in."""


@pytest.fixture(scope="module")
def chaos() -> Iterator[ChaosProcess]:
    with ChaosProcess(["tricky-links", "redirect-to-bad-places", "file-names"]) as served:
        yield served


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_nothing_is_written_outside_the_run_folder_nor_under_a_name_from_outside(
    chaos: ChaosProcess, tmp_path: Path
) -> None:
    run = tmp_path / "deep" / "down" / "run"
    crawl(build(chaos_sites(chaos)), run)
    everything = {path for path in tmp_path.rglob("*") if not path.is_dir()}
    assert {path for path in everything if run not in path.parents} == set()
    names = {str(path.relative_to(run)) for path in everything}
    assert {name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in OURS)} == set()
    assert not any(path.is_symlink() for path in everything)


def test_others_may_not_write_there_even_with_an_open_umask(
    chaos: ChaosProcess, tmp_path: Path, umask: int
) -> None:
    run = tmp_path / "run"
    crawl(build(chaos_sites(chaos)), run)
    for path in (run, *run.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert not mode & 0o022, f"{path} may be written by others: {mode:o}"
        assert not mode & umask, f"{path} is more open than the umask lets it: {mode:o}"
        if path.is_file():
            assert not mode & 0o111, f"{path} may be run: {mode:o}"
