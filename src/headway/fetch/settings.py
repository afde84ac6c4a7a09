"""How long a fetch may take, and how much it may bring, as frozen values."""

from __future__ import annotations

import msgspec


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Each has an outcome of its own. Time spent waiting for our own pacer counts against none of them."""

    connect_s: float = 10.0
    """To resolve the name, reach an address and agree on keys."""
    first_byte_s: float = 20.0
    idle_s: float = 20.0
    """Between two arrivals of data."""
    total_s: float = 300.0
    """From the start of the fetch to the end of the body."""
    keep_idle_s: float = 60.0
    """How long a connection is kept open between two requests."""

    def shortest_s(self) -> float:
        return min(self.first_byte_s, self.idle_s, self.total_s, self.keep_idle_s)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    max_head_bytes: int = 64 * 1024
    max_headers: int = 512
    max_interim_answers: int = 16
    """How many 1xx answers may come before the real one."""
    max_body_bytes: int = 32 * 1024 * 1024
    """Of the payload, with its content coding still on."""
    max_decoded_bytes: int = 64 * 1024 * 1024
    max_decode_ratio: float = 200.0
    ratio_counts_from_bytes: int = 1024 * 1024
    """Small bodies of blanks compress beyond any ratio; below this they harm nobody."""
    max_codings: int = 4
    max_idle_connections: int = 1024
