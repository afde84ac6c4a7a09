"""XML read in one pass, element by element: no tree, no entities but the five of XML itself, no DTD fetched.

What lies before a mistake counts: half a sitemap is better than none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from xml.parsers import expat

Path = tuple[str, ...]
Take = Callable[[Path, Mapping[str, str], str], bool]
"""Called at the end of each element with the names of its ancestors and its own, without prefixes, its
attributes and its text. False ends the reading."""

_DEEPEST = 64
_LONGEST_TEXT = 16_384
_PIECE_BYTES = 65_536


class _Stop(Exception):  # noqa: N818 - an end, not an error
    """Enough was read."""


def walk(content: bytes, roots: frozenset[str], take: Take) -> str | None:
    """Read a document whose root has one of these names. Returns what was wrong with it, empty if nothing,
    or None when it is no such document. Never raises, and takes time in proportion to its length."""
    reader = _Reader(roots, take)
    try:
        return reader.read(content.lstrip())
    except _Stop as stop:
        return str(stop) if reader.is_one else None
    except expat.ExpatError as problem:
        return f"not well-formed: {problem}" if reader.is_one else None
    except (ValueError, LookupError) as problem:  # an encoding that nobody knows
        return str(problem) if reader.is_one else None


class _Reader:
    def __init__(self, roots: frozenset[str], take: Take) -> None:
        self.is_one = False
        self._roots = roots
        self._take = take
        self._path: Path = ()
        self._attributes: list[dict[str, str]] = []
        self._text: list[str] = []
        self._text_length = 0

    def read(self, content: bytes) -> str | None:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._refuse
        # In pieces, so that a huge attribute or a flood of them is met by expat's own limits.
        for begin in range(0, len(content), _PIECE_BYTES):
            parser.Parse(content[begin : begin + _PIECE_BYTES], False)
        parser.Parse(b"", True)
        return "" if self.is_one else None

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = _local(name)
        if not self._path:
            self.is_one = name in self._roots
            if not self.is_one:
                raise _Stop
        if len(self._path) >= _DEEPEST:
            raise _Stop("nested too deep")
        self._path += (name,)
        self._attributes.append({_local(key): value for key, value in attributes.items()})
        self._text.clear()
        self._text_length = 0

    def _end(self, name: str) -> None:
        goes_on = self._take(self._path, self._attributes.pop(), "".join(self._text).strip())
        self._path = self._path[:-1]
        self._text.clear()
        self._text_length = 0
        if not goes_on:
            raise _Stop("there is more than is read of one document")

    def _characters(self, text: str) -> None:
        if self._text_length < _LONGEST_TEXT:
            self._text.append(text)
            self._text_length += len(text)

    def _refuse(self, *_: object) -> None:
        raise _Stop("it declares entities, which are not expanded")


def _local(name: str) -> str:
    return name.rpartition(":")[2]
