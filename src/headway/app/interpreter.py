"""Settings of the interpreter for a process that crawls. They hold for all of it, so a program makes them."""

from __future__ import annotations

import gc

_OBJECTS = 10_000
"""A page makes some hundreds that the collector counts, and hardly any of them in circles."""


def collect_seldom() -> None:
    """Nor look again at what was there before the crawl."""
    gc.freeze()
    gc.set_threshold(_OBJECTS)
