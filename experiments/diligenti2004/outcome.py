"""What a run gives: one-second samples, and in which order the pages were begun."""

from __future__ import annotations

import msgspec


class Outcome(msgspec.Struct, frozen=True):
    where: str
    """`lab` or `simulation`."""
    manager: str
    """`maxd 6`, `maxd 2`, `naive` or `headway`."""
    measured: list[float]
    predicted: list[float]
    begun_ranks: list[int]
    """Places in the score order, in the order in which the downloads were begun."""

    def overtaken(self) -> float:
        """How many pages of a better score a page was begun before, on average over those begun."""
        pending: list[int] = []
        best_left = 0
        overtaking = 0
        begun = set()
        for rank in self.begun_ranks:
            begun.add(rank)
            while best_left in begun:
                best_left += 1
            pending = [r for r in range(best_left, rank) if r not in begun]
            overtaking += len(pending)
        return overtaking / len(self.begun_ranks) if self.begun_ranks else 0.0
