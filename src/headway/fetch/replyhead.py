"""The head of an answer as a value: what it says, and how its body is delimited. `reply` reads it."""

from __future__ import annotations

import enum

import msgspec


class Framing(enum.Enum):
    EMPTY = "empty"
    SIZED = "sized"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until-close"


class ReplyHead(msgspec.Struct, frozen=True):
    status: int
    headers: tuple[tuple[str, str], ...]
    framing: Framing
    length_bytes: int = 0
    keep_alive: bool = True
    media_type: str = ""
    content_encoding: str = ""
    note: str = ""
