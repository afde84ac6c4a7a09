"""Settings of a process: how interrupts end it, its core, garbage collection, and the C heap."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from types import FrameType


class Cores:
    """With as many workers as cores, each worker is pinned to a core of its own, with what it has in that
    core's caches. With more or fewer workers, the system schedules them better."""

    def __init__(self, processes: int, allowed: Collection[int] | None = None) -> None:
        """`allowed`: the cores that this process may use; None: all that the system allows."""
        cores = sorted(_allowed_here() if allowed is None else allowed)
        self._free = cores if len(cores) == processes and processes > 1 else []
        self._of: dict[int, int] = {}

    def take(self, pid: int) -> int | None:
        """The core of a process that has started, or None if it may run anywhere."""
        if not self._free:
            return None
        self._of[pid] = core = self._free.pop(0)
        return core

    def give_back(self, pid: int) -> None:
        core = self._of.pop(pid, None)
        if core is not None:
            self._free.append(core)


def keep_to(pid: int, core: int | None) -> None:
    """Best effort: it does not matter if the system refuses, or the process has ended."""
    if core is not None:
        try:
            os.sched_setaffinity(pid, {core})
        except OSError:
            return


def _allowed_here() -> Collection[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()


# How often Python looks for reference cycles.
#
# A crawl creates hardly any, and its long-lived objects (rules, queues, modules) would be traversed each
# time: three per cent of the CPU of a page.

_AFTER_NEW_OBJECTS = 5_000
_OF_WHICH_FOR_OLDER_ONES = 20


def look_for_garbage_seldom() -> None:
    """Exclude all existing objects from garbage collection, and check new objects by the thousand.

    This holds for the whole process, so it is for the start of a program; a library should not do it unasked.
    """
    gc.freeze()
    gc.set_threshold(_AFTER_NEW_OBJECTS, _OF_WHICH_FOR_OLDER_ONES, _OF_WHICH_FOR_OLDER_ONES)


# Keeping the C heap between pages.
#
# The bytes and text of every page are allocated and freed. By default glibc returns larger blocks to the
# system each time, which zeroes them again for the next page: a page fault for every 4 KB.

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h
_KEPT_BYTES = 64 * 1024 * 1024
_LARGEST_MMAP_THRESHOLD_BYTES = 32 * 1024 * 1024


def keep_freed_memory() -> bool:
    """Tell the C library to keep up to 64 MiB for reuse; False if it has no such setting.

    This holds for the whole process, so it is for the start of a program; a library should not do it unasked.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    kept = set_option(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    return bool(kept and set_option(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD_BYTES))


# Interrupts: the first ends a command in good order, the second within a second, whatever holds it.
#
# Python runs a signal's handler between two bytecodes of the main thread. Code in C that does not return puts
# it off for ever. So each handler serves for one signal: until Python has run it and set it again, the system
# itself ends the process at the next signal. Where Python has run it at the first signal, a guard is started,
# which the second reaches without any Python of ours. A store survives that as it survives `kill -9`.

INTERRUPTS_CODE = 11
"""The exit code of a command that was interrupted."""
_STOPS_WITHIN_S = 0.8
_KILLED_AFTER_S = 0.9
"""By the system, if none of our code gets its turn."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_GUARD = """
import os, signal, sys, time
parent, after_s, *ending = int(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:])
while signals := os.read(0, 64):
    if not set(signals).isdisjoint(ending):
        time.sleep(after_s)
        if os.getppid() == parent:
            os.kill(parent, signal.SIGKILL)
        break
"""
"""The process that the system writes the numbers of further signals to. It ends with us."""
_SHOW_CURSOR = b"\x1b[?25h"


class Interrupts:
    """What SIGINT, SIGTERM and SIGHUP do. One for the process, `INTERRUPTS`.

    Until a command calls `handle` the first raises KeyboardInterrupt; SIGTERM and SIGHUP end the process.
    """

    def __init__(self) -> None:
        self._count = 0
        self._on_signal: Callable[[int], None] | None = None
        self._timer: threading.Thread | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def install(self) -> None:
        """For Ctrl-C, at the start of a command."""
        self._count = 0
        self._set(signal.SIGINT)

    def handle(self, on_signal: Callable[[int], None]) -> None:
        """`on_signal` is called with 1 at the first signal, with 2 at the second, in the main thread between
        two bytecodes: it must be quick. After the second the process ends, however far it has come."""
        self._on_signal = on_signal
        if self._count:  # a KeyboardInterrupt that somebody's code has swallowed
            on_signal(1)
        for signum in _SIGNALS:
            if signum != signal.SIGHUP or signal.getsignal(signum) is not signal.SIG_IGN:  # as nohup sets it
                self._set(signum)

    def caught(self, signum: int, _frame: FrameType | None = None) -> None:
        self._count += 1
        if self._count >= 2:
            self._end_soon()
        self._set(signal.Signals(signum))
        self._start_guard()
        if self._on_signal is not None:
            self._on_signal(self._count)
        elif self._count == 1:
            raise KeyboardInterrupt
        else:
            _end_now()

    def _set(self, signum: signal.Signals) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signum, self.caught)
            _make_one_shot(signum)

    def _start_guard(self) -> None:
        """A process of its own: a thread needs the interpreter, which code in C may never give back."""
        if self._guard is not None or threading.current_thread() is not threading.main_thread():
            return
        with suppress(OSError, ValueError):
            theirs, ours = os.pipe()
            os.set_blocking(ours, False)
            command = [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()), str(_KILLED_AFTER_S)]
            command += [str(int(signum)) for signum in _SIGNALS]
            try:
                self._guard = subprocess.Popen(command, stdin=theirs, start_new_session=True)  # noqa: S603
            finally:
                os.close(theirs)
            signal.set_wakeup_fd(ours, warn_on_full_buffer=False)

    def _end_soon(self) -> None:
        if self._timer is None:
            # Code in C may let the handlers run and no thread, or threads and no handler, or neither.
            signal.signal(signal.SIGALRM, lambda *_: _end_now())
            _make_one_shot(signal.SIGALRM)
            signal.setitimer(signal.ITIMER_REAL, _STOPS_WITHIN_S, _KILLED_AFTER_S - _STOPS_WITHIN_S)
            self._timer = threading.Thread(target=_end_after, daemon=True, name="headway-end")
            self._timer.start()


INTERRUPTS = Interrupts()


def _end_after() -> None:
    time.sleep(_STOPS_WITHIN_S)
    _end_now()


def _end_now() -> None:
    """Without any more of Python: threads that hang are not waited for."""
    with suppress(OSError):
        if os.isatty(2):
            os.write(2, _SHOW_CURSOR)
    os._exit(INTERRUPTS_CODE)


def _make_one_shot(signum: int) -> None:
    """Let Python's handler serve for one signal only; the next has its default effect. Where the C library
    has no such handlers, a process that is held in C before its first signal ends only by SIGKILL."""
    libc = _libc()
    if libc is None or not hasattr(libc, "sysv_signal"):
        return
    for function in (libc.signal, libc.sysv_signal):
        function.argtypes, function.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    handler = libc.signal(signum, None)
    if handler not in {None, ctypes.c_void_p(-1).value}:
        libc.sysv_signal(signum, handler)


def _libc() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):
        return None


def die_with_parent() -> None:
    """For a child process: the system kills it when its parent has ended, also if it hangs by then."""
    libc = _libc() if sys.platform == "linux" else None
    if libc is not None and hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
