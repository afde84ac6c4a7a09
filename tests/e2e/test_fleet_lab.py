"""A crawl by collectors on hosts of their own, under faults, as the benchmark runs hundreds of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.support.postgres import find_postgres

ROOT = Path(__file__).parents[2]
MUST_BE_ZERO = ("lost", "not_in_archive", "doubled", "too_soon", "over", "tracebacks")


@pytest.fixture
def faults(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    pytest.importorskip("psycopg")
    network = pytest.importorskip("experiments.lab.network")
    if os.geteuid() != 0 or find_postgres() is None or network.why_not() is not None:
        pytest.skip("needs root, network namespaces and PostgreSQL")
    yield pytest.importorskip("benchmarks.fleet.faults")
    for name in [name for name in sys.modules if name.startswith("benchmarks")]:
        del sys.modules[name]


@pytest.mark.timeout(180)
def test_nothing_is_lost_doubled_too_soon_or_over_the_bound(faults):
    verdict = faults.part(5, 2)
    assert sum(verdict["faults"].values()) == 2
    assert {name: verdict[name] for name in MUST_BE_ZERO} == dict.fromkeys(MUST_BE_ZERO, 0), verdict
