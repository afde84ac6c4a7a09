"""What became of the announcements: each is counted once when it comes and once when it is settled."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headway.store.inplace import put_in_place


class Tally(msgspec.Struct):
    """Table 3 of cobweb1999, and what it leaves out."""

    announced: int = 0
    refused: dict[str, int] = msgspec.field(default_factory=dict)
    """By reason: never looked at further."""
    lost: dict[str, int] = msgspec.field(default_factory=dict)
    """By reason: known to have been announced, and never seen here."""
    accepted: int = 0
    updates: int = 0
    """Known pages fetched anew, changed or not."""
    unchanged: int = 0
    """Of the updates."""
    fresh: int = 0
    """Not fetched: the copy is young enough."""
    new: int = 0
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    asked: int = 0
    """Requests that the proxy was asked and that came to an end."""
    quick: int = 0
    """Answered by the proxy in less than a second."""


def bump(counts: dict[str, int], reason: str, by: int = 1) -> None:
    counts[reason] = counts.get(reason, 0) + by


def load_tally(path: Path) -> Tally:
    """The counts so far; a file that cannot be read is begun anew."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Tally)
    except (OSError, msgspec.DecodeError):
        return Tally()


def save_tally(path: Path, tally: Tally) -> None:
    put_in_place(path, msgspec.json.encode(tally))
