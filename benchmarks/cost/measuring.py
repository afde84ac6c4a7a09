"""What one input costs, in units that do not depend on the machine.

Time is CPU time of the thread, in steps: one is a turn of an empty loop in Python, measured at the same time.
A parser passes if doubling the input does not much more than double what it costs, and if it costs less than
so many steps and so many bytes of memory for each byte. What is too short to be measured passes.
"""

from __future__ import annotations

import gc
import math
import time
import tracemalloc
from collections.abc import Callable

import msgspec

from .recipes import Recipe

MOST_SLOPE = 1.5
"""Of the logarithm of the time by that of the length: 1 is linear, 2 is quadratic."""
_APART = 8
"""The longer input has so many times the length of the shorter one."""
_NEARER = 4
_SHORTEST_S = 0.008
_FREE_BYTES = 2 * 1024 * 1024
_TRIES = 3
_LOOP = 20_000


class Target(msgspec.Struct, frozen=True):
    """A parser, and the words of the grammar of what it reads."""

    run: Callable[[bytes], object]
    words: tuple[bytes, ...]
    length: int = 131_072
    """Of the longest input tried: what the parser is given at most, or what shows its growth."""
    steps_a_byte: float = 400.0
    """Several times what the costliest input took, for a machine that does other things meanwhile."""
    memory_a_byte: float = 64.0
    """Beyond a fixed amount."""


class Cost(msgspec.Struct, frozen=True):
    length: int
    seconds: float
    steps: float
    """For each octet."""
    slope: float | None
    """None: too short to be measured."""
    peak_bytes: int


def cost_of(target: Target, recipe: Recipe, *, with_memory: bool = True) -> Cost:
    short, long = recipe.make(target.length // _APART), recipe.make(target.length)
    long_s = seconds_of(target.run, long, 1)
    slope = None
    if long_s >= _SHORTEST_S and len(long) >= 2 * len(short):
        tries = _TRIES if long_s < 0.2 else 1
        long_s = min(long_s, seconds_of(target.run, long, tries))
        slope = _slope(target, short, long, long_s, tries)
        if slope > MOST_SLOPE:  # or what is short fits into a cache
            slope = min(slope, _slope(target, recipe.make(target.length // _NEARER), long, long_s, tries))
    steps = long_s / step_s() / max(1, len(long))
    peak_bytes = peak_of(target.run, long) if with_memory else 0
    return Cost(len(long), long_s, steps, slope, peak_bytes)


def _slope(target: Target, short: bytes, long: bytes, long_s: float, tries: int) -> float:
    short_s = max(1e-6, seconds_of(target.run, short, tries))
    return math.log(long_s / short_s) / math.log(len(long) / len(short))


def problem_of(target: Target, recipe: Recipe) -> str:
    """What is wrong with the cost of a recipe, found three times in a row; empty if nothing is."""
    problem = ""
    for _ in range(_TRIES):
        cost = cost_of(target, recipe)
        problem = judged(target, cost)
        if not problem:
            break
    return f"{recipe}: {problem}" if problem else ""


def judged(target: Target, cost: Cost) -> str:
    """What is wrong with a cost; empty if nothing is."""
    if cost.slope is not None and cost.slope > MOST_SLOPE:
        return (
            f"{cost.length:,} octets take {cost.seconds:.3f} s, and time grows by the power {cost.slope:.2f}"
        )
    if cost.slope is not None and cost.steps > target.steps_a_byte:
        return f"{cost.steps:.0f} steps an octet, more than {target.steps_a_byte:g}"
    if cost.peak_bytes > _FREE_BYTES + target.memory_a_byte * cost.length:
        return f"{cost.peak_bytes:,} bytes of memory for {cost.length:,} octets"
    return ""


def seconds_of(run: Callable[[bytes], object], octets: bytes, tries: int = _TRIES) -> float:
    """The least of several tries."""
    best = math.inf
    for _ in range(tries):
        begin = time.thread_time()
        run(octets)
        best = min(best, time.thread_time() - begin)
    return best


def step_s() -> float:
    best = math.inf
    for _ in range(_TRIES):
        begin = time.thread_time()
        for _ in range(_LOOP):
            pass
        best = min(best, time.thread_time() - begin)
    return best / _LOOP


def peak_of(run: Callable[[bytes], object], octets: bytes) -> int:
    """The memory that Python and its modules take for it, as far as they take it by Python's allocators."""
    gc.collect()
    tracemalloc.start()
    try:
        run(octets)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
