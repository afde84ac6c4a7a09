"""Loops over arrays that numba compiles when it is there (the extra `sim`), and Python runs when not."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

HAS_COMPILER = importlib.util.find_spec("numba") is not None


def compiled(function: F) -> F:
    """The same function, faster. It must make no arrays: those that it is given are not counted as in use,
    since with dozens of them in a call the counting would cost more than the work."""
    return _compiled(function, _nrt=False)


def compiled_making_arrays(function: F) -> F:
    return _compiled(function)


def _compiled(function: F, **options: bool) -> F:
    if not HAS_COMPILER:
        return function
    numba = importlib.import_module("numba")
    try:
        # Compiled code is kept beside the module, where that can be written.
        quick: F = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        quick = numba.njit(**options)(function)
    return quick
