"""What a spider's requests say of each site: how much has come, how much waits, how much is new."""

from __future__ import annotations

from collections.abc import Iterator

from headway.model.page import Site
from headway.policy.estimate import Evidence
from headway.scrapy.exchange import Answered
from headway.units import Bytes


class SiteTally:
    __slots__ = (
        "answers",
        "in_flight",
        "links_new",
        "links_seen",
        "server",
        "site",
        "waiting",
        "wire_bytes",
    )

    def __init__(self, site: Site) -> None:
        self.site = site
        self.server = ""
        self.answers = 0
        self.wire_bytes = 0
        self.waiting = 0
        self.in_flight = 0
        self.links_seen = 0
        self.links_new = 0

    @property
    def is_busy(self) -> bool:
        return self.waiting > 0 or self.in_flight > 0

    def evidence(self, data_bytes: Bytes | None) -> Evidence:
        return Evidence(
            fetched_pages=self.answers,
            fetched_bytes=self.wire_bytes,
            waiting_pages=self.waiting,
            links_seen=float(self.links_seen),
            links_new=float(self.links_new),
            given_bytes=data_bytes,
        )


class Tally:
    """Told of each step of each request."""

    def __init__(self) -> None:
        self._sites: dict[Site, SiteTally] = {}

    def __iter__(self) -> Iterator[SiteTally]:
        return iter(self._sites.values())

    def of(self, site: Site) -> SiteTally:
        tally = self._sites.get(site)
        if tally is None:
            self._sites[site] = tally = SiteTally(site)
        return tally

    def scheduled(self, site: Site) -> None:
        tally = self.of(site)
        tally.waiting += 1
        tally.links_seen += 1
        tally.links_new += 1

    def dropped(self, site: Site) -> None:
        """It was known already."""
        tally = self.of(site)
        tally.waiting = max(0, tally.waiting - 1)
        tally.links_new = max(0, tally.links_new - 1)

    def started(self, site: Site) -> None:
        tally = self.of(site)
        tally.waiting = max(0, tally.waiting - 1)
        tally.in_flight += 1

    def ended(self, site: Site) -> None:
        tally = self.of(site)
        tally.in_flight = max(0, tally.in_flight - 1)

    def answered(self, site: Site, answered: Answered) -> None:
        tally = self.of(site)
        tally.wire_bytes += answered.wire_bytes
        tally.answers += 1
        if answered.peer:
            tally.server = f"{answered.peer} {site.rpartition(':')[2]}"
