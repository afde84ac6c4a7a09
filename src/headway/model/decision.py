"""One line of the decision log."""

from __future__ import annotations

import msgspec

from headway.units import Instant


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    at: Instant
    decision: str
    site: str = ""
    url: str = ""
    depth: int = 0
    attempt: int = 0
    reason: str = ""
    until: Instant | None = None
    """Of a retry: not before; of a foresight: when the site will end."""
    deadline_at: Instant | None = None
    needed_bytes_per_s: float | None = None
    rates_bytes_per_s: dict[str, float] | None = None
    capacity_bytes_per_s: float | None = None
    """None in the line of a set-capacity: no bound."""
