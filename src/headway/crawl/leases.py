"""Pages lent out, and which of the loans have run out."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from headway.model.page import Lease, Page, PageKey
from headway.units import FOREVER, Instant, Seconds


class Leases:
    def __init__(self, length_s: Seconds) -> None:
        self._length_s = length_s
        self._open: dict[int, Lease] = {}
        self._by_end: list[tuple[Instant, int]] = []
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._open)

    def under_way(self) -> Iterator[Page]:
        """The pages that are lent out."""
        return (lease.page for lease in self._open.values())

    def lend(self, now: Instant, page: Page, attempt: int) -> Lease:
        self._last_number += 1
        until = Instant(now + self._length_s)
        lease = Lease(self._last_number, page, attempt, until)
        self._open[lease.number] = lease
        heappush(self._by_end, (until, lease.number))
        return lease

    def settle(self, number: int) -> Lease | None:
        """End a lease; None if it is not open any more: an answer that comes too late does not count."""
        return self._open.pop(number, None)

    def pages(self) -> set[PageKey]:
        """What is lent out now."""
        return {lease.page.key for lease in self._open.values()}

    def expired(self, now: Instant) -> list[Lease]:
        """End and return the leases whose time is up, in the order in which it came."""
        over = []
        while self._by_end and self._by_end[0][0] <= now:
            lease = self._open.pop(heappop(self._by_end)[1], None)
            if lease is not None:
                over.append(lease)
        return over

    def next_expiry_at(self) -> Instant:
        while self._by_end and self._by_end[0][1] not in self._open:
            heappop(self._by_end)
        return self._by_end[0][0] if self._by_end else FOREVER
