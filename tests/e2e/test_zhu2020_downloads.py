"""Figures 11 and 12 of zhu2020 in a short form: real downloads under a bound take about D / v."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from experiments.zhu2020.downloads import Download, read_downloads  # noqa: E402
from experiments.zhu2020.measure import measure, write_downloads  # noqa: E402
from experiments.zhu2020.serving import Character  # noqa: E402

SITES = (Character("one file", 1 << 30), Character("pages", 4_000, keeps_connection=False))
TRIALS = ((60_000, 60_000), (60_000, 120_000), (120_000, 120_000))


@pytest.fixture(scope="module")
def downloads() -> list[Download]:
    return measure(SITES, TRIALS, rounds=1)


def test_a_download_takes_about_its_data_over_its_rate(downloads: list[Download]) -> None:
    ratios = {one: one.duration_s * one.rate_bytes_per_s / one.data_bytes for one in downloads}
    assert len(ratios) == len(SITES) * len(TRIALS)
    assert {one: ratio for one, ratio in ratios.items() if not 0.8 <= ratio <= 1.6} == {}


def test_downloads_survive_being_written_and_read(downloads: list[Download], tmp_path: Path) -> None:
    write_downloads(downloads, tmp_path / "downloads.csv")
    assert read_downloads(tmp_path / "downloads.csv") == downloads
