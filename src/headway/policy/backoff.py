"""Delays that grow with every failure in a row."""

from __future__ import annotations

from headway.units import Seconds

_MOST_STEPS = 64


def growing_delay_s(step: int, first_s: Seconds, factor: float, most_s: Seconds) -> Seconds:
    """`first_s` at step 0, `factor` times longer at each step, never beyond `most_s`."""
    delay_s: float = first_s
    # Multiplied rather than raised to a power: a float product overflows to infinity, a power raises.
    for _ in range(min(step, _MOST_STEPS)):
        delay_s *= factor
    return Seconds(min(delay_s, most_s))
