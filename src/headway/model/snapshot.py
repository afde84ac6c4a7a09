"""What a store gives back when a crawl is taken up again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headway.model.command import SaveNotice
from headway.model.page import Page, PageKey, Site
from headway.model.task import Task
from headway.units import Instant


class SiteRecord(msgspec.Struct, frozen=True):
    """A site as the last commit left it, with the sums that the ledger goes on from."""

    site: Site
    free_at: Instant
    failures_in_a_row: int = 0
    robots_text: str | None = None
    robots_expires_at: Instant | None = None
    ended_at: Instant | None = None
    started_at: Instant | None = None
    """When its first page settled."""
    done: int = 0
    failed: int = 0
    excluded: int = 0
    wire_bytes: int = 0
    content_bytes: int = 0


class WaitingRecord(msgspec.Struct, frozen=True, gc=False):
    page: Page
    attempt: int = 0
    retry_at: Instant | None = None


class Snapshot(msgspec.Struct, frozen=True):
    started_at: Instant
    """When the crawl was first begun: deadlines are reckoned from it."""
    tasks: Sequence[Task]
    sites: Sequence[SiteRecord]
    waiting: Sequence[WaitingRecord]
    """In the order in which they were found."""
    seen: Sequence[PageKey]
    """Every key ever saved, the waiting ones included."""
    unloaded: Mapping[Site, int] = {}
    """How many more pages of a site wait in the store, where not all were asked for."""
    servers: Sequence[tuple[str, bytes]] = ()
    """What was learnt of servers, as `SaveServers` had it."""
    notices: Sequence[SaveNotice] = ()
