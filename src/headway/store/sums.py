"""What a batch adds to a site: reckoned alike for every database."""

from __future__ import annotations

from collections import Counter


class Sums:
    __slots__ = ("content_bytes", "pages", "started_at", "wire_bytes")

    def __init__(self) -> None:
        self.pages: Counter[str] = Counter()
        self.wire_bytes = 0
        self.content_bytes = 0
        self.started_at: float | None = None

    def row(self, site_id: int) -> tuple[object, ...]:
        counts = [self.pages[name] for name in ("done", "failed", "excluded")]
        return *counts, self.wire_bytes, self.content_bytes, self.started_at, site_id
