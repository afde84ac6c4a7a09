"""Keeping the C heap between pages.

Every page's bytes and text are made and freed. By default glibc gives freed memory of some size back to the
system each time, and has it zeroed again for the next page: a page fault for every 4 KB of it.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h
_KEPT_BYTES = 64 * 1024 * 1024
_LARGEST_MMAP_THRESHOLD_BYTES = 32 * 1024 * 1024


def keep_freed_memory() -> bool:
    """Tell the C library to keep up to 64 MiB for reuse; False where it has no such setting.

    It holds for the whole process, so it is for a program's start, not for a library to do unasked.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    kept = set_option(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    return bool(kept and set_option(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD_BYTES))
