"""Memory as a budget: how much all answers hold together, from their first megabyte to their archiving.

When it is short, answers are read no further and new requests wait. That cannot last for ever: if all that
hold memory wait for more, the one that has waited longest gets it, since only progress gives memory back.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path

STEP_BYTES = 1 << 20
"""An answer takes memory in such steps. The first is free, so that most answers cost nothing here."""
_SHORT_PART = 0.9
_LEAST_BYTES = 64 << 20
_PART_OF_MACHINE = 2
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def answers_bytes(memory_bytes: int | None = None) -> int:
    """What answers may hold in one process: half of the crawl's memory, divided by the cores, since there may
    be as many processes. None: what the machine or the system's limits allow."""
    limits = [memory_bytes] if memory_bytes else []
    limits += [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    with suppress(OSError, ValueError):  # no such limit
        limits.append(int(_CGROUP.read_text()))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return max(_LEAST_BYTES, min(limits) // (_PART_OF_MACHINE * cores))


class MemoryBudget:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, tuple[int, Callable[[], None]]] = {}
        """In the order in which they began to wait."""

    @property
    def is_short(self) -> bool:
        """Whether new requests have to wait."""
        return bool(self._waiting) or self.held_bytes > _SHORT_PART * self._limit_bytes

    def take(self, owner: Hashable, size_bytes: int, on_granted: Callable[[], None]) -> bool:
        """Add to what the owner holds. False: `on_granted` is called when there is room, unless the owner
        releases before."""
        if not self._waiting and self._fits(size_bytes):
            self._grant(owner, size_bytes)
            return True
        self._waiting[owner] = (size_bytes, _ignore)
        self._wake()
        if owner not in self._waiting:
            return True
        self._waiting[owner] = (size_bytes, on_granted)
        return False

    async def room(self, owner: Hashable, size_bytes: int) -> None:
        """Wait until the owner holds so much more."""
        granted = asyncio.get_running_loop().create_future()
        try:
            if not self.take(owner, size_bytes, lambda: None if granted.done() else granted.set_result(None)):
                await granted
        except asyncio.CancelledError:
            self.release(owner)
            raise

    def keep(self, owner: Hashable, size_bytes: int) -> None:
        """The owner holds only so much now."""
        self.held_bytes += size_bytes - self._held.get(owner, 0)
        self._held[owner] = size_bytes
        self._wake()

    def release(self, owner: Hashable) -> None:
        self._waiting.pop(owner, None)
        self.held_bytes -= self._held.pop(owner, 0)
        self._wake()

    def _fits(self, size_bytes: int) -> bool:
        return self.held_bytes + size_bytes <= self._limit_bytes

    def _grant(self, owner: Hashable, size_bytes: int) -> None:
        self._held[owner] = self._held.get(owner, 0) + size_bytes
        self.held_bytes += size_bytes

    def _wake(self) -> None:
        """Give room to the waiting requests, in order."""
        woken = []
        while self._waiting:
            owner, (size_bytes, on_granted) = next(iter(self._waiting.items()))
            is_stuck = all(holder in self._waiting for holder in self._held)
            if not is_stuck and not self._fits(size_bytes):
                break
            del self._waiting[owner]
            self._grant(owner, size_bytes)
            woken.append(on_granted)
        for on_granted in woken:
            on_granted()


def _ignore() -> None:
    pass
