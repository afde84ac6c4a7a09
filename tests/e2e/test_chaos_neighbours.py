"""Good sites hardly notice bad neighbours: loose bounds for busy machines, strict in `benchmarks.soak`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.chaos.process import ChaosProcess
from tests.support.chaos.roster import ROSTER
from tests.support.chaos.silence import SITES as SILENT_SITES

from headway.demoweb import QUICK, Served, ServedProcess, design_web

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.soak.neighbours import measure, slowdown  # noqa: E402

TURNS = 2
SHORT = {"connect": "1 s", "first_byte": "1 s", "idle": "1 s", "total": "3 s"}


@pytest.fixture(scope="module")
def good() -> Iterator[Served]:
    with ServedProcess(design_web(3, roster=("plain", "plain"), tempo=QUICK)) as served:
        yield served


@pytest.mark.parametrize("bandwidth", [None, "10 MB/s"])
def test_slow_servers_do_not_delay_other_sites(good: Served, bandwidth: str | None) -> None:
    options = {} if bandwidth is None else {"bandwidth": bandwidth}
    with ChaosProcess([site.name for site in SILENT_SITES]) as chaos:
        turns = measure(good.urls, chaos, TURNS, timeouts=SHORT, **options)
    assert slowdown(turns) < 0.5, turns


def test_all_bad_sites_at_once_do_not_bring_a_good_one_to_a_stand(good: Served) -> None:
    """They are sixty times as many, and cost more work than all good pages together."""
    with ChaosProcess(ROSTER) as chaos:
        turns = measure(good.urls, chaos, TURNS, timeouts=SHORT)
    assert slowdown(turns) < 4.0, turns
