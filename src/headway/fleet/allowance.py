"""What a collector may do, and until when: its lease, and its share of the bound.

Both end by themselves on the loop's clock, which goes on while the collector is cut off or asleep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headway.fleet.coordinator import NewShare
from headway.units import BytesPerSecond

_MARGIN_S = 0.5
"""Before the lease ends: what is abandoned must have stopped by then."""


class Allowance:
    def __init__(
        self,
        on_lost: Callable[[], None],
        set_capacity: Callable[[BytesPerSecond], None],
        set_asks_until: Callable[[float], None],
    ) -> None:
        self._on_lost = on_lost
        self._set_capacity = set_capacity
        self._set_asks_until = set_asks_until
        self._lease_timer: asyncio.TimerHandle | None = None
        self._share_timer: asyncio.TimerHandle | None = None
        self._share_bytes_per_s = 0.0
        self.share_number = 0
        self.has_shrunk = False
        """Somebody waits for what we have given up, until we say that we have."""

    def lease_until(self, at: float) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        self._lease_timer = asyncio.get_running_loop().call_at(at - _MARGIN_S, self._on_lost)
        # Who wakes from a sleep has requests in hand before any timer has run.
        self._set_asks_until(at - _MARGIN_S)

    def keep_to(self, asked_at: float, share: NewShare | None) -> None:
        self.has_shrunk = False
        if share is None or share.number == self.share_number:
            return
        self.share_number = share.number
        self.has_shrunk = share.rate_bytes_per_s < self._share_bytes_per_s
        if self._share_timer is not None:
            self._share_timer.cancel()
        loop = asyncio.get_running_loop()
        self._share_timer = loop.call_at(asked_at + share.lasts_s, self._share_over)
        if share.rate_bytes_per_s != self._share_bytes_per_s:
            self._share_bytes_per_s = share.rate_bytes_per_s
            self._set_capacity(share.rate_bytes_per_s)

    def close(self) -> None:
        for timer in (self._lease_timer, self._share_timer):
            if timer is not None:
                timer.cancel()

    def _share_over(self) -> None:
        self._share_bytes_per_s = 0.0
        self._set_capacity(BytesPerSecond(0.0))
