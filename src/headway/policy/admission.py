"""Which downloads may start so that the predicted rates stay under the bound (diligenti2004).

CB is the sum of the predicted rates of all downloads under way. The queue is looked through from its
head to a fixed depth, and whatever still fits is started. One that cannot fit is not passed over for
ever: after some patience everything else waits until it can start, alone if need be.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from headway.units import BytesPerSecond, Instant, Seconds

Id = TypeVar("Id", bound=Hashable)

PATIENCE_S = Seconds(30.0)


class Admission(Generic[Id]):
    def __init__(
        self, bound_bytes_per_s: BytesPerSecond, *, max_depth: int = 6, patience_s: Seconds = PATIENCE_S
    ) -> None:
        if max_depth < 1:
            raise ValueError(f"the queue must be searched to a depth of 1 at least, not {max_depth}")
        self.bound_bytes_per_s = bound_bytes_per_s
        """May be changed at any time; what is under way goes on."""
        self.max_depth = max_depth
        self._patience_s = patience_s
        self._under_way: dict[Id, float] = {}
        self._committed = 0.0
        self._passed_over_at: dict[Id, Instant] = {}

    @property
    def committed_bytes_per_s(self) -> BytesPerSecond:
        """The paper's CB."""
        return BytesPerSecond(self._committed)

    def admit(self, now: Instant, candidates: Sequence[tuple[Id, BytesPerSecond]]) -> list[int]:
        """Which of the candidates (best first, with their predicted rates) to start now.

        Only the first `max_depth` are looked at. Those that the caller starts it confirms with `started`;
        while something was chosen, a further call may find more.
        """
        # The paper prints "until CB <= L"; meant is that the scan goes on while CB < L and d < maxd.
        window = candidates[: self.max_depth]
        starving = self._starving(now, window)
        if starving is not None:
            rate = window[starving][1]
            return (
                [starving] if not self._under_way or self._committed + rate <= self.bound_bytes_per_s else []
            )
        chosen = []
        committed = self._committed
        alone = not self._under_way
        for index, (_, rate) in enumerate(window):
            # With nothing under way the head starts whatever its rate: it would never fit otherwise.
            if committed + rate <= self.bound_bytes_per_s or (alone and index == 0):
                chosen.append(index)
                committed += rate
        self._remember_passed_over(now, window, chosen)
        return chosen

    def started(self, download: Id, predicted_bytes_per_s: BytesPerSecond) -> None:
        if download in self._under_way:
            raise ValueError(f"{download!r} is under way already")
        self._under_way[download] = predicted_bytes_per_s
        self._committed += predicted_bytes_per_s
        self._passed_over_at.pop(download, None)

    def ended(self, download: Id) -> None:
        self._committed -= self._under_way.pop(download)
        if not self._under_way:
            # Sums of floats drift; an empty link is the moment to be exact again.
            self._committed = 0.0

    def _starving(self, now: Instant, window: Sequence[tuple[Id, BytesPerSecond]]) -> int | None:
        """The one passed over longest, when that is longer than patience lasts."""
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
