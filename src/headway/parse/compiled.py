"""The inner loops in C (`_fast.c`), or None where headway was built without a compiler.

Python does the same then, more slowly.
"""

from __future__ import annotations

import importlib
from types import ModuleType


def _loaded() -> ModuleType | None:
    try:
        return importlib.import_module("headway.parse._fast")
    except ImportError:
        return None


fast = _loaded()
