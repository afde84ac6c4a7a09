"""The link over time: samples of a counter become rates and their share of the bound.

A sample says how many bytes had arrived at an instant, and which bound held from then on. Two samples at the
same instant mark a change of the bound. Between two samples lies a step:

- A step is left out of everything, and ends a session, if the counter went back (a new process continued
  the crawl), if more than 30 s passed without a sample, or if the clock was set back.
- The bound of a step is the one that held when it began. If the sample at its end has another one, the
  change happened at an unknown instant in between, and the higher of the two counts: old run folders,
  fleets and `background` do not mark changes.
- Steps are joined to seconds of at least 0.9 s; with rarer samples, a second is as long as they are
  apart. The rest at the end of a session counts in the means, but is not a second.

All numbers are running sums: the cost of a sample does not depend on their number.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from headway.model.command import Decision
from headway.store.postgres.connection import is_address
from headway.store.reader import Sample, database_of
from headway.store.run_folder import DECISIONS
from headway.units import format_rate

LONGEST_STEP_S = 30.0
SHORTEST_SECOND_S = 0.9
OVER = 1.05
"""A second counts as over its bound from this part of it on: the pacer may exceed it by this much."""


class LinkSecond(msgspec.Struct, frozen=True, gc=False):
    at: float
    """The instant of its end."""
    length_s: float
    rate_bytes_per_s: float
    bound_bytes_per_s: float
    """The mean of the bounds that held in it; infinite without a bound."""
    predicted_bytes_per_s: float | None

    @property
    def over_bound(self) -> float | None:
        """The rate over the bound, as a share of the bound; negative if under. None without a bound, or with
        a bound of zero."""
        if not 0 < self.bound_bytes_per_s < math.inf:
            return None
        return self.rate_bytes_per_s / self.bound_bytes_per_s - 1.0


class LinkFigures(msgspec.Struct, frozen=True):
    """The link from the first sample to the last; `docs/reference/figures.md` explains each number."""

    received_bytes: int = 0
    active_s: float = 0.0
    sittings: int = 0
    rate_bytes_per_s: float = 0.0
    mean_bytes_per_s: float = 0.0
    max_bytes_per_s: float = 0.0
    bound_bytes_per_s: float | None = None
    lowest_bound_bytes_per_s: float | None = None
    highest_bound_bytes_per_s: float | None = None
    use_of_bound: float | None = None
    most_over_bound: float | None = None
    seconds_over_bound: int = 0
    bytes_at_zero_bound: int = 0
    sharing: LinkSharing | None = None
    """How it shares the link with its other users; None without `background`."""


class SharingSource(Protocol):
    def read(self) -> LinkSharing | None: ...


class LinkMeter:
    """Add samples in the order of time; `figures` has the numbers up to the last."""

    def __init__(self, sharing: SharingSource | None = None) -> None:
        self.sharing = sharing
        self._last: Sample | None = None
        self._sittings = 0
        self._received = 0
        self._active_s = 0.0
        self._carried_in_bound = self._allowed = 0.0
        self._at_zero = 0
        self._lowest, self._highest_bound = math.inf, -math.inf
        self._had_no_bound = False
        self._begin_second()
        self.last_second: LinkSecond | None = None
        self._highest = 0.0
        self._most_over: float | None = None
        self._seconds_over = 0

    def add(self, sample: Sample) -> LinkSecond | None:
        """The second that ends with this sample, if one does."""
        last, self._last = self._last, sample
        self._note_bound(sample.capacity_bytes_per_s)
        if last is None:
            self._sittings += 1
            return None
        if sample.wire_bytes < last.wire_bytes or sample.at - last.at > LONGEST_STEP_S:
            self._sittings += 1
            self._begin_second()
            return None
        if sample.at < last.at:
            self._begin_second()
            return None
        self._step(last, sample)
        return self._end_second(sample) if self._second_s >= SHORTEST_SECOND_S else None

    @property
    def figures(self) -> LinkFigures:
        bound = None if self._last is None else self._last.capacity_bytes_per_s
        has_had_bound = math.isfinite(self._lowest)
        return LinkFigures(
            received_bytes=self._received,
            active_s=self._active_s,
            sittings=self._sittings,
            rate_bytes_per_s=0.0 if self.last_second is None else self.last_second.rate_bytes_per_s,
            mean_bytes_per_s=self._received / self._active_s if self._active_s else 0.0,
            max_bytes_per_s=self._highest,
            bound_bytes_per_s=bound if bound is not None and math.isfinite(bound) else None,
            lowest_bound_bytes_per_s=self._lowest if has_had_bound else None,
            highest_bound_bytes_per_s=self._highest_bound
            if has_had_bound and not self._had_no_bound
            else None,
            use_of_bound=self._carried_in_bound / self._allowed if self._allowed else None,
            most_over_bound=self._most_over,
            seconds_over_bound=self._seconds_over,
            bytes_at_zero_bound=self._at_zero,
            sharing=None if self.sharing is None else self.sharing.read(),
        )

    @property
    def bound_sums(self) -> tuple[float, float]:
        """Bytes that arrived within a bound so far, and the bytes that the bound allowed."""
        return self._carried_in_bound, self._allowed

    def _note_bound(self, bound: float) -> None:
        if math.isfinite(bound):
            self._lowest, self._highest_bound = min(self._lowest, bound), max(self._highest_bound, bound)
        else:
            self._had_no_bound = True

    def _step(self, last: Sample, sample: Sample) -> None:
        length_s, carried = sample.at - last.at, sample.wire_bytes - last.wire_bytes
        bound = step_bound(last, sample)
        self._received += carried
        self._active_s += length_s
        self._second_s += length_s
        self._second_bytes += carried
        self._second_allowed += length_s * bound if length_s else 0.0
        if bound == 0:
            self._at_zero += carried
        elif math.isfinite(bound) and not (last.is_paused and sample.is_paused):
            self._carried_in_bound += carried
            self._allowed += length_s * bound

    def _begin_second(self) -> None:
        self._second_s = self._second_allowed = 0.0
        self._second_bytes = 0

    def _end_second(self, sample: Sample) -> LinkSecond:
        second = LinkSecond(
            sample.at,
            self._second_s,
            self._second_bytes / self._second_s,
            self._second_allowed / self._second_s,
            sample.predicted_bytes_per_s,
        )
        self._begin_second()
        self.last_second = second
        self._highest = max(self._highest, second.rate_bytes_per_s)
        over = second.over_bound
        if over is not None:
            self._most_over = over if self._most_over is None else max(self._most_over, over)
            self._seconds_over += over > OVER - 1.0
        return second


def step_bound(last: Sample, sample: Sample) -> float:
    """The bound between two samples."""
    return max(last.capacity_bytes_per_s, sample.capacity_bytes_per_s)


class LinkHistory:
    """The link of a whole run: its figures, its seconds for a graph, and the use of the bound between two
    instants."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        meter = LinkMeter()
        self.seconds: list[LinkSecond] = []
        self.bounds: list[tuple[float, float]] = []
        """Since when each bound held."""
        self._at: list[float] = []
        self._sums: list[tuple[float, float]] = []
        for sample in samples:
            second = meter.add(sample)
            if second is not None:
                self.seconds.append(second)
            if not self.bounds or self.bounds[-1][1] != sample.capacity_bytes_per_s:
                self.bounds.append((sample.at, sample.capacity_bytes_per_s))
            self._at.append(sample.at)
            self._sums.append(meter.bound_sums)
        self.figures = meter.figures

    def use_of_bound(self, from_at: float, until_at: float) -> float | None:
        """None without a bound, or without measurements."""
        if not self._at:
            return None
        first = max(0, bisect_right(self._at, from_at) - 1)
        last = min(len(self._at) - 1, bisect_left(self._at, until_at))
        carried, allowed = (
            after - before for before, after in zip(self._sums[first], self._sums[last], strict=True)
        )
        return carried / allowed if allowed > 0 else None


# How a crawl with `background` shared the link with its other users: one line `yield` of the decision log for
# each second has its rate, what arrived, and how long a packet waited at the bottleneck.

_LINE = re.compile(rb'[^\n]*"decision":"yield"[^\n]*\n')
_BLOCK_BYTES = 4 * 1024 * 1024
_BIN_S = 0.0005
_BINS = 4000
_SECONDS_APART = 64
"""Lines of several processes are in order only for each of them."""
_GAVE_WAY = frozenset({"yielding", "waiting"})


class LinkSharing(msgspec.Struct, frozen=True):
    """The sums, and the last second."""

    doing: str
    rate_bytes_per_s: float
    """To which it limits itself now."""
    delivered_bytes_per_s: float
    queue_s: float | None
    """How long a packet waits at the bottleneck now, as far as it can be measured; None if it cannot."""
    seconds: int
    measured: int
    """Seconds in which the wait could be measured."""
    queue_p50_s: float | None
    queue_p95_s: float | None
    gave_way_s: int
    """Seconds in which it went below what it had, because others were sending."""
    mean_rate_bytes_per_s: float

    def now(self) -> str:
        """For one line of a terminal."""
        queue = "not measured" if self.queue_s is None else f"{1000 * self.queue_s:.0f} ms"
        return f"{self.doing}: queue {queue}, at most {format_rate(self.rate_bytes_per_s)}"

    def so_far(self) -> str:
        """What the other users felt, as far as we can tell."""
        told = f"gave way to others in {self.gave_way_s:,} of {self.seconds:,} seconds"
        if self.queue_p50_s is None or self.queue_p95_s is None:
            return f"{told}; the queue at the bottleneck could not be measured"
        p50, p95 = 1000 * self.queue_p50_s, 1000 * self.queue_p95_s
        return (
            f"{told}; packets waited {p50:.0f} ms at the bottleneck half of the time, at most {p95:.0f} ms"
            f" in 95% of it (measured in {self.measured:,} seconds)"
        )


class SharingMeter:
    """Adds up the seconds. Its memory does not grow."""

    def __init__(self) -> None:
        self._bins = [0] * _BINS
        self._measured = self._seconds = self._gave_way = 0
        self._rates = 0.0
        self._lately: deque[int] = deque(maxlen=_SECONDS_APART)
        self._last: Decision | None = None

    def add(self, decision: Decision) -> None:
        second = int(decision.at)
        if second in self._lately:
            return  # by another process: they agree on what they do, and each says it
        self._lately.append(second)
        if self._last is None or decision.at > self._last.at:
            self._last = decision
        self._seconds += 1
        self._rates += decision.rate_bytes_per_s or 0.0
        self._gave_way += decision.reason in _GAVE_WAY
        if decision.queue_s is not None:
            self._measured += 1
            self._bins[min(_BINS - 1, max(0, int(decision.queue_s / _BIN_S)))] += 1

    def read(self) -> LinkSharing | None:
        last = self._last
        if last is None:
            return None
        return LinkSharing(
            doing=last.reason,
            rate_bytes_per_s=last.rate_bytes_per_s or 0.0,
            delivered_bytes_per_s=last.delivered_bytes_per_s or 0.0,
            queue_s=last.queue_s,
            seconds=self._seconds,
            measured=self._measured,
            queue_p50_s=self._quantile(0.5),
            queue_p95_s=self._quantile(0.95),
            gave_way_s=self._gave_way,
            mean_rate_bytes_per_s=self._rates / self._seconds,
        )

    def _quantile(self, quantile: float) -> float | None:
        below = quantile * self._measured
        for number, count in enumerate(self._bins):
            below -= count
            if count and below <= 0:
                return number * _BIN_S
        return None


class SharingLog:
    """Reads the lines of a decision log that have been added since the last call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_to = 0
        self._meter = SharingMeter()
        self._decoder = msgspec.json.Decoder(Decision)

    def read(self) -> LinkSharing | None:
        """None if the log has no such line."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_to)
                self._take_in(file)
        except OSError:
            pass
        return self._meter.read()

    def _take_in(self, file: IO[bytes]) -> None:
        while block := file.read(_BLOCK_BYTES):
            end = block.rfind(b"\n") + 1
            if not end:
                return
            self._read_to += end
            file.seek(self._read_to)
            for line in _LINE.findall(block, 0, end):
                try:
                    self._meter.add(self._decoder.decode(line))
                except msgspec.DecodeError:
                    continue


def sharing_log_of(run: Path | str, job: Mapping[str, Any]) -> SharingLog | None:
    """None for a crawl without `background`, or on a PostgreSQL server."""
    if is_address(str(run)) or not (job.get("crawl") or {}).get("background"):
        return None
    return SharingLog(database_of(Path(run)).parent / DECISIONS)
