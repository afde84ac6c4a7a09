"""What goes when a bounded memory is full."""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

_PARTS = 8


def keep_last(entries: dict[K, V], most: int) -> None:
    """Where there are more entries than so many, the oldest go: an eighth of them.

    Not one at a time: a dictionary looks for its first entry by passing over all that were there before, and
    with tens of thousands of entries that takes tens of microseconds each time.
    """
    if len(entries) > most:
        for key in list(islice(entries, most // _PARTS + 1)):
            del entries[key]
