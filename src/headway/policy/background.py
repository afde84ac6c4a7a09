"""Yielding to the other users of the link, in the manner of LEDBAT (RFC 6817).

A round trip longer than the shortest of the last minutes has waited in a queue. Kept at a small target
that wait is not noticed by others; above it our rate goes down, below it the rate climbs back towards
the bound. It never falls under a floor, so that a crawl goes on, slowly, beside the heaviest traffic.
"""

from __future__ import annotations

import math
from collections import deque

from headway.units import BytesPerSecond, Instant, Seconds

TARGET_S = Seconds(0.06)
CLIMB_S = Seconds(10.0)
"""How long the way from nothing to the bound takes on an idle link."""
FLOOR_SHARE = 0.02

STEP_S = 0.2
CURRENT_S = 2.0
"""Waits older than this say nothing about the queue of now."""
FORESIGHT_S = 0.5
"""How far ahead a growing wait is carried on: rate and queue would swing against each other without it."""
BASE_BUCKET_S = 60.0
BASE_BUCKETS = 10
STANDING_S = 120.0
DIP_S = 2.0


class Background:
    def __init__(
        self,
        bound_bytes_per_s: BytesPerSecond,
        *,
        floor_bytes_per_s: BytesPerSecond | None = None,
        target_s: Seconds = TARGET_S,
        climb_s: Seconds = CLIMB_S,
    ) -> None:
        self._floor_asked = floor_bytes_per_s
        self._target_s = target_s
        self._climb_s = climb_s
        self._paths: dict[str, _Path] = {}
        self._stepped_at: Instant | None = None
        self._waited_s = 0.0
        self._queue_empty_at: Instant | None = None
        self._dip_until = Instant(-math.inf)
        self._bound = self._rate = 0.0
        self.set_bound(bound_bytes_per_s)

    @property
    def rate_bytes_per_s(self) -> BytesPerSecond:
        """What to keep the whole crawl under now."""
        return BytesPerSecond(min(self._bound, max(self._floor, self._rate)))

    def set_bound(self, bound_bytes_per_s: BytesPerSecond) -> None:
        """The timetable turned, or a person changed it: whoever was not yielding goes along at once."""
        if not (bound_bytes_per_s > 0 and math.isfinite(bound_bytes_per_s)):
            raise ValueError(
                f"yielding needs a positive, finite bound to come back to, not {bound_bytes_per_s}"
            )
        if self._rate >= self._bound:
            self._rate = float(bound_bytes_per_s)
        self._bound = float(bound_bytes_per_s)
        floor = self._bound * FLOOR_SHARE if self._floor_asked is None else float(self._floor_asked)
        self._floor = min(self._bound, floor)

    def sample(self, now: Instant, path: str, rtt_s: Seconds) -> BytesPerSecond:
        """Take in a round trip measured on the connection to `path`; gives the rate from now on."""
        if math.isfinite(rtt_s) and rtt_s > 0:
            self._paths.setdefault(path, _Path()).sample(now, rtt_s)
        if self._stepped_at is None or now < self._stepped_at:
            self._stepped_at = self._queue_empty_at = now
        elif now - self._stepped_at >= STEP_S:
            # After silence there is one step to make, not all those that were missed.
            self._step(now, min(now - self._stepped_at, 1.0))
            self._stepped_at = now
        return BytesPerSecond(self._floor) if now < self._dip_until else self.rate_bytes_per_s

    def _step(self, now: Instant, elapsed_s: float) -> None:
        waits = [wait for path in self._paths.values() if (wait := path.waiting_s(now)) is not None]
        if not waits:
            return
        # A queue on our own link delays every path; one that only some see is at a server's end.
        waiting_s = min(waits)
        if now >= self._dip_until:
            growing = (waiting_s - self._waited_s) / elapsed_s
            off_target = 1.0 - max(0.0, waiting_s + FORESIGHT_S * growing) / self._target_s
            if off_target >= 0:
                self._rate += off_target * self._bound * elapsed_s / self._climb_s
            else:
                self._rate *= 1.0 + max(-0.5, off_target * elapsed_s)
            self._rate = self.rate_bytes_per_s
        self._waited_s = waiting_s
        self._look_under_the_queue(now, waiting_s)
        self._forget_old_paths(now)

    def _look_under_the_queue(self, now: Instant, waiting_s: float) -> None:
        """A queue of our own that never empties would pass for the shortest round trip after some minutes,
        and we should add to it again and again: so step aside for a moment and see the link empty."""
        if self._queue_empty_at is None or waiting_s < self._target_s / 4:
            self._queue_empty_at = now
        elif now - self._queue_empty_at > STANDING_S:
            self._queue_empty_at = now
            self._dip_until = Instant(now + DIP_S)

    def _forget_old_paths(self, now: Instant) -> None:
        oldest = now - BASE_BUCKETS * BASE_BUCKET_S
        for name in [name for name, path in self._paths.items() if path.sampled_at < oldest]:
            del self._paths[name]


class _Path:
    """The shortest round trip of each of the last minutes, and those of the last moment."""

    def __init__(self) -> None:
        self._base: deque[tuple[int, float]] = deque(maxlen=BASE_BUCKETS)
        self._current: deque[tuple[float, float]] = deque(maxlen=4)
        self.sampled_at = -math.inf

    def sample(self, now: Instant, rtt_s: float) -> None:
        bucket = int(now // BASE_BUCKET_S)
        if self._base and self._base[-1][0] == bucket:
            self._base[-1] = (bucket, min(self._base[-1][1], rtt_s))
        else:
            self._base.append((bucket, rtt_s))
        self._current.append((now, rtt_s))
        self.sampled_at = now

    def waiting_s(self, now: Instant) -> float | None:
        current = [rtt_s for at, rtt_s in self._current if 0 <= now - at <= CURRENT_S]
        if not current:
            return None
        return min(current) - min(rtt_s for _, rtt_s in self._base)
