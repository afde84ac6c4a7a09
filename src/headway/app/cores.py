"""Which processor core a worker process keeps to."""

from __future__ import annotations

import os
from collections.abc import Collection


class Cores:
    """Where there are as many workers as cores, each stays on one of its own, and with it what it has in that
    core's caches. Where there are more or fewer of them, the system knows better who should be where."""

    def __init__(self, processes: int, allowed: Collection[int] | None = None) -> None:
        """`allowed`: the cores that this process may use; those that it is allowed by the system if None."""
        cores = sorted(_allowed_here() if allowed is None else allowed)
        self._free = cores if len(cores) == processes and processes > 1 else []
        self._of: dict[int, int] = {}

    def take(self, pid: int) -> int | None:
        """The core of a process that has begun, or None if it may run anywhere."""
        if not self._free:
            return None
        self._of[pid] = core = self._free.pop(0)
        return core

    def give_back(self, pid: int) -> None:
        core = self._of.pop(pid, None)
        if core is not None:
            self._free.append(core)


def keep_to(pid: int, core: int | None) -> None:
    """A wish: a system that does not grant it, or a process that has ended, is no trouble."""
    if core is not None:
        try:
            os.sched_setaffinity(pid, {core})
        except OSError:
            return


def _allowed_here() -> Collection[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
