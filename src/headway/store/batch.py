"""One commit: a batch of savings turned into few statements over many sorted rows.

Rows go in by site and key, so that a commit touches each page of the file once and in order.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

from msgspec import structs

from headway.engine.seen import check_bits, next_key
from headway.model.command import (
    PageState,
    SaveAgain,
    SaveFound,
    SaveLeftOut,
    SaveNotice,
    SaveServers,
    SaveSettled,
    SaveSite,
    SaveTasks,
    Saving,
)
from headway.model.page import AGAIN, Kind, Page, PageKey, Site, Task
from headway.ports import Notes
from headway.store import rows
from headway.store import schema as sql
from headway.store.recrawl import ADD_SIGHTING, KEEP_CONTENT, in_turn
from headway.store.rows import Changes, Sums

_LEFT_OUT = (PageState.EXCLUDED.value, Kind.OUT_OF_SCOPE.value)


class Numbers:
    """What the database has given out so far. A commit works on a copy, which counts if it succeeds."""

    def __init__(
        self, site_ids: dict[Site, int], next_place: int, next_page_id: int, next_position: int
    ) -> None:
        self._site_ids = site_ids
        self.new_site_ids: dict[Site, int] = {}
        self._next_place = next_place
        self._next_page_id = next_page_id
        self._next_position = next_position

    def copy(self) -> Numbers:
        return Numbers(self._site_ids, self._next_place, self._next_page_id, self._next_position)

    def accept(self, changed: Numbers) -> None:
        self._site_ids.update(changed.new_site_ids)
        self._next_place, self._next_page_id = changed._next_place, changed._next_page_id
        self._next_position = changed._next_position

    def site_id(self, site: Site) -> int:
        number = self._site_ids.get(site) or self.new_site_ids.get(site)
        if number is None:
            number = self.new_site_ids[site] = len(self._site_ids) + len(self.new_site_ids) + 1
        return number

    def known_id(self, site: Site) -> int | None:
        return self._site_ids.get(site)

    def take_place(self) -> int:
        self._next_place += 1
        return self._next_place - 1

    def take_positions(self, count: int) -> range:
        """Of tasks, in the order in which they came."""
        self._next_position += count
        return range(self._next_position - count, self._next_position)

    def take_page_id(self) -> int:
        self._next_page_id += 1
        return self._next_page_id - 1


class BatchWriter:
    """Writes one batch inside the transaction that the store has begun."""

    def __init__(
        self, connection: sqlite3.Connection, numbers: Numbers, rank_of: Callable[[Page], float]
    ) -> None:
        self._rank_of = rank_of
        self._run = connection.execute
        self._run_many = connection.executemany
        self._numbers = numbers
        self._sums: dict[int, Sums] = {}
        self._outcomes: Counter[tuple[int, str, str, str]] = Counter()
        self._file_ids: dict[str, int | None] = {}

    def write(self, batch: Sequence[Saving], file_lengths: Mapping[str, int], notes: Notes) -> None:
        tasks: list[Task] = []
        found: dict[PageKey, Page] = {}
        settled: list[SaveSettled] = []
        sites: list[SaveSite] = []
        for saving in batch:
            match saving:
                case SaveSettled():
                    settled.append(saving)
                case SaveSite():
                    sites.append(saving)
                case SaveFound():
                    for page in saving.pages:
                        found.setdefault(page.key, page)
                case SaveTasks():
                    tasks += saving.tasks
                case SaveServers():
                    self._run_many(sql.PUT_SERVER, saving.rows)
                case SaveLeftOut(site, reason, pages):
                    self._outcomes[self._numbers.site_id(site), *_LEFT_OUT, reason] += pages
                case SaveNotice():
                    site_id = self._numbers.site_id(saving.site)
                    self._run(sql.PUT_NOTICE, (site_id, saving.what, saving.subject, saving.at))
        self._run_many(sql.PUT_FILE, file_lengths.items())
        self._add_found(found.values())
        for each in settled:
            self._count(each)
        for part, again in in_turn(batch):
            self._settle(part, notes)
            self._queue_again(again)
        self._save_sites(tasks, sites)

    def _add_found(self, pages: Iterable[Page]) -> None:
        numbers = self._numbers
        placed = [(numbers.site_id(page.site), numbers.take_place(), page) for page in pages]
        placed.sort(key=_by_site_and_place)
        seen = sorted((site_id, page.key, place, check_bits(page.url)) for site_id, place, page in placed)
        if seen and self._run_many(sql.ADD_SEEN, seen).rowcount != len(seen):
            placed = [row for each in placed if (row := self._added(*each)) is not None]
        waiting = [
            rows.waiting_row(site_id, place, page, self._rank_of(page)) for site_id, place, page in placed
        ]
        self._run_many(sql.ADD_WAITING, waiting)

    def _added(self, site_id: int, place: int, page: Page) -> tuple[int, int, Page] | None:
        """A page that was said to be new, with a key of its own if another has it; None for a page that is
        known all the same, which is not queued again."""
        check = check_bits(page.url)
        while True:
            has, its_check = self._run(sql.FIND_CHECK, (site_id, page.key)).fetchone() or (None, 0)
            if has == place:
                return site_id, place, page
            if check == its_check or not its_check:
                return None
            page = structs.replace(page, key=next_key(page.key))
            self._run(sql.ADD_SEEN, (site_id, page.key, place, check))

    def _settle(self, settled: Iterable[SaveSettled], notes: Notes) -> None:
        """Settle pages of which each is named once."""
        changes = Changes()
        for saving in settled:
            site_id, key = self._numbers.site_id(saving.page.site), saving.page.key
            place, page_id = self._find(site_id, key)
            if rows.is_final(saving.state):
                if place is not None:
                    changes.dropped.append((site_id, place))
                self._recount(site_id, page_id, saving)
                last_page_id, page_id = page_id, self._numbers.take_page_id()
                changes.note_visit(saving, page_id, last_page_id)
                changes.add_page(page_id, site_id, saving, self._file_id(saving), notes)
            elif place is not None:
                changes.retried.append((saving.next_attempt, saving.retry_at, site_id, place))
            else:
                place = self._numbers.take_place()
                changes.placed.append(
                    rows.waiting_row(
                        site_id,
                        place,
                        saving.page,
                        self._rank_of(saving.page),
                        attempt=saving.next_attempt,
                        retry_at=saving.retry_at,
                    )
                )
                changes.add_seen(place, page_id, site_id, saving.page)
        self._run_many(sql.RETRY_LATER, changes.retried)
        self._run_many(sql.DROP_WAITING, sorted(changes.dropped))
        self._run_many(sql.ADD_WAITING, changes.placed)
        self._run_many(sql.ADD_PAGE, changes.pages)
        self._run_many(ADD_SIGHTING, changes.sightings)
        self._run_many(KEEP_CONTENT, changes.unchanged)
        self._run_many(sql.PUT_SEEN, sorted(changes.seen, key=_by_site_and_key))
        self._run_many(sql.ADD_CONTENT, sorted(changes.contents))

    def _queue_again(self, savings: Iterable[SaveAgain]) -> None:
        placed, seen = [], []
        for saving in savings:
            for page in saving.pages:
                site_id = self._numbers.site_id(page.site)
                place, page_id = self._find(site_id, page.key)
                if place is not None:
                    continue
                place, rank = self._numbers.take_place(), self._rank_of(page)
                when = saving.not_before
                placed.append(rows.waiting_row(site_id, place, page, rank, attempt=AGAIN, retry_at=when))
                seen.append((place, page_id, site_id, page.key, check_bits(page.url)))
        self._run_many(sql.ADD_WAITING, placed)
        self._run_many(sql.PUT_SEEN, sorted(seen, key=_by_site_and_key))

    def _recount(self, site_id: int, last_page_id: int | None, saving: SaveSettled) -> None:
        """A page that settles once more counts as what it is now."""
        self._count_page(site_id, saving.state, saving.outcome.kind, 1)
        if last_page_id is not None:
            state, kind = self._run(sql.FIND_VERDICT, (last_page_id,)).fetchone()
            self._count_page(site_id, PageState(state), Kind(kind), -1)

    def _count_page(self, site_id: int, state: PageState, kind: Kind, by: int) -> None:
        name = rows.counted_as(state, kind)
        if name is not None:
            self._sums_of(site_id).pages[name] += by

    def _count(self, saving: SaveSettled) -> None:
        """Bytes and attempts count whether or not they led to a kept page."""
        site_id, outcome = self._numbers.site_id(saving.page.site), saving.outcome
        if outcome.kind is not Kind.OUT_OF_SCOPE:
            sums = self._sums_of(site_id)
            sums.wire_bytes += outcome.wire_bytes
            sums.content_bytes += outcome.content_bytes
            if sums.started_at is None and outcome.duration_s > 0:
                sums.started_at = saving.at - outcome.duration_s
        words = rows.word_of(saving.state), rows.word_of(outcome.kind)
        self._outcomes[site_id, *words, rows.reason_of(saving)] += 1

    def _save_sites(self, tasks: Sequence[Task], sites: Sequence[SaveSite]) -> None:
        number = self._numbers.site_id
        for each in sites:
            if each.robots_bytes:
                self._sums_of(number(each.site)).wire_bytes += each.robots_bytes
        positions = self._numbers.take_positions(len(tasks))
        task_rows = [
            (position, *rows.task_row(number(task.site), task))
            for position, task in zip(positions, tasks, strict=True)
        ]
        latest = {each.site: each for each in sites}
        site_rows = [
            (each.free_at, each.failures_in_a_row, each.ended_at, number(each.site))
            for each in latest.values()
        ]
        robots_rows = [
            (
                number(each.site),
                each.robots_text and rows.clean_text(each.robots_text),
                each.robots_expires_at,
            )
            for each in sites
            if each.robots_text is not None or each.robots_expires_at is not None
        ]
        self._run_many(sql.NUMBER_SITE, [(new, site) for site, new in self._numbers.new_site_ids.items()])
        self._run_many(sql.PUT_TASK, task_rows)
        self._run_many(sql.PUT_SITE, site_rows)
        self._run_many(sql.PUT_ROBOTS, robots_rows)
        self._run_many(sql.ADD_SUMS, [sums.row(site_id) for site_id, sums in sorted(self._sums.items())])
        counts = [(*which, count) for which, count in sorted(self._outcomes.items())]
        self._run_many(sql.COUNT_OUTCOMES, counts)

    def _find(self, site_id: int, key: PageKey) -> tuple[int | None, int | None]:
        """Where a page waits and where it is settled, as far as it is known."""
        row: tuple[int | None, int | None] | None = self._run(sql.FIND_SEEN, (site_id, key)).fetchone()
        return row or (None, None)

    def _sums_of(self, site_id: int) -> Sums:
        sums = self._sums.get(site_id)
        if sums is None:
            sums = self._sums[site_id] = Sums()
        return sums

    def _file_id(self, saving: SaveSettled) -> int | None:
        if saving.capture is None:
            return None
        name = saving.capture.warc_file
        if name not in self._file_ids:
            self._run(sql.NAME_FILE, (name,))
            (self._file_ids[name],) = self._run(sql.FIND_FILE, (name,)).fetchone()
        return self._file_ids[name]


def fingerprints_of(batch: Sequence[Saving]) -> list[int]:
    """Of the contents that have come, each as `rows.fingerprint_of` has it."""
    digests = [saving.outcome.digest for saving in batch if isinstance(saving, SaveSettled)]
    return [rows.fingerprint_of(digest) for digest in digests if digest]


_by_site_and_place = itemgetter(0, 1)
_by_site_and_key = itemgetter(2, 3)
