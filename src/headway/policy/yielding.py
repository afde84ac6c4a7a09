"""Yield to the other users of the link: find the rate that leaves no standing queue at its bottleneck.

`QueueDelay` turns the round-trip times of many connections into one number, the time that a packet waits at
the bottleneck. `Yield` turns that number and the rate at which bytes arrive into the rate at which the crawl
may receive, every 50 ms. `GroupYield` does so for one of several processes behind the same link: each has a
controller that stands for the whole crawl, all see the same queue, and a few times a second they exchange
what they measure and agree on the rate and on the part of each. None of them reads a clock. The constants
were found in a lab with users beside the crawler; `docs/decisions/background.md` has the measurements.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Hashable, Sequence
from statistics import median_low

import msgspec

from headway.units import BytesPerSecond, Instant, Seconds, format_rate

STEP_S = 0.05
PACKET_BYTES = 1514

_WINDOW_S = 0.25
_WINDOW_PACKETS = 50
_LONGEST_WINDOW_S = 1.0
_FEWEST_SAMPLES = 4
_ENOUGH_SAMPLES = 8
_QUANTILE = 0.25
"""Of the waits of all connections. The least would follow one connection with an outdated measurement, the
mean every page of a user, which is not a standing queue."""
_BASE_BUCKET_S = 60.0
_BASE_BUCKETS = 10
_MOST_PATHS = 4096
_ROUND_TRIP_OVER = 0.02


class QueueDelay:
    """The time that packets wait at the bottleneck, measured on many paths.

    The wait on a path is the round-trip time less the shortest one of the last ten minutes to that server. A
    quantile of all waits of the last quarter of a second, less the least that this quantile has been, is the
    queue on the part of the way that the paths have in common.
    """

    def __init__(self, shortest_s: Sequence[tuple[Hashable, float]] = ()) -> None:
        """`shortest_s`: the shortest round trips of an earlier run, by path."""
        self._paths: dict[Hashable, _Lowest] = {}
        self._waits: deque[tuple[float, float]] = deque()
        self._lowest = _Lowest()
        self.round_trip_s = Seconds(0.04)
        """The shortest round trip of a usual path: a moving average over the measurements."""
        for path, round_trip_s in shortest_s:
            self._paths[path] = _Lowest(inherited=round_trip_s)

    def add(self, now: Instant, path: Hashable, round_trip_s: Seconds) -> None:
        """Take in a round-trip time that ended now."""
        if not 0.0 < round_trip_s < math.inf:
            return
        lowest = self._paths.get(path)
        if lowest is None:
            if len(self._paths) >= _MOST_PATHS:
                del self._paths[next(iter(self._paths))]
            lowest = self._paths[path] = _Lowest()
        shortest_s = lowest.with_new(now, round_trip_s)
        self.round_trip_s = Seconds(self.round_trip_s + _ROUND_TRIP_OVER * (shortest_s - self.round_trip_s))
        self._waits.append((now, round_trip_s - shortest_s))

    def of(self, now: Instant, packet_s: Seconds) -> tuple[float, float] | None:
        """The wait, and how far the median of the waits is above it; None if too little was measured.
        `packet_s`: the time that a packet takes on the link."""
        waits = self._waits
        while waits and not now - _LONGEST_WINDOW_S <= waits[0][0] <= now:
            waits.popleft()
        window_s = min(max(_WINDOW_S, _WINDOW_PACKETS * packet_s), _LONGEST_WINDOW_S)
        recent: list[float] = []
        for at, wait_s in reversed(waits):
            if at < now - window_s and len(recent) >= _ENOUGH_SAMPLES:
                break
            recent.append(wait_s)
        if len(recent) < _FEWEST_SAMPLES:
            return None
        recent.sort()
        low_s = recent[int(_QUANTILE * (len(recent) - 1))]
        return low_s - self._lowest.with_new(now, low_s), median_low(recent) - low_s

    def shortest(self) -> list[tuple[Hashable, float]]:
        """The shortest round trip of each path, for the next run."""
        return [(path, each.value) for path, each in self._paths.items() if math.isfinite(each.value)]


class _Lowest:
    """The lowest value of the last ten minutes."""

    __slots__ = ("_buckets", "value")

    def __init__(self, inherited: float = math.inf) -> None:
        self._buckets: deque[tuple[int, float]] = deque(maxlen=_BASE_BUCKETS)
        self.value = inherited

    def with_new(self, now: float, value: float) -> float:
        bucket = int(now // _BASE_BUCKET_S)
        if self._buckets and self._buckets[-1][0] == bucket:
            if value < self._buckets[-1][1]:
                self._buckets[-1] = (bucket, value)
        else:
            # An inherited value counts as one of now, and is forgotten with it.
            self._buckets.append((bucket, min(value, self.value) if not self._buckets else value))
            while self._buckets[0][0] <= bucket - _BASE_BUCKETS:
                self._buckets.popleft()
            self.value = min(each for _, each in self._buckets)
        self.value = min(self.value, value)
        return self.value


class Doing(enum.StrEnum):
    """What the controller does, for people."""

    STARTING = "starting"
    GROWING = "growing"
    YIELDING = "yielding"
    WAITING = "waiting"
    """It has given way, and waits for the others to finish."""
    AT_BOUND = "at the bound"


_START_SHARE = 0.05
_FLOOR_SHARE = 0.015
_LEAST_THRESHOLD_S = 0.004
_THRESHOLD_PACKETS = 2.5
_NOISE_WEIGHT = 0.5
_NOISE_OVER = 0.02
"""The part that a new measurement has in the moving average of the noise."""
_CUT = 0.85
_DEEP_CUT = 0.5
_OWN_FROM = 0.7
_DEEP_ABOVE = 6.0
"""A wait of more thresholds than this is not of our own making."""
_GROWTH_PER_S = 1.2
_LOW, _LOW_GROWTH_PER_S = 0.1, 2.0
"""Below this part of the peak a mistake costs others little. The few packets of a second say little about
whether the rate is used there, and waiting for more would keep the crawl at its floor for seconds."""
_RETURN_TO = 0.93
_RETURN_PER_S = 0.3
_SAME = 0.15
_HOLD_S = 2.0
_LONGEST_HOLD_S = 8.0
_HOLD_FACTOR = 2.0
"""Where the queue began is remembered: as long as it begins at about the same rate, the rate stays below it
for longer each time, since every look for more is felt by the others."""
_CREEP = 0.02
_FASTEST_CREEP = 0.32
_CREEP_DOUBLES_S = 2.0
_STAY_S = 1.0
_LONGEST_STAY_S = 2.0
_STAY_FACTOR = 1.5
_FAST_UNTIL, _STEADY_UNTIL = 0.7, 0.92
_STEADY_PER_S = 0.15
_CLEAR_BELOW, _BESIDE_OTHERS = 0.3, 0.35
USED_FROM, _USED_AT_START = 0.7, 0.3
_PEAK_OVER_S = 0.5
_PEAK_BUCKET_S, _PEAK_BUCKETS = 60.0, 10
_SLOW_LINK_BYTES_PER_S = 250_000.0
"""Below this one packet takes more than 6 ms, so that any rate but the least is felt by others."""


class Yield:
    """The rate at which the crawl may receive, at most the bound. Call `step` every 50 ms."""

    def __init__(self, bound_bytes_per_s: BytesPerSecond, *, start_bytes_per_s: float | None = None) -> None:
        """It starts at a twentieth of the bound unless `start_bytes_per_s` is given."""
        self._bound = math.nan
        self._floor = 0.0
        self._rate = 0.0
        self._steady = 0.0
        """What arrives, as a moving average: the peak of a shorter time would be that of a burst."""
        self._peaks: deque[tuple[int, float]] = deque(maxlen=_PEAK_BUCKETS)
        self._is_starting = True
        self._return_to = 0.0
        """The rate before the last small cut, to which the rate returns soon."""
        self._hold_s = _HOLD_S
        self._was_deep = False
        self._stay_s = _STAY_S
        self._still_until = self._look_at = self._cut_at = -math.inf
        self._noise_s = 0.0
        self._stepped_at: float | None = None
        self._clear_since = 0.0
        self.queue_s: float | None = None
        """The wait at the last step; None if it could not be measured."""
        self.measured_s: float | None = None
        """The same by our own transfers alone."""
        self.doing = Doing.STARTING
        self.cuts = 0
        self.set_bound(bound_bytes_per_s)
        start = _START_SHARE * self._bound if start_bytes_per_s is None else start_bytes_per_s
        self._rate = min(max(self._floor, start), self._bound)

    @property
    def rate_bytes_per_s(self) -> BytesPerSecond:
        return BytesPerSecond(min(self._rate, self._bound))

    @property
    def peak_bytes_per_s(self) -> float:
        """The highest rate at which bytes arrived in the last ten minutes; 0 if none have."""
        return max((peak for _, peak in self._peaks), default=0.0)

    @property
    def packet_s(self) -> Seconds:
        """The time of a packet on the link, as far as it is known."""
        return Seconds(PACKET_BYTES / max(self.peak_bytes_per_s, PACKET_BYTES))

    @property
    def threshold_s(self) -> float:
        """A longer wait makes the rate fall."""
        threshold = max(_LEAST_THRESHOLD_S, _THRESHOLD_PACKETS * self.packet_s)
        threshold += _NOISE_WEIGHT * self._noise_s
        # At the floor there are few samples, and one page of a user would be taken for a queue.
        return 2.0 * threshold if self._rate < 0.1 * self.peak_bytes_per_s else threshold

    def set_bound(self, bound_bytes_per_s: BytesPerSecond) -> None:
        if not 0.0 < bound_bytes_per_s < math.inf:
            raise ValueError(f"the bound must be positive and finite, not {bound_bytes_per_s}")
        self._bound = float(bound_bytes_per_s)
        self._floor = _FLOOR_SHARE * self._bound
        self._rate = max(self._floor, min(self._rate, self._bound))

    def since_cut_s(self, now: Instant) -> float:
        """The time since it last gave way."""
        return now - self._cut_at

    def follow(self, rate_bytes_per_s: float) -> None:
        """Take over a rate that several controllers of one link have agreed on."""
        self._rate = max(self._floor, min(rate_bytes_per_s, self._bound))

    def end_start(self) -> None:
        """Another controller of the link has found its rate."""
        self._is_starting = False

    @property
    def is_starting(self) -> bool:
        return self._is_starting

    def step(
        self,
        now: Instant,
        delay: QueueDelay,
        delivered_bytes_per_s: float,
        *,
        has_lost: bool = False,
        elsewhere_s: float | None = None,
    ) -> BytesPerSecond:
        """The rate from now on. `delivered_bytes_per_s`: what arrived over about the last 0.4 s.
        `has_lost`: packets of ours were lost. `elsewhere_s`: the wait as another process behind the link
        measures it, for a process with too few transfers to measure it."""
        elapsed_s = STEP_S if self._stepped_at is None else now - self._stepped_at
        elapsed_s = min(max(0.0, elapsed_s), 4 * STEP_S)
        self._stepped_at = now
        self._steady += min(1.0, elapsed_s / _PEAK_OVER_S) * (delivered_bytes_per_s - self._steady)
        self._note_peak(now, self._steady)
        measured = delay.of(now, self.packet_s)
        self.measured_s = None if measured is None else max(0.0, measured[0])
        self.queue_s = elsewhere_s if measured is None else self.measured_s
        queue_s = self.queue_s or 0.0
        threshold_s = self.threshold_s
        if measured is not None and queue_s < threshold_s / 2:
            self._noise_s += _NOISE_OVER * (measured[1] - self._noise_s)
        if elapsed_s <= 0.0:
            return self.rate_bytes_per_s
        if now < self._look_at:
            return self.rate_bytes_per_s
        if queue_s > threshold_s or has_lost:
            self._cut(now, queue_s, delivered_bytes_per_s, delay.round_trip_s)
        else:
            self._grow(now, elapsed_s, queue_s / threshold_s, delivered_bytes_per_s)
        return self.rate_bytes_per_s

    def _cut(self, now: float, queue_s: float, delivered: float, round_trip_s: float) -> None:
        threshold_s, peak = self.threshold_s, self.peak_bytes_per_s
        used = min(self._rate, delivered) if delivered > 0.0 else self._rate
        is_again = now - self._look_at < 2 * STEP_S
        """The last cut has taken effect, and the queue still stands."""
        is_deep = is_again or queue_s > _DEEP_ABOVE * threshold_s or self._rate < 0.5 * peak
        if peak and peak < _SLOW_LINK_BYTES_PER_S:
            self._rate = self._floor
            is_deep = True
        else:
            self._rate = max(self._floor, (_DEEP_CUT if is_deep else _CUT) * used)
        if is_deep and delivered > _OWN_FROM * peak and peak >= _SLOW_LINK_BYTES_PER_S:
            # We had nearly all of the link, so the queue is of our own making: no reason to wait for others.
            self._return_to = min(used, self._return_to) if is_again and self._return_to else used
            self._hold_s = _HOLD_S
            is_deep = False
        elif is_deep:
            self._stay_s = min(self._stay_s * _STAY_FACTOR, _LONGEST_STAY_S) if self._was_deep else _STAY_S
            self._still_until = now + self._stay_s
            self._return_to = 0.0
            self._hold_s = _HOLD_S
        else:
            is_same = abs(used - self._return_to) < _SAME * used
            self._hold_s = min(_HOLD_FACTOR * self._hold_s, _LONGEST_HOLD_S) if is_same else _HOLD_S
            self._return_to = used
        self._was_deep = is_deep
        self._is_starting = False
        self._cut_at = self._clear_since = now
        self._look_at = now + _WINDOW_S + round_trip_s + queue_s / 2
        self.cuts += 1
        self.doing = Doing.YIELDING

    def _grow(self, now: float, elapsed_s: float, of_threshold: float, delivered: float) -> None:
        peak = self.peak_bytes_per_s
        if self._is_starting and of_threshold > 0.5:
            self._is_starting = False
            self._clear_since = now
        if now < self._still_until:
            self.doing = Doing.WAITING
            return
        if self._rate >= self._bound:
            self.doing = Doing.AT_BOUND
            return
        is_low = self._rate < _LOW * peak
        if delivered < (_USED_AT_START if self._is_starting or is_low else USED_FROM) * self._rate:
            # What is not used must not grow: nobody knows whether the link has it.
            self._clear_since = max(self._clear_since, now - _CREEP_DOUBLES_S)
            return
        self.doing = Doing.STARTING if self._is_starting else Doing.GROWING
        part = elapsed_s * (1.0 - of_threshold)
        if not self._is_starting and not self._return_to and of_threshold > _CLEAR_BELOW:
            # Others were sending a moment ago. A little queue may be all that is left of them: some ways of
            # congestion control give way to a flow that returns quickly.
            part *= _BESIDE_OTHERS
        if self._is_starting:
            self._rate *= math.exp(_GROWTH_PER_S * part)
        elif self._return_to and self._rate < _RETURN_TO * self._return_to:
            self._rate += _RETURN_PER_S * self._return_to * part
            self._clear_since = now
        elif not self._return_to and self._rate < _FAST_UNTIL * peak:
            self._rate *= math.exp((_LOW_GROWTH_PER_S if is_low else _GROWTH_PER_S) * part)
            self._clear_since = now
        elif not self._return_to and self._rate < _STEADY_UNTIL * peak:
            self._rate += _STEADY_PER_S * peak * part
            self._clear_since = now
        else:
            clear_s = now - self._clear_since - (self._hold_s if self._return_to else 0.0)
            if clear_s < 0.0:
                return
            creep = min(_CREEP * 2.0 ** min(clear_s / _CREEP_DOUBLES_S, 8.0), _FASTEST_CREEP)
            self._rate += creep * max(peak, self._floor) * part
        self._rate = min(self._rate, self._bound)
        if self._rate > 0.5 * peak:
            self._was_deep = False

    def _note_peak(self, now: float, delivered: float) -> None:
        bucket = int(now // _PEAK_BUCKET_S)
        if self._peaks and self._peaks[-1][0] == bucket:
            if delivered > self._peaks[-1][1]:
                self._peaks[-1] = (bucket, delivered)
        else:
            self._peaks.append((bucket, delivered))
            while self._peaks[0][0] <= bucket - _PEAK_BUCKETS:
                self._peaks.popleft()


# A bound that is a part of the link, "60% of link". Now and then the crawl looks for more: its rate grows by
# the rules above until packets begin to wait at the bottleneck. What arrives at that moment is what the link
# has for us; between two looks the bound is a part of it.

LOOK_BOUND_BYTES_PER_S = BytesPerSecond(1.25e9)
"""The bound during the first look: more than the links of crawlers carry."""
LOOK_START_BYTES_PER_S = 60_000.0
_LOOK_MOST = 3.0
"""A later look goes no further than this multiple of what is known."""
_LOOK_EVERY_S = Seconds(60.0)
_LONGEST_LOOK_S = Seconds(10.0)
_FIRST_LOOK_S = Seconds(20.0)
_KEPT_S = 3600.0
_KEPT = 16
_SINGLE_ERROR = 0.1
"""The error of a single look: others may have used a part of the link at that moment."""


class Look(msgspec.Struct, frozen=True):
    """What one look found."""

    at: float
    rate_bytes_per_s: float
    is_full: bool
    """Whether packets began to wait; otherwise the sites had no more to give, and the link carries at least
    this."""


class LinkEstimate(msgspec.Struct, frozen=True):
    """What the link carries, in bytes per second."""

    rate_bytes_per_s: float
    low_bytes_per_s: float
    high_bytes_per_s: float | None
    """None if no look has filled the link: it carries at least `low_bytes_per_s`."""
    looks: int

    def text(self) -> str:
        if self.high_bytes_per_s is None:
            return f"the link carries at least {format_rate(self.low_bytes_per_s)} ({self.looks} looks)"
        return (
            f"the link carries {format_rate(self.rate_bytes_per_s)},"
            f" between {format_rate(self.low_bytes_per_s)} and"
            f" {format_rate(self.high_bytes_per_s)} ({self.looks} looks)"
        )


class Phase(enum.Enum):
    LOOKING = 1
    HOLDING = 2


class LinkShare:
    """Decides when to look, and the bound in between."""

    def __init__(self, part: float, looks: Sequence[Look] = ()) -> None:
        """`looks` of an earlier run."""
        self._part = part
        self.looks: deque[Look] = deque(looks, maxlen=_KEPT)
        self.phase = Phase.HOLDING if looks else Phase.LOOKING
        self._since: float | None = None
        self._highest = 0.0

    @property
    def bound_bytes_per_s(self) -> BytesPerSecond:
        """What the crawl may use now."""
        estimate = self.estimate
        if self.phase is Phase.LOOKING:
            if estimate is None:
                return LOOK_BOUND_BYTES_PER_S
            return BytesPerSecond(_LOOK_MOST * (estimate.high_bytes_per_s or estimate.low_bytes_per_s))
        assert estimate is not None
        return BytesPerSecond(self._part * estimate.rate_bytes_per_s)

    @property
    def estimate(self) -> LinkEstimate | None:
        """None before the first look has ended."""
        if not self.looks:
            return None
        full = [look.rate_bytes_per_s for look in self.looks if look.is_full]
        if not full:
            most = max(look.rate_bytes_per_s for look in self.looks)
            return LinkEstimate(most, most, None, len(self.looks))
        # Others take from what we see, and never add to it: the highest is nearest to the truth.
        most = max(full)
        low = max([most * (1.0 - _SINGLE_ERROR / 2), *(rate for rate in sorted(full)[-2:-1])])
        return LinkEstimate(most, min(low, most), most * (1.0 + _SINGLE_ERROR), len(self.looks))

    def step(self, now: Instant, delivered_bytes_per_s: float, *, is_full: bool) -> bool:
        """True if the bound has changed. `is_full`: packets have begun to wait since the look began."""
        if self._since is None:
            self._since = now
            return True
        if self.phase is Phase.HOLDING:
            if now - self._since < _LOOK_EVERY_S:
                return False
            self.phase, self._since, self._highest = Phase.LOOKING, now, 0.0
            return True
        self._highest = max(self._highest, delivered_bytes_per_s)
        most_s = _LONGEST_LOOK_S if self.looks else _FIRST_LOOK_S
        if not is_full and now - self._since < most_s:
            return False
        if self._highest <= 0.0:
            self._since = now  # nothing has arrived yet
            return False
        while self.looks and self.looks[0].at < now - _KEPT_S:
            self.looks.popleft()
        self.looks.append(Look(now, self._highest, is_full))
        self.phase, self._since = Phase.HOLDING, now
        return True


_HEARD_S = 2.0
"""A process that has said nothing for so long is not counted."""
_SETTLES_S = 0.3
"""What a process says within this time of our own cut was said without knowing of it."""
_LEAST_CLAIM = 0.1
"""Of what a process that uses nothing is entitled to, so that it can begin."""


class LinkUse(msgspec.Struct, frozen=True):
    """What one of the processes behind a link does."""

    at: float
    """By the clock that all of them follow."""
    bound_bytes_per_s: float
    """Its share of the bound."""
    rate_bytes_per_s: float
    """What its controller lets all processes receive together."""
    pace_bytes_per_s: float
    """Its own part of that."""
    delivered_bytes_per_s: float
    queue_s: float | None
    is_starting: bool

    def claim(self, all_bounds_bytes_per_s: float) -> float:
        """Its weight among the processes: its share of the bound, or less if it does not use its part."""
        if self.delivered_bytes_per_s >= USED_FROM * self.pace_bytes_per_s:
            return self.bound_bytes_per_s
        due = self.rate_bytes_per_s * self.bound_bytes_per_s / max(all_bounds_bytes_per_s, 1.0)
        used = self.delivered_bytes_per_s / max(USED_FROM * due, 1.0)
        return self.bound_bytes_per_s * min(1.0, max(_LEAST_CLAIM, used))


class Companions:
    """The other processes behind the link, as they last reported."""

    def __init__(self) -> None:
        self._uses: list[LinkUse] = []

    def hear(self, uses: Sequence[LinkUse]) -> None:
        self._uses = list(uses)

    def at(self, now: Instant) -> list[LinkUse]:
        """`now`: by the clock that all of them follow."""
        return [use for use in self._uses if abs(now - use.at) < _HEARD_S]

    def bound_bytes_per_s(self, now: Instant) -> float:
        return sum(use.bound_bytes_per_s for use in self.at(now))

    def delivered_bytes_per_s(self, now: Instant, rate_bytes_per_s: float) -> float:
        """What arrives for them, if they have followed when the common rate fell."""
        return sum(
            use.delivered_bytes_per_s * min(1.0, rate_bytes_per_s / max(use.rate_bytes_per_s, 1.0))
            for use in self.at(now)
        )

    def queue_s(self, now: Instant) -> float | None:
        """The wait as the last of them to measure it has seen it."""
        measured = [(use.at, use.queue_s) for use in self.at(now) if use.queue_s is not None]
        return max(measured)[1] if measured else None

    def part(self, now: Instant, own: LinkUse) -> float:
        """The part of the common rate that is our own."""
        others = self.at(now)
        bounds = own.bound_bytes_per_s + sum(use.bound_bytes_per_s for use in others)
        claims = sum(use.claim(bounds) for use in others)
        mine = own.claim(bounds)
        return mine / (mine + claims) if mine > 0.0 else 0.0

    def agreed(self, now: Instant, own: LinkUse, since_cut_s: float) -> float | None:
        """The rate for all: the mean of what they say, by what arrives for each. None: keep our own."""
        known = [use for use in self.at(now) if now - use.at < since_cut_s - _SETTLES_S]
        if not known:
            return None
        known.append(own)
        arrives = sum(use.delivered_bytes_per_s for use in known)
        if arrives <= 0.0:
            return None
        return sum(use.delivered_bytes_per_s * use.rate_bytes_per_s for use in known) / arrives

    def have_started(self, now: Instant) -> bool:
        """Whether one of them has found the rate of the link."""
        return any(not use.is_starting for use in self.at(now))


class GroupYield:
    """The controller of one process, in agreement with those of the others."""

    def __init__(self, bound_bytes_per_s: BytesPerSecond, start_bytes_per_s: float | None = None) -> None:
        self.control = Yield(bound_bytes_per_s, start_bytes_per_s=start_bytes_per_s)
        self._bound = bound_bytes_per_s
        self._others = Companions()
        self._others_bound = 0.0
        self._ahead_s = 0.0
        """The clock that all processes follow, less our own."""
        self._part = 1.0
        self._own_bytes_per_s = 0.0
        self.delivered_bytes_per_s = 0.0
        """What arrives over the link, for all processes."""

    @property
    def pace_bytes_per_s(self) -> float:
        """At which this process may receive."""
        return self._part * self.control.rate_bytes_per_s

    def set_bound(self, bound_bytes_per_s: BytesPerSecond) -> None:
        """The share of the bound that this process has."""
        self._bound = bound_bytes_per_s
        self.control.set_bound(BytesPerSecond(bound_bytes_per_s + self._others_bound))

    def step(
        self, now: Instant, delay: QueueDelay, delivered_bytes_per_s: float, *, has_lost: bool = False
    ) -> None:
        """As `Yield.step`; `delivered_bytes_per_s` is what arrives for this process."""
        there = Instant(now + self._ahead_s)
        others = self._others.delivered_bytes_per_s(there, self.control.rate_bytes_per_s)
        self._own_bytes_per_s = delivered_bytes_per_s
        self.delivered_bytes_per_s = delivered_bytes_per_s + others
        self.control.step(
            now,
            delay,
            self.delivered_bytes_per_s,
            has_lost=has_lost,
            elsewhere_s=self._others.queue_s(there),
        )

    def use(self, there: Instant) -> LinkUse:
        """What this process does, for the others. `there`: the time by the clock that all follow."""
        return LinkUse(
            there,
            self._bound,
            self.control.rate_bytes_per_s,
            self.pace_bytes_per_s,
            self._own_bytes_per_s,
            self.control.measured_s,
            self.control.is_starting,
        )

    def hear(self, now: Instant, there: Instant, others: Sequence[LinkUse]) -> None:
        """Agree with the others. `now` and `there`: the time by our own clock, and by that of all."""
        self._ahead_s = there - now
        self._others.hear(others)
        self._others_bound = self._others.bound_bytes_per_s(there)
        self.control.set_bound(BytesPerSecond(self._bound + self._others_bound))
        own = self.use(there)
        self._part = self._others.part(there, own)
        agreed = self._others.agreed(there, own, self.control.since_cut_s(now))
        if agreed is not None:
            self.control.follow(agreed)
        if self._others.have_started(there):
            self.control.end_start()
