"""The bound on the link: what the timetable says, or a person; what the quotas leave; what others need.

The machine asks it at every step that may change it, and hands the answer on as an order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headway.policy.background import Background
from headway.policy.quota import QuotaTally
from headway.policy.timetable import Segment, Timetable
from headway.units import FOREVER, UNBOUNDED, BytesPerSecond, Instant, Seconds

NO_BOUND = Timetable(UNBOUNDED)


class LinkBound:
    def __init__(
        self,
        timetable: Timetable = NO_BOUND,
        quotas: Sequence[QuotaTally] = (),
        *,
        yields: bool = False,
    ) -> None:
        self._usual_timetable = self._timetable = timetable
        self._quotas = tuple(quotas)
        self._yields = yields
        self._background: Background | None = None
        self.is_paused = False
        self.capacity_bytes_per_s = UNBOUNDED
        self.changes_at = Instant(-FOREVER)
        """When to look again."""

    def set(self, now: Instant, capacity_bytes_per_s: BytesPerSecond | None) -> None:
        """A person's word counts until taken back with None."""
        capacity = capacity_bytes_per_s
        self._timetable = self._usual_timetable if capacity is None else Timetable(capacity)
        self.changes_at = now

    def pause(self, *, is_paused: bool) -> None:
        """While paused nothing more is asked for, whatever the quotas leave."""
        self.is_paused = is_paused

    def spend(self, now: Instant, received_bytes: int) -> None:
        for tally in self._quotas:
            tally.spend(now, received_bytes)

    def sense(self, now: Instant, path: str, round_trip_s: Seconds) -> None:
        """A round trip of one of our connections, when we yield to the other users of the link."""
        if self._background is not None:
            self._background.sample(now, path, round_trip_s)
            if self._yielded() != self.capacity_bytes_per_s:
                self.changes_at = now

    def look(self, now: Instant) -> bool:
        """Bring the capacity up to date; True if it has changed."""
        change_at = self._timetable.next_change_after(now)
        self.changes_at = FOREVER if change_at is None else change_at
        bound = self._timetable.capacity_at(now)
        if self._yields and bound and math.isfinite(bound):
            if self._background is None:
                self._background = Background(bound)
            else:
                self._background.set_bound(bound)
            bound = self._yielded()
        else:
            self._background = None
        has_changed = bound != self.capacity_bytes_per_s
        self.capacity_bytes_per_s = bound
        return has_changed

    def allows(self, now: Instant, wanted_bytes: float) -> bool:
        """Whether so much more, with all that is under way, still fits into every quota."""
        return not self.is_paused and all(
            tally.remaining_bytes(now) >= wanted_bytes for tally in self._quotas
        )

    def renews_at(self, now: Instant) -> Instant:
        """When a quota that is used up is renewed."""
        return min((tally.renews_at(now) for tally in self._quotas), default=FOREVER)

    def ahead(self, now: Instant, horizon_s: Seconds) -> list[Segment]:
        """The bound from now on, piece by piece; zero where a quota will be used up."""
        segments = self._timetable.segments(now, horizon_s)
        for tally in self._quotas:
            segments = tally.cut(now, segments)
        return segments

    def _yielded(self) -> BytesPerSecond:
        assert self._background is not None
        return self._background.rate_bytes_per_s
