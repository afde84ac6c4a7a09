"""A site of the chaos web: one way to misbehave, and what a crawl should make of it."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from tests.support.chaos.line import Line

from headway.model.page import Kind

Script = Callable[[Line], Awaitable[None]]
"""Answers one request. When it returns with the connection open, the next request is waited for."""

BAD = "/"
"""The page on which a site misbehaves."""
AFTER = "/after"
"""An ordinary page, to see whether the site can still be crawled."""


class Door(enum.StrEnum):
    """How a site takes connections."""

    OPEN = "open"
    DEAF = "deaf"  # its queue is full, so that no connection ever comes about
    SHUT = "shut"  # nobody listens
    TLS = "tls"
    TLS_EXPIRED = "tls-expired"
    TLS_OTHER_NAME = "tls-other-name"
    TLS_UNKNOWN_AUTHORITY = "tls-unknown-authority"
    TLS_SPOKEN_PLAINLY = "tls-spoken-plainly"  # an https URL behind which plain HTTP is spoken
    TLS_SILENT = "tls-silent"  # takes the connection and does not shake hands
    TLS_RESET = "tls-reset"  # resets in the handshake


ENCRYPTED = frozenset({Door.TLS, Door.TLS_EXPIRED, Door.TLS_OTHER_NAME, Door.TLS_UNKNOWN_AUTHORITY})
"""Doors behind which TLS is spoken with some certificate."""


class ChaosSite(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    does: str
    """In a few words, for a table."""
    bad: Kind
    """How a fetch of the page `BAD` must end."""
    answer: Script
    """To every path but robots.txt and `AFTER`."""
    after: Kind = Kind.FETCHED
    """How a fetch of `AFTER` must end: a bad page must not spoil the site, a bad site does."""
    robots: Script | None = None
    """None: 404."""
    because: Kind | None = None
    """How the fetch of robots.txt ended, where that is what the pages fail by."""
    door: Door = Door.OPEN
    prepare: Callable[[], object] | None = None
    """Makes what takes long to make, before the site opens."""
    leads_to: Mapping[str, Kind] = {}
    """More paths that the bad page leads to, and how they must end; no others may be asked for."""
    is_heavy: bool = False
    """Costs a crawler much work or many bytes, not only patience."""

    @property
    def scheme(self) -> str:
        return "https" if self.door.startswith("tls") else "http"

    @property
    def expected(self) -> dict[str, Kind]:
        """Each path that a crawl with the seeds `BAD` and `AFTER` settles, with its outcome."""
        return {BAD: self.bad, AFTER: self.after, **self.leads_to}
