"""How fast or slow the demo web behaves. The default suits a person watching; tests take `QUICK`."""

from __future__ import annotations

import msgspec


class Tempo(msgspec.Struct, frozen=True, kw_only=True):
    latency_s: float = 0.15
    """Mean time to the first byte on the slow site."""
    rate_bytes_per_s: float = 48_000
    """The most that the rate-limited site sends."""
    crawl_delay_s: float = 0.2
    """In the robots.txt of the site with the rules."""
    retry_after_s: int = 1
    """In the 503 and 429 of the failing site; whole seconds, as the header has it."""
    stall_s: float = 4.0
    """How long a stalled answer is silent before the server gives up."""


QUICK = Tempo(latency_s=0.005, rate_bytes_per_s=2_000_000, crawl_delay_s=0.01, retry_after_s=0, stall_s=0.3)
