"""The allocation problem (sites, data, deadlines, capacity of the link) and its solution, a schedule."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from headway.errors import JobError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

FASTEST_LINK_BYTES_PER_S = 1e15
"""Used for "unbounded": faster than any link, and finite."""


USABLE = 0.97
"""Of a bound, for the deadlines of a crawl: the pacer stays a little below it, and a site whose turn it is
leaves gaps between its requests."""


class Timetable:
    """Capacity as steps over time, in seconds from now. The last step has no end.

    A step may be zero (no crawling by day), but not the last, because everything must be fetched eventually.
    """

    __slots__ = ("_amounts", "_rates", "_starts_s")

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        """`steps` are (from_s, bytes_per_s), in order, the first from 0."""
        starts = np.array([from_s for from_s, _ in steps], dtype=np.float64)
        rates = np.array([rate for _, rate in steps], dtype=np.float64)
        if not len(starts) or starts[0] != 0 or not np.all(np.diff(starts) > 0):
            raise JobError("the steps of a timetable must start at 0 s and be in order of time")
        if np.any(np.isnan(rates)) or np.any(rates < 0) or not np.all(np.isfinite(starts)):
            raise JobError("a bandwidth must be a number that is 0 or more")
        if rates[-1] <= 0:
            raise JobError("the bandwidth must be greater than zero (in a timetable: in its last step)")
        self._starts_s = starts
        self._rates = rates = np.minimum(rates, FASTEST_LINK_BYTES_PER_S)
        self._amounts = np.concatenate(([0.0], np.cumsum(np.diff(starts) * rates[:-1])))

    @staticmethod
    def constant(rate_bytes_per_s: float) -> Timetable:
        return Timetable([(0.0, rate_bytes_per_s)])

    @property
    def steps(self) -> tuple[tuple[float, float], ...]:
        return tuple(zip(self._starts_s.tolist(), self._rates.tolist(), strict=True))

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
    def change_times_s(self) -> FloatArray:
        """The times at which the capacity changes, in seconds from now."""
        return self._starts_s[1:]

    @property
    def closed_s(self) -> tuple[tuple[float, float], ...]:
        """When the capacity is zero."""
        ends = [*self._starts_s[1:].tolist(), math.inf]
        steps = zip(self._starts_s.tolist(), ends, self._rates.tolist(), strict=True)
        return tuple((from_s, to_s) for from_s, to_s, rate in steps if not rate)

    def at(self, time_s: float) -> float:
        if len(self._rates) == 1:
            return float(self._rates[0])
        return float(self._rates[np.searchsorted(self._starts_s, time_s, side="right") - 1])

    def next_change_s(self, time_s: float) -> float:
        """The first change after `time_s`; infinity if there is none."""
        index = int(np.searchsorted(self._starts_s, time_s, side="right"))
        return float(self._starts_s[index]) if index < len(self._starts_s) else math.inf

    def amount_until(self, time_s: FloatArray) -> FloatArray:
        """The bytes that the link can carry from now until `time_s`."""
        if len(self._rates) == 1:
            return time_s * float(self._rates[0])
        index = np.searchsorted(self._starts_s, time_s, side="right") - 1
        amounts: FloatArray = self._amounts[index] + self._rates[index] * (time_s - self._starts_s[index])
        return amounts

    def time_of(self, amount_bytes: FloatArray) -> FloatArray:
        """When the link can have carried `amount_bytes`: the inverse of `amount_until`."""
        if len(self._rates) == 1:
            return amount_bytes / float(self._rates[0])
        # The first step that reaches the amount. A step of rate zero carries nothing and is never chosen.
        index = np.searchsorted(self._amounts, amount_bytes, side="left") - 1
        index = np.maximum(index, 0)
        rate = self._rates[index]
        beyond = amount_bytes - self._amounts[index]
        return self._starts_s[index] + np.divide(beyond, rate, out=np.zeros_like(beyond), where=rate > 0)

    def seen_from(self, time_s: float) -> Timetable:
        """The same capacity, with times relative to a later instant."""
        if len(self._rates) == 1:
            return self
        index = int(np.searchsorted(self._starts_s, time_s, side="right")) - 1
        starts = np.maximum(self._starts_s[index:] - time_s, 0.0)
        return Timetable(list(zip(starts.tolist(), self._rates[index:].tolist(), strict=True)))

    def scaled(self, factor: float) -> Timetable:
        return Timetable([(from_s, rate * factor) for from_s, rate in self.steps])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timetable) and self.steps == other.steps

    def __hash__(self) -> int:
        return hash(self.steps)

    def __repr__(self) -> str:
        return f"Timetable({list(self.steps)})"


LATE_TOLERANCE = 1e-6
"""A site that ends at its deadline is on time; rounding must not make it late."""


SHORTEST_S = 1e-3
"""In place of no time at all."""


class Objective(enum.StrEnum):
    """What to minimise once every deadline that can be met is met."""

    MAX_COMPLETION = "max-completion"
    SUM_COMPLETION = "sum-completion"
    TARDINESS = "tardiness"
    LATE_SITES = "late-sites"


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
    """Sites in columns. `data_bytes` includes xi. An infinite deadline or cap means none."""

    names: Sequence[str]
    data_bytes: FloatArray
    deadline_s: FloatArray
    cap_bytes_per_s: FloatArray
    weight: FloatArray
    capacity: Timetable
    crawlers: int
    """How many sites may be open at once, m in the paper."""
    shut_s: tuple[tuple[tuple[float, float], ...], ...] = ()
    """For each site when it may not be asked, in order; empty if no site has windows."""

    @staticmethod
    def of(
        data_bytes: Sequence[float] | FloatArray,
        capacity: Timetable | float,
        *,
        deadline_s: Sequence[float] | FloatArray | None = None,
        cap_bytes_per_s: Sequence[float] | FloatArray | None = None,
        weight: Sequence[float] | FloatArray | None = None,
        xi: Sequence[float] | FloatArray | None = None,
        names: Sequence[str] | None = None,
        crawlers: int | None = None,
    ) -> Problem:
        """A problem from columns; omitted ones have their defaults. A deadline of 0 means none, as in the
        paper."""
        data = _column("data_bytes", data_bytes, len(data_bytes), 1.0)
        n = len(data)
        deadline = _column("deadline_s", deadline_s, n, math.inf)
        deadline = np.where(deadline == 0, math.inf, deadline)
        cap = _column("cap_bytes_per_s", cap_bytes_per_s, n, math.inf)
        weights = _column("weight", weight, n, 1.0)
        factor = _column("xi", xi, n, 1.0)
        for name, column in (
            ("data_bytes", data),
            ("cap_bytes_per_s", cap),
            ("weight", weights),
            ("xi", factor),
        ):
            if not np.all(column > 0):
                raise JobError(f"the {name} of every site must be greater than zero")
        if np.any(np.isnan(deadline)) or np.any(deadline < 0):
            raise JobError("a deadline is in the past or not a number")
        if not np.all(np.isfinite(data)) or not np.all(np.isfinite(weights * factor)):
            raise JobError("data_bytes, weight and xi must be finite")
        if crawlers is not None and crawlers < 1:
            raise JobError("crawlers must be at least 1")
        return Problem(
            names=names if names is not None else [f"site {i + 1}" for i in range(n)],
            data_bytes=data * factor,
            deadline_s=deadline,
            cap_bytes_per_s=cap,
            weight=weights,
            capacity=capacity if isinstance(capacity, Timetable) else Timetable.constant(capacity),
            crawlers=max(n, 1) if crawlers is None else crawlers,
        )

    def __len__(self) -> int:
        return len(self.data_bytes)

    @property
    def open_deadline_s(self) -> FloatArray:
        """The time until each deadline in which the link and the site are open."""
        closed = self.capacity.closed_s
        if not closed and not self.shut_s:
            return self.deadline_s
        open_s = [
            due_s - _covered_s((*closed, *(self.shut_s[site] if self.shut_s else ())), due_s)
            for site, due_s in enumerate(self.deadline_s.tolist())
        ]
        return np.maximum(np.array(open_s, dtype=np.float64), SHORTEST_S)

    @property
    def has_deadline(self) -> BoolArray:
        return np.isfinite(self.deadline_s)

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """The least capacity at any time, which a policy of constant rates can use."""
        return self.capacity.least

    def with_capacity(self, capacity: Timetable | float) -> Problem:
        table = capacity if isinstance(capacity, Timetable) else Timetable.constant(capacity)
        return replace(self, capacity=table)


@dataclass(frozen=True, eq=False, slots=True)
class Schedule:
    """Piecewise constant rates, in columns sorted by site and time, and the resulting figures."""

    problem: Problem
    segment_site: IntArray
    segment_from_s: FloatArray
    segment_to_s: FloatArray
    segment_rate_bytes_per_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    notes: tuple[str, ...] = ()
    """Remarks for the user, such as a policy or deadline that was substituted."""
    tardiness_s: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        deadline = self.problem.deadline_s
        over = self.end_s - deadline
        late = np.where(over > LATE_TOLERANCE * np.maximum(self.end_s, 1.0), over, 0.0)
        object.__setattr__(self, "tardiness_s", late)

    @staticmethod
    def empty(problem: Problem) -> Schedule:
        return Schedule.of_segments(problem, [], [], [], rate_bytes_per_s=[])

    @staticmethod
    def of_constant_rates(problem: Problem, rates: FloatArray) -> Schedule:
        """All sites start together, and each keeps its rate to its end."""
        n = len(problem)
        return Schedule(
            problem=problem,
            segment_site=np.arange(n, dtype=np.int64),
            segment_from_s=np.zeros(n),
            segment_to_s=(ends := problem.data_bytes / rates),
            segment_rate_bytes_per_s=rates,
            start_s=np.zeros(n),
            end_s=ends,
        )

    @staticmethod
    def of_segments(
        problem: Problem,
        site: Sequence[int] | IntArray,
        from_s: Sequence[float] | FloatArray,
        to_s: Sequence[float] | FloatArray,
        *,
        rate_bytes_per_s: Sequence[float] | FloatArray,
    ) -> Schedule:
        """A schedule from segments in any order; adjacent segments with the same rate are merged."""
        sites = np.asarray(site, dtype=np.int64)
        starts = np.asarray(from_s, dtype=np.float64)
        order = np.lexsort((starts, sites))
        sites, starts = sites[order], starts[order]
        stops = np.asarray(to_s, dtype=np.float64)[order]
        rates = np.asarray(rate_bytes_per_s, dtype=np.float64)[order]
        if len(sites):
            joined = (sites[1:] == sites[:-1]) & (starts[1:] == stops[:-1])
            joined &= np.abs(rates[1:] - rates[:-1]) <= 1e-9 * rates[1:]
            first = np.concatenate(([True], ~joined))
            last = np.concatenate((~joined, [True]))
            sites, starts, stops, rates = sites[first], starts[first], stops[last], rates[first]
        n = len(problem)
        start, end = np.full(n, math.inf), np.zeros(n)
        np.minimum.at(start, sites, starts)
        np.maximum.at(end, sites, stops)
        return Schedule(problem, sites, starts, stops, rates, start, end)

    @property
    def max_completion_s(self) -> float:
        return float(self.end_s.max(initial=0.0))

    @property
    def sum_completion_s(self) -> float:
        return float(self.end_s.sum())

    @property
    def sum_execution_s(self) -> float:
        return float((self.end_s - self.start_s).sum())

    @property
    def total_tardiness_s(self) -> float:
        return float(self.tardiness_s.sum())

    @property
    def late(self) -> int:
        return int(np.count_nonzero(self.tardiness_s))

    @property
    def on_time(self) -> bool:
        return self.late == 0

    def segments_by_site(self) -> list[list[tuple[float, float, float]]]:
        """The (from_s, to_s, rate_bytes_per_s) of each site, by site number."""
        by_site: list[list[tuple[float, float, float]]] = [[] for _ in range(len(self.problem))]
        columns = (self.segment_from_s, self.segment_to_s, self.segment_rate_bytes_per_s)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for site, row in zip(self.segment_site.tolist(), rows, strict=True):
            by_site[site].append(row)
        return by_site


def _covered_s(intervals: Sequence[tuple[float, float]], until_s: float) -> float:
    """For how long at least one interval lasts before an instant."""
    if math.isinf(until_s):
        return 0.0
    covered_s = reached_s = 0.0
    for from_s, to_s in sorted(intervals):
        begin_s, end_s = max(from_s, reached_s), min(to_s, until_s)
        if end_s > begin_s:
            covered_s += end_s - begin_s
            reached_s = end_s
    return covered_s


def _column(name: str, values: Sequence[float] | FloatArray | None, n: int, default: float) -> FloatArray:
    if values is None:
        return np.full(n, default)
    column = np.array(values, dtype=np.float64)
    if column.shape != (n,):
        raise JobError(f"{name} has {column.size} values for {n} sites")
    return column
