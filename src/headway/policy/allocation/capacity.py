"""What the link has to give over time: a constant, or steps that a timetable sets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.errors import JobError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

FASTEST_LINK_BYTES_PER_S = 1e15
"""Stands for "unbounded": faster than any link, and still a number to reckon with."""


class Timetable:
    """Capacity as steps over time, reckoned in seconds from now; the last step goes on for ever.

    A step may be zero (no crawling by day), but the last may not: some day everything must be fetched.
    """

    __slots__ = ("_amounts", "_rates", "_turns")

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        """`steps` are (from_s, bytes_per_s), in order, the first from 0."""
        turns = np.array([from_s for from_s, _ in steps], dtype=np.float64)
        rates = np.array([rate for _, rate in steps], dtype=np.float64)
        if not len(turns) or turns[0] != 0 or not np.all(np.diff(turns) > 0):
            raise JobError("a timetable needs steps that start at 0 s and follow one another in time")
        if np.any(np.isnan(rates)) or np.any(rates < 0) or not np.all(np.isfinite(turns)):
            raise JobError("a bandwidth must be a number that is not negative")
        if rates[-1] <= 0:
            raise JobError("the bandwidth must be more than zero (in a timetable: from its last step on)")
        self._turns = turns
        self._rates = rates = np.minimum(rates, FASTEST_LINK_BYTES_PER_S)
        self._amounts = np.concatenate(([0.0], np.cumsum(np.diff(turns) * rates[:-1])))

    @staticmethod
    def constant(rate_bytes_per_s: float) -> Timetable:
        return Timetable([(0.0, rate_bytes_per_s)])

    @property
    def steps(self) -> tuple[tuple[float, float], ...]:
        return tuple(zip(self._turns.tolist(), self._rates.tolist(), strict=True))

    @property
    def is_constant(self) -> bool:
        return len(self._rates) == 1

    @property
    def least(self) -> float:
        return float(self._rates.min())

    @property
    def most(self) -> float:
        return float(self._rates.max())

    @property
    def turns_s(self) -> FloatArray:
        """When the capacity changes, after now."""
        return self._turns[1:]

    def at(self, time_s: float) -> float:
        if len(self._rates) == 1:
            return float(self._rates[0])
        return float(self._rates[np.searchsorted(self._turns, time_s, side="right") - 1])

    def next_turn_s(self, time_s: float) -> float:
        """The first change after `time_s`; infinity when there is none."""
        index = int(np.searchsorted(self._turns, time_s, side="right"))
        return float(self._turns[index]) if index < len(self._turns) else math.inf

    def amount_until(self, time_s: FloatArray) -> FloatArray:
        """How many bytes can cross the link from now until then."""
        if len(self._rates) == 1:
            return time_s * float(self._rates[0])
        index = np.searchsorted(self._turns, time_s, side="right") - 1
        amounts: FloatArray = self._amounts[index] + self._rates[index] * (time_s - self._turns[index])
        return amounts

    def time_of(self, amount_bytes: FloatArray) -> FloatArray:
        """When so many bytes can have crossed the link: the inverse of `amount_until`."""
        if len(self._rates) == 1:
            return amount_bytes / float(self._rates[0])
        # The first step that reaches the amount; one of rate zero ends where it began and is never it.
        index = np.searchsorted(self._amounts, amount_bytes, side="left") - 1
        index = np.maximum(index, 0)
        rate = self._rates[index]
        beyond = amount_bytes - self._amounts[index]
        return self._turns[index] + np.divide(beyond, rate, out=np.zeros_like(beyond), where=rate > 0)

    def seen_from(self, time_s: float) -> Timetable:
        """The same capacity, reckoned from a later moment."""
        if len(self._rates) == 1:
            return self
        index = int(np.searchsorted(self._turns, time_s, side="right")) - 1
        turns = np.maximum(self._turns[index:] - time_s, 0.0)
        return Timetable(list(zip(turns.tolist(), self._rates[index:].tolist(), strict=True)))

    def scaled(self, factor: float) -> Timetable:
        return Timetable([(from_s, rate * factor) for from_s, rate in self.steps])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timetable) and self.steps == other.steps

    def __hash__(self) -> int:
        return hash(self.steps)

    def __repr__(self) -> str:
        return f"Timetable({list(self.steps)})"
