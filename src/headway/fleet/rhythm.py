"""When a collector beats, and how long its pages will last if they go on settling as fast as lately."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from headway.model.command import PageState, SaveSettled, Saving

BEAT_EVERY_S = 0.5
QUICK_BEAT_S = 0.15
"""While we have nothing to do, or somebody waits for what we have."""
_GROWTH = 1.2
"""Who waits asks again soon, then more and more slowly: most often the answer is there in a moment."""
_BEATS_LEFT = 3
"""Who will be done before long says so in time."""
_COMMITS_KEPT = 10
_COMMITS_NEEDED = 3
_LATELY_S = 2.0
"""Who commits more seldom than that waits for sites rather than for a processor: nobody can tell how long."""
_ASKED_FOR = frozenset({PageState.DONE, PageState.FAILED, PageState.WAITING})


class Rhythm:
    def __init__(self, quickest_s: float = QUICK_BEAT_S) -> None:
        self._quickest_s = self._quick_s = quickest_s
        self._commits: deque[tuple[float, int]] = deque(maxlen=_COMMITS_KEPT)
        self._is_due = asyncio.Event()
        self._has_pages = False

    def beat_now(self) -> None:
        self._is_due.set()

    def saved(self, at: float, batch: Sequence[Saving], pages_left: int) -> None:
        """Who has just come to the end of its pages does not wait for its next beat to say so."""
        settled = [each for each in batch if isinstance(each, SaveSettled) and each.state in _ASKED_FOR]
        self._commits.append((at, len(settled)))
        if self._has_pages and not pages_left:
            self.beat_now()

    def left_s(self, now: float, pages_left: int) -> float | None:
        """None while nothing can be said."""
        lately = [commit for commit in self._commits if commit[0] > now - _LATELY_S]
        if len(lately) < _COMMITS_NEEDED:
            return None
        passed_s = lately[-1][0] - lately[0][0]
        settled = sum(count for _, count in lately) - lately[0][1]
        return pages_left * passed_s / settled if settled else None

    async def pause(self, asked_at: float, pages_left: int, *, is_waiting: bool) -> None:
        self._has_pages = pages_left > 0
        with suppress(TimeoutError):
            pause_s = self._pause_s(asked_at, pages_left, is_waiting=is_waiting)
            async with asyncio.timeout_at(asked_at + pause_s):
                await self._is_due.wait()
        self._is_due.clear()

    def _pause_s(self, now: float, pages_left: int, *, is_waiting: bool) -> float:
        if is_waiting:
            pause_s, self._quick_s = self._quick_s, min(QUICK_BEAT_S, _GROWTH * self._quick_s)
            return pause_s
        self._quick_s = self._quickest_s
        left_s = self.left_s(now, pages_left)
        return BEAT_EVERY_S if left_s is None else min(BEAT_EVERY_S, max(QUICK_BEAT_S, left_s / _BEATS_LEFT))
