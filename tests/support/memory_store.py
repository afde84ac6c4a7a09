"""A store that lasts as long as the process: for simulations and tests; the plainest reading of the port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from headway.model.command import (
    NO_SIGHTING,
    Copy,
    PageState,
    SaveAgain,
    SaveFound,
    SaveNotice,
    SaveServers,
    SaveSettled,
    SaveSite,
    SaveTasks,
    Saving,
    SiteRecord,
    Snapshot,
    WaitingRecord,
)
from headway.model.page import AGAIN, Kind, Page, PageKey, Site, Task
from headway.ports import Original
from headway.store import rows
from headway.store.rows import as_found
from headway.units import Instant

_FREE_NOW = Instant(0.0)


class MemoryStore:
    def __init__(self) -> None:
        self._started_at: Instant | None = None
        self._tasks: dict[Site, Task] = {}
        self._sites: dict[Site, SiteRecord] = {}
        self._waiting: dict[PageKey, WaitingRecord] = {}
        self._settled: dict[PageKey, SaveSettled] = {}
        self._seen: dict[PageKey, None] = {}
        self._originals: dict[str, Original] = {}
        self._lengths: dict[str, int] = {}
        self._servers: dict[str, bytes] = {}
        self._notices: dict[tuple[Site, str, str], SaveNotice] = {}
        self._rank_of: Callable[[Page], float] = as_found

    def order_waiting(self, name: str, rank_of: Callable[[Page], float]) -> None:
        self._rank_of = rank_of

    def load(self, most_waiting: int | None = None) -> Snapshot | None:
        if self._started_at is None:
            return None
        waiting = list(self._waiting.values())
        unloaded: dict[Site, int] = {}
        first_ranks: dict[Site, float] = {}
        if most_waiting is not None:
            counts = Counter(record.page.site for record in waiting)
            if len(waiting) > most_waiting:
                unloaded, waiting = dict(counts), []
                first_ranks = {site: self._rank_of(self.first_waiting(site, 1)[0].page) for site in counts}
            else:
                waiting = [record for site in counts for record in self.first_waiting(site, len(waiting))]
        return Snapshot(
            started_at=self._started_at,
            tasks=list(self._tasks.values()),
            sites=list(self._sites.values()),
            waiting=waiting,
            unloaded=unloaded,
            first_ranks=first_ranks,
            seen=list(self._seen),
            servers=sorted(self._servers.items()),
            notices=list(self._notices.values()),
        )

    def create(self, started_at: Instant, job: Mapping[str, object]) -> None:
        self._started_at = started_at

    def commit(self, batch: Sequence[Saving], file_lengths: Mapping[str, int]) -> None:
        # Found pages first, as in every store: a page may be found and settled within one batch.
        for saving in batch:
            if isinstance(saving, SaveFound):
                for page in saving.pages:
                    self._find(page)
        for saving in batch:
            match saving:
                case SaveTasks(tasks):
                    self._tasks.update({task.site: task for task in tasks})
                case SaveSettled():
                    self._settle(saving)
                case SaveAgain():
                    self._queue_again(saving)
                case SaveServers(rows):
                    self._servers.update(rows)
                case SaveNotice(site, _, what, subject):
                    self._notices.setdefault((site, what, subject), saving)
                case SaveSite():
                    self._save_site(saving)
                case SaveFound():
                    pass
        self._lengths.update(file_lengths)

    def first_waiting(self, site: Site, most: int) -> Sequence[WaitingRecord]:
        waiting = [record for record in self._waiting.values() if record.page.site == site]
        return sorted(waiting, key=lambda record: self._rank_of(record.page))[:most]

    def find_digest(self, digest: str) -> Original | None:
        return self._originals.get(digest)

    def find_copy(self, page: Page) -> Copy | None:
        saving = self._settled.get(page.key)
        if saving is None:
            is_known = page.key in self._waiting
            return Copy(PageState.WAITING, None, 0, "", "", _FREE_NOW, is_waiting=True) if is_known else None
        outcome = saving.outcome
        return Copy(
            saving.state,
            outcome.kind,
            outcome.status,
            outcome.content_type,
            outcome.digest,
            Instant(rows.fetch_instant(saving, None)),
            saving.page.depth,
            saving.sighting or NO_SIGHTING,
            page.key in self._waiting,
        )

    def committed_lengths(self) -> Mapping[str, int]:
        return dict(self._lengths)

    def close(self) -> None:
        pass

    def _find(self, page: Page) -> None:
        if page.key not in self._seen:
            self._seen[page.key] = None
            self._waiting[page.key] = WaitingRecord(page)

    def _queue_again(self, saving: SaveAgain) -> None:
        for page in saving.pages:
            self._waiting.setdefault(page.key, WaitingRecord(page, AGAIN, saving.not_before))

    def _settle(self, saving: SaveSettled) -> None:
        page, outcome = saving.page, saving.outcome
        self._seen[page.key] = None
        self._count(saving)
        if not rows.is_final(saving.state):
            self._waiting[page.key] = WaitingRecord(page, saving.attempt + 1, saving.retry_at)
            return
        self._waiting.pop(page.key, None)
        self._settled[page.key] = saving
        if rows.is_original(saving, None):
            original = Original(page.url, Instant(rows.fetch_instant(saving, None)))
            self._originals.setdefault(outcome.digest, original)

    def _count(self, saving: SaveSettled) -> None:
        outcome, page = saving.outcome, saving.page
        sums: Counter[str] = Counter()
        started_at: float | None = None
        if outcome.kind is not Kind.OUT_OF_SCOPE:
            sums.update(wire_bytes=outcome.wire_bytes, content_bytes=outcome.content_bytes)
            started_at = saving.at - outcome.duration_s if outcome.duration_s > 0 else None
        if rows.is_final(saving.state):
            before = self._settled.get(page.key)
            _count_page(sums, saving, 1)
            if before is not None:
                _count_page(sums, before, -1)
        if not sums:
            return
        record = self._sites.get(page.site) or SiteRecord(page.site, _FREE_NOW)
        changes: dict[str, object] = {name: getattr(record, name) + by for name, by in sums.items()}
        if record.started_at is None:
            changes["started_at"] = started_at
        self._sites[page.site] = msgspec.structs.replace(record, **changes)

    def _save_site(self, saving: SaveSite) -> None:
        record = self._sites.get(saving.site) or SiteRecord(saving.site, _FREE_NOW)
        changes: dict[str, object] = {
            "free_at": saving.free_at,
            "failures_in_a_row": saving.failures_in_a_row,
            "ended_at": saving.ended_at,
            "wire_bytes": record.wire_bytes + saving.robots_bytes,
        }
        if saving.robots_text is not None:
            changes["robots_text"] = saving.robots_text
        if saving.robots_expires_at is not None:
            changes["robots_expires_at"] = saving.robots_expires_at
        self._sites[saving.site] = msgspec.structs.replace(record, **changes)


def _count_page(sums: Counter[str], saving: SaveSettled, by: int) -> None:
    name = rows.counted_as(saving.state, saving.outcome.kind)
    if name is not None:
        sums[name] += by
