"""Results kept one by one as they come, so that a long experiment can be stopped and resumed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


class OutOfTimeError(Exception):
    """The time given is over; what is done is kept."""


class Keeper:
    def __init__(self, folder: Path, most_s: float = float("inf")) -> None:
        self._folder = folder
        self._ends_at = time.monotonic() + most_s
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str, kind: type[T], make: Callable[[], T]) -> T:
        """The result of that name, made now if it is not there yet."""
        path = self._folder / f"{name}.json"
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=kind)
        if time.monotonic() > self._ends_at:
            raise OutOfTimeError(name)
        value = make()
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(msgspec.json.encode(value))
        unfinished.rename(path)
        return value
