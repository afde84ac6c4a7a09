"""What the progress of a crawl by several processes shows, added up from what they commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headway.app.view import SiteLine, View
from headway.model.command import PageState, SaveSettled
from headway.model.page import Site
from headway.model.snapshot import SiteRecord
from headway.units import BytesPerSecond, Instant


class Counts:
    def __init__(self, sites: Sequence[SiteRecord]) -> None:
        self.done = sum(record.done for record in sites)
        self.failed = sum(record.failed for record in sites)
        self.wire_bytes = sum(record.wire_bytes for record in sites)
        self.errors: Counter[str] = Counter()
        self.rate_bytes_per_s = 0.0
        self._last = (0, 0)
        self._sites = {record.site: [record.done, record.failed, record.wire_bytes] for record in sites}

    def count(self, saving: SaveSettled, was: PageState | None) -> None:
        """A page that settles once more counts as what it is now, not as what it `was`."""
        if saving.state is PageState.WAITING:
            was = None
        is_failed = saving.state is PageState.FAILED
        done = (saving.state is PageState.DONE) - (was is PageState.DONE)
        failed = is_failed - (was is PageState.FAILED)
        sums = self._sites.setdefault(saving.page.site, [0, 0, 0])
        sums[0] += done
        sums[1] += failed
        sums[2] += saving.outcome.wire_bytes
        self.done += done
        self.failed += failed
        self.wire_bytes += saving.outcome.wire_bytes
        if is_failed:
            self.errors[saving.outcome.kind] += 1

    def wire_bytes_of(self, site: Site) -> int:
        return self._sites[site][2] if site in self._sites else 0

    def news_of(self, received_bytes: int) -> int:
        return max(0, received_bytes - self._last[1])

    def received(self, second: int, received_bytes: int) -> None:
        before, had = self._last
        if before and second > before:
            self.rate_bytes_per_s = max(0.0, (received_bytes - had) / (second - before))
        self._last = (second, received_bytes)

    def view(
        self,
        now: Instant,
        started_at: Instant,
        *,
        waiting: int,
        in_flight: int,
        active: set[Site],
        rate_bytes_per_s: float,
        capacity_bytes_per_s: BytesPerSecond,
    ) -> View:
        chosen = sorted(self._sites.items(), key=lambda item: (item[0] not in active, -item[1][0]))[:12]
        lines = tuple(
            SiteLine(
                site, "fetching" if site in active else "done", done, 0, failed, size, 0.0, None, None, None
            )
            for site, (done, failed, size) in chosen
        )
        return View(
            now,
            started_at,
            self.done,
            waiting,
            in_flight,
            self.failed,
            self.wire_bytes,
            rate_bytes_per_s,
            capacity_bytes_per_s,
            lines,
            max(0, len(self._sites) - len(lines)),
            dict(self.errors),
        )
