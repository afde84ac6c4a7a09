"""Random octets over a real socket: every fetch ends with a `Response`, and the next one is not the worse."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.soak.fuzzing import ARRIVALS  # noqa: E402
from benchmarks.soak.wire import Wire  # noqa: E402

INPUTS = 300


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    opened = Wire()
    yield opened
    opened.close()


@settings(max_examples=INPUTS, deadline=None, suppress_health_check=list(HealthCheck))
@given(pieces=ARRIVALS)
def test_every_fetch_ends_and_the_next_is_answered(wire: Wire, pieces: list[bytes]) -> None:
    wire.check(pieces)
