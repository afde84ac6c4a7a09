"""Admission control of downloads by their predicted rates (diligenti2004), and its baseline."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from headway.units import BytesPerSecond, Instant, Seconds

Id = TypeVar("Id", bound=Hashable)

PATIENCE_S = Seconds(30.0)
_LEAST_ROOM = 0.1
"""Of the bound: with less a download would only prolong the others."""


class Admission(Generic[Id]):
    """Chooses the downloads that may start so that the predicted rates stay under the bound (diligenti2004).

    CB is the sum of the predicted rates of all running downloads. The queue is searched from its head to a
    fixed depth, and every download that still fits is started. A download that does not fit is not skipped
    forever: after `patience_s` everything else waits until it can start, alone if necessary.

    With `paced` a pacer holds all downloads together to the bound, as in a crawl. A download then takes at
    most what the others leave, so the first in the queue starts where none fits and a part is left.
    """

    def __init__(
        self,
        bound_bytes_per_s: BytesPerSecond,
        *,
        max_depth: int = 6,
        patience_s: Seconds = PATIENCE_S,
        paced: bool = False,
    ) -> None:
        if max_depth < 1:
            raise ValueError(f"max_depth must be at least 1, not {max_depth}")
        self.bound_bytes_per_s = bound_bytes_per_s
        """May be changed at any time; running downloads continue."""
        self.max_depth = max_depth
        self._patience_s = patience_s
        self._least_room = _LEAST_ROOM if paced else 1.0
        self._under_way: dict[Id, float] = {}
        self._committed = 0.0
        self._passed_over_at: dict[Id, Instant] = {}

    @property
    def committed_bytes_per_s(self) -> BytesPerSecond:
        """The paper's CB."""
        return BytesPerSecond(self._committed)

    def admit(self, now: Instant, candidates: Sequence[tuple[Id, BytesPerSecond]]) -> list[int]:
        """The indexes of the candidates (best first, with their predicted rates) to start now.

        Only the first `max_depth` are considered. The caller confirms each download that it starts with
        `started`. As long as something was chosen, a further call may choose more.
        """
        # The paper prints "until CB <= L", but means that the scan continues while CB < L and d < maxd.
        window = candidates[: self.max_depth]
        starving = self._starving(now, window)
        if starving is not None:
            rate = window[starving][1]
            fits = self._committed + rate <= self.bound_bytes_per_s or self._has_room(self._committed)
            return [starving] if fits or not self._under_way else []
        chosen = []
        committed = self._committed
        alone = not self._under_way
        for index, (_, rate) in enumerate(window):
            # If nothing is running, the head starts whatever its rate: it would never fit otherwise.
            if committed + rate <= self.bound_bytes_per_s or (alone and index == 0):
                chosen.append(index)
                committed += rate
        if not chosen and window and self._has_room(committed):
            chosen.append(0)
        self._remember_passed_over(now, window, chosen)
        return chosen

    def started(self, download: Id, predicted_bytes_per_s: BytesPerSecond) -> None:
        if download in self._under_way:
            raise ValueError(f"{download!r} has already started")
        rate = float(predicted_bytes_per_s)
        if self._least_room < 1.0 and self._under_way:
            rate = min(rate, max(0.0, self.bound_bytes_per_s - self._committed))
        self._under_way[download] = rate
        self._committed += rate
        self._passed_over_at.pop(download, None)

    def ended(self, download: Id) -> None:
        self._committed -= self._under_way.pop(download)
        if not self._under_way:
            # Sums of floats drift, so the sum is reset whenever nothing is running.
            self._committed = 0.0

    def _has_room(self, committed: float) -> bool:
        """Whether a download can start at what is left of the bound."""
        return committed <= (1.0 - self._least_room) * self.bound_bytes_per_s and self._least_room < 1.0

    def _starving(self, now: Instant, window: Sequence[tuple[Id, BytesPerSecond]]) -> int | None:
        """The index of the download skipped for the longest time, if that is at least `patience_s`."""
        waited = [
            (self._passed_over_at[download], index)
            for index, (download, _) in enumerate(window)
            if download in self._passed_over_at
        ]
        if not waited:
            return None
        since, index = min(waited)
        return index if now - since >= self._patience_s else None

    def _remember_passed_over(
        self, now: Instant, window: Sequence[tuple[Id, BytesPerSecond]], chosen: Sequence[int]
    ) -> None:
        before = self._passed_over_at
        self._passed_over_at = {
            download: before.get(download, now)
            for index, (download, _) in enumerate(window)
            if index not in chosen
        }


class NaiveController:
    """The controller of Shkapenyuk and Suel, the baseline in figure 3 of diligenti2004.

    It stops a fetcher when the measured bandwidth is above the bound and starts one when it is below. It
    oscillates, because the measurement lags behind each change.
    """

    def __init__(self, bound_bytes_per_s: BytesPerSecond, *, most_fetchers: int) -> None:
        if most_fetchers < 1:
            raise ValueError(f"most_fetchers must be at least 1, not {most_fetchers}")
        self.bound_bytes_per_s = bound_bytes_per_s
        self._most = most_fetchers
        self._fetchers = 1

    @property
    def fetchers(self) -> int:
        """How many fetchers may run now."""
        return self._fetchers

    def measured(self, rate_bytes_per_s: BytesPerSecond) -> int:
        """Record the bandwidth of the last period. Returns the number of fetchers for the next one."""
        if rate_bytes_per_s > self.bound_bytes_per_s:
            self._fetchers = max(0, self._fetchers - 1)
        elif rate_bytes_per_s < self.bound_bytes_per_s:
            self._fetchers = min(self._most, self._fetchers + 1)
        return self._fetchers
