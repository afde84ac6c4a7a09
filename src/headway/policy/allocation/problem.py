"""The question (sites, their data and deadlines, the link) and the answer (rates over time, and what
they lead to). Every policy goes from one to the other."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headway.errors import JobError
from headway.policy.allocation.capacity import BoolArray, FloatArray, IntArray, Timetable

LATE_TOLERANCE = 1e-6
"""A site that ends at its deadline is in time; rounding must not make it late."""


class Objective(enum.StrEnum):
    """What to make small, after every deadline that can be met is met."""

    MAX_COMPLETION = "max-completion"
    SUM_COMPLETION = "sum-completion"
    TARDINESS = "tardiness"
    LATE_SITES = "late-sites"


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
    """Sites in columns. `data_bytes` has xi applied; infinity means no deadline, and no cap."""

    names: Sequence[str]
    data_bytes: FloatArray
    deadline_s: FloatArray
    cap_bytes_per_s: FloatArray
    weight: FloatArray
    capacity: Timetable
    crawlers: int
    """How many sites may be open at once: the paper's m."""

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
        """Columns that are left out mean none; a deadline of 0 means none as well, as in the paper."""
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
                raise JobError(f"every site's {name} must be more than zero")
        if np.any(np.isnan(deadline)) or np.any(deadline < 0):
            raise JobError("a deadline is in the past, or not a number")
        if not np.all(np.isfinite(data)) or not np.all(np.isfinite(weights * factor)):
            raise JobError("data_bytes, weight and xi must be finite")
        if crawlers is not None and crawlers < 1:
            raise JobError("at least one crawler is needed")
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
    def has_deadline(self) -> BoolArray:
        return np.isfinite(self.deadline_s)

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """What a policy of constant rates can count on at any time."""
        return self.capacity.least

    def with_capacity(self, capacity: Timetable | float) -> Problem:
        table = capacity if isinstance(capacity, Timetable) else Timetable.constant(capacity)
        return replace(self, capacity=table)


@dataclass(frozen=True, eq=False, slots=True)
class Schedule:
    """Rates that are constant by segments, in columns sorted by site and time, and what follows from them."""

    problem: Problem
    segment_site: IntArray
    segment_from_s: FloatArray
    segment_to_s: FloatArray
    segment_rate_bytes_per_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    notes: tuple[str, ...] = ()
    """What the reader of the result should know: a stand-in used, a policy that took over."""
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
        """All start together, and each keeps its rate to its end."""
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
        """From segments in any order; neighbours of the same rate become one."""
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
        """(from_s, to_s, rate_bytes_per_s) of each site in turn."""
        by_site: list[list[tuple[float, float, float]]] = [[] for _ in range(len(self.problem))]
        columns = (self.segment_from_s, self.segment_to_s, self.segment_rate_bytes_per_s)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for site, row in zip(self.segment_site.tolist(), rows, strict=True):
            by_site[site].append(row)
        return by_site


def _column(name: str, values: Sequence[float] | FloatArray | None, n: int, default: float) -> FloatArray:
    if values is None:
        return np.full(n, default)
    column = np.array(values, dtype=np.float64)
    if column.shape != (n,):
        raise JobError(f"{name} has {column.size} values for {n} sites")
    return column
