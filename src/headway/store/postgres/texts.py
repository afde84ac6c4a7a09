"""PostgreSQL's texts cannot hold a NUL; a URL or a server's message may: it is written with another sign."""

from __future__ import annotations

_SIGN = "\x1a"


def to_text(text: str) -> str:
    if "\0" not in text and _SIGN not in text:
        return text
    return text.replace(_SIGN, _SIGN + "1").replace("\0", _SIGN + "0")


def from_text(text: str) -> str:
    return text if _SIGN not in text else text.replace(_SIGN + "0", "\0").replace(_SIGN + "1", _SIGN)
