"""Where in a TOML text a key stands, so that an error can name the line."""

from __future__ import annotations

import re
from collections import Counter

_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=")

Path = tuple[str | int, ...]


def line_of(text: str, path: Path) -> int | None:
    """The line (from 1) of a key such as ("site", 1, "deadline"), or of the nearest table around it."""
    best: tuple[int, int] | None = None
    for number, here in _keys(text):
        shared = _shared(here, path)
        if shared == len(path):
            return number
        if shared == len(here) and (best is None or shared > best[0]):
            best = (shared, number)
    return best[1] if best else None


def _keys(text: str) -> list[tuple[int, Path]]:
    found: list[tuple[int, Path]] = []
    counts: Counter[str] = Counter()
    table: Path = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            name = header[2]
            table = _parts(name)
            if header[1] == "[[":
                table = (*table, counts[name])
                counts[name] += 1
            found.append((number, table))
        elif key := _KEY.match(line):
            found.append((number, table + _parts(key[1])))
    return found


def _parts(dotted: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _shared(here: Path, path: Path) -> int:
    count = 0
    for one, other in zip(here, path, strict=False):
        if one != other:
            break
        count += 1
    return count
