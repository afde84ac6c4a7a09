"""Fuzzing with a count: every target for a number of inputs, and what it took."""

from __future__ import annotations

import time

import msgspec
from benchmarks.soak.fuzzing import ARRIVALS, Target
from benchmarks.soak.targets import TARGETS
from benchmarks.soak.wire import Wire
from hypothesis import HealthCheck, given, settings


class Fuzzed(msgspec.Struct, frozen=True):
    target: str
    inputs: int
    seconds: float
    problem: str = ""
    """Empty when none of the inputs broke a promise."""


def fuzz(name: str, inputs: int) -> Fuzzed:
    """Throw so many inputs at a target; the smallest that breaks a promise is in the answer."""
    return _run(name, TARGETS[name], inputs)


def _run(name: str, target: Target, inputs: int) -> Fuzzed:
    tried = 0
    started_at = time.perf_counter()

    @settings(max_examples=inputs, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(target.inputs)
    def check(case: object) -> None:
        nonlocal tried
        tried += 1
        target.check(case)

    problem = ""
    try:
        check()
    except Exception as error:  # whatever it is, is what was looked for
        problem = f"{type(error).__name__}: {error}; {'; '.join(getattr(error, '__notes__', []))}"
    return Fuzzed(name, tried, time.perf_counter() - started_at, problem)


def fuzz_wire(inputs: int) -> Fuzzed:
    """The same over a real socket, which takes longer."""
    wire = Wire()
    try:
        return _run("socket", Target(ARRIVALS, wire.check), inputs)
    finally:
        wire.close()
