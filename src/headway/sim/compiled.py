"""Loops over arrays that numba compiles when it is there (the extra `sim`), and Python runs when not."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

HAS_COMPILER = importlib.util.find_spec("numba") is not None


def compiled(function: F) -> F:
    """The same function, faster. Compiled code is kept beside the module where that can be written."""
    if not HAS_COMPILER:
        return function
    numba = importlib.import_module("numba")
    try:
        quick: F = numba.njit(cache=True)(function)
    except RuntimeError:
        quick = numba.njit(function)
    return quick
