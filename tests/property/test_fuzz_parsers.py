"""Whatever is thrown at a parser, it keeps its promises; a longer go: `python -m benchmarks.soak --fuzz`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.soak.fuzz import fuzz  # noqa: E402
from benchmarks.soak.targets import TARGETS  # noqa: E402

INPUTS = 250


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_a_promise(name: str) -> None:
    fuzzed = fuzz(name, INPUTS)
    assert not fuzzed.problem, f"after {fuzzed.inputs} inputs: {fuzzed.problem}"
    assert fuzzed.inputs >= INPUTS, f"only {fuzzed.inputs} inputs were tried"
