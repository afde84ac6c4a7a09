"""One commit on PostgreSQL: a batch of savings turned into a dozen statements over whole columns.

They go out in two volleys: what is known of the pages, then all that changes. Rows are sorted, so that
two collectors who write the same ones do it in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from headway.model.command import (
    PageState,
    SaveAgain,
    SaveFound,
    SaveNotice,
    SaveServers,
    SaveSettled,
    SaveSite,
    SaveTasks,
    Saving,
)
from headway.model.outcome import Kind
from headway.model.page import AGAIN, Page, PageKey, Site
from headway.model.task import Task
from headway.store import rows
from headway.store.again import in_turn
from headway.store.capture import Notes
from headway.store.changes import Changes
from headway.store.postgres import arrays
from headway.store.postgres import statements as sql
from headway.store.postgres.again import ADD_SIGHTINGS, KEEP_CONTENTS
from headway.store.postgres.numbers import Numbers
from headway.store.sums import Sums

if TYPE_CHECKING:
    import psycopg


class Sorted:
    """A batch by what is to be done with it; of what is said twice the last word counts."""

    def __init__(self, batch: Sequence[Saving]) -> None:
        self.tasks: dict[str, Task] = {}
        self.found: dict[PageKey, Page] = {}
        self.elsewhere: set[PageKey] = set()
        self.settled: list[SaveSettled] = []
        self.turns = list(in_turn(batch))
        self.sites: dict[str, SaveSite] = {}
        self.robots: dict[str, tuple[str | None, float | None]] = {}
        self.servers: dict[str, bytes] = {}
        self.robots_bytes: Counter[str] = Counter()
        self.notices: dict[tuple[Site, str, str], float] = {}
        for saving in batch:
            match saving:
                case SaveSettled():
                    self.settled.append(saving)
                case SaveSite():
                    self._add_site(saving)
                case SaveFound():
                    self._add_found(saving)
                case SaveTasks():
                    self.tasks |= {task.site: task for task in saving.tasks}
                case SaveServers():
                    self.servers |= dict(saving.rows)
                case SaveNotice():
                    self.notices.setdefault((saving.site, saving.what, saving.subject), saving.at)

    def site_names(self) -> set[str]:
        names = {page.site for page in self.found.values()} | {each.page.site for each in self.settled}
        names |= {page.site for page in self.again()}
        return names | self.sites.keys() | self.tasks.keys() | {site for site, _, _ in self.notices}

    def again(self) -> list[Page]:
        """Pages that are to wait once more."""
        return [page for _, savings in self.turns for saving in savings for page in saving.pages]

    def _add_found(self, saving: SaveFound) -> None:
        for page in saving.pages:
            if self.found.setdefault(page.key, page) is page and saving.is_elsewhere:
                self.elsewhere.add(page.key)

    def _add_site(self, saving: SaveSite) -> None:
        self.sites[saving.site] = saving
        self.robots_bytes[saving.site] += saving.robots_bytes
        text, expires_at = self.robots.get(saving.site, (None, None))
        new_text, new_expires_at = saving.robots_text, saving.robots_expires_at
        if new_text is not None or new_expires_at is not None:
            self.robots[saving.site] = (
                text if new_text is None else rows.clean_text(new_text),
                expires_at if new_expires_at is None else new_expires_at,
            )


class BatchWriter:
    """Writes one batch inside the transaction that the store has begun."""

    def __init__(
        self,
        connection: psycopg.Connection[tuple[Any, ...]],
        numbers: Numbers,
        types: Mapping[str, Sequence[str]],
        rank_of: Callable[[Page], float],
    ) -> None:
        """`types` are those of the tables' columns."""
        self._connection = connection
        self._numbers = numbers
        self._types = types
        self._rank_of = rank_of
        self._sums: dict[int, Sums] = {}
        self._outcomes: Counter[tuple[int, str, str, str]] = Counter()

    def write(self, batch: Sorted, file_lengths: Mapping[str, int], notes: Notes) -> None:
        numbers = self._numbers
        placed = [(numbers.site_id(page.site), page, numbers.take_place()) for page in batch.found.values()]
        placed.sort(key=lambda row: (row[0], row[1].key))
        (first, again), *further = batch.turns
        added = self._ask_many(
            sql.ADD_SEEN,
            [(site_id, page.key, place) for site_id, page, place in placed],
            ("bigint",) * 3,
        )
        known = self._find(first)
        self._queue(placed, {place for (place,) in added()} if added else set(), batch.elsewhere)
        self._settle(first, known() if known else [], notes)
        self._queue_again(again)
        for part, again in further:
            known = self._find(part)
            self._settle(part, known() if known else [], notes)
            self._queue_again(again)
        file_rows = [(numbers.file_id(name), length) for name, length in file_lengths.items()]
        self._change_many(sql.PUT_FILES, file_rows, ("bigint", "bigint"))
        self._change_many(sql.PUT_SERVERS, sorted(batch.servers.items()), ("text", "bytea"))
        self._save_sites(batch)

    def _queue(
        self, placed: Sequence[tuple[int, Page, int]], added: set[int], elsewhere: set[PageKey]
    ) -> None:
        """Said to be new and yet known: such a page is not queued again."""
        new = [row for row in placed if row[2] in added]
        rank_of = self._rank_of
        self._add(
            "waiting",
            [rows.waiting_row(site_id, place, page, rank_of(page)) for site_id, page, place in new],
        )
        if not elsewhere:
            return
        mail = [(site_id, place) for site_id, page, place in new if page.key in elsewhere]
        self._change_many(sql.ADD_MAIL, mail, ("bigint", "bigint"))
        sites = {site_id for site_id, _ in mail} - self._numbers.held_site_ids
        self._change_many(sql.ADD_HOLDINGS, [(site_id,) for site_id in sites], ("bigint",))

    def _queue_again(self, savings: Sequence[SaveAgain]) -> None:
        """Pages that wait already, or twice in a batch, wait once."""
        wanted = {page.key: (page, each.not_before) for each in reversed(savings) for page in each.pages}
        answer = self._find_pages([page for page, _ in wanted.values()])
        known = {row[:2]: (row[2], row[3]) for row in answer()} if answer else {}
        changes = Changes()
        for page, not_before in wanted.values():
            site_id = self._numbers.site_id(page.site)
            place, page_id = known.get((site_id, page.key), (None, None))
            if place is not None:
                continue
            place, rank = self._numbers.take_place(), self._rank_of(page)
            row = rows.waiting_row(site_id, place, page, rank, attempt=AGAIN, retry_at=not_before)
            changes.placed.append(row)
            changes.seen.append((place, page_id, site_id, page.key))
        self._write_changes(changes)

    def _find(self, settled: Sequence[SaveSettled]) -> Any:
        return self._find_pages([each.page for each in settled])

    def _find_pages(self, pages: Sequence[Page]) -> Any:
        site_id = self._numbers.site_id
        asked = sorted((site_id(page.site), page.key) for page in pages)
        return self._ask_many(sql.FIND_SEEN, asked, ("bigint", "bigint"))

    def _settle(
        self, settled: Iterable[SaveSettled], known_rows: Sequence[tuple[Any, ...]], notes: Notes
    ) -> None:
        """Settle pages of which each is named once."""
        known: dict[tuple[int, PageKey], Sequence[Any]] = {row[:2]: row[2:] for row in known_rows}
        changes = Changes()
        for saving in settled:
            site_id, key = self._numbers.site_id(saving.page.site), saving.page.key
            place, page_id, state, kind = known.get((site_id, key), _UNKNOWN)
            if place is None and kind == Kind.OUT_OF_SCOPE and _is_passed_over(saving):
                continue  # somebody else came upon it before
            self._count(site_id, saving)
            if rows.is_final(saving.state):
                if place is not None:
                    changes.dropped.append((site_id, place))
                self._count_page(site_id, saving.state, saving.outcome.kind, 1)
                if page_id is not None:
                    self._count_page(site_id, PageState(state), Kind(kind), -1)
                last_page_id, page_id = page_id, self._numbers.take_page_id()
                changes.note_visit(saving, page_id, last_page_id)
                changes.add_page(page_id, site_id, saving, self._file_id(saving), notes)
            elif place is not None:
                changes.retried.append((saving.attempt + 1, saving.retry_at, site_id, place))
            else:
                place = self._numbers.take_place()
                page = saving.page
                changes.placed.append(
                    rows.waiting_row(
                        site_id,
                        place,
                        page,
                        self._rank_of(page),
                        attempt=saving.attempt + 1,
                        retry_at=saving.retry_at,
                    )
                )
                changes.seen.append((place, page_id, site_id, key))
        self._write_changes(changes)

    def _write_changes(self, changes: Changes) -> None:
        change = self._change_many
        change(sql.RETRY_LATER, changes.retried, ("bigint", "double precision", "bigint", "bigint"))
        change(sql.DROP_WAITING, sorted(changes.dropped), ("bigint", "bigint"))
        self._add("waiting", changes.placed)
        self._add("page", changes.pages)
        change(ADD_SIGHTINGS, changes.sightings, ("bigint", "text", "text", "bytea"))
        change(KEEP_CONTENTS, changes.unchanged, ("bigint", "bigint"))
        change(sql.PUT_SEEN, sorted(changes.seen, key=_by_last_two), ("bigint",) * 4)
        change(sql.ADD_CONTENT, sorted(dict(reversed(changes.contents)).items()), ("bigint", "bigint"))

    def _count_page(self, site_id: int, state: PageState, kind: Kind, by: int) -> None:
        name = rows.counted_as(state, kind)
        if name is not None:
            self._sums_of(site_id).pages[name] += by

    def _count(self, site_id: int, saving: SaveSettled) -> None:
        """Bytes and attempts count whether or not they led to a kept page."""
        outcome = saving.outcome
        if outcome.kind is not Kind.OUT_OF_SCOPE:
            sums = self._sums_of(site_id)
            sums.wire_bytes += outcome.wire_bytes
            sums.content_bytes += outcome.content_bytes
            if sums.started_at is None and outcome.duration_s > 0:
                sums.started_at = saving.at - outcome.duration_s
        self._outcomes[site_id, saving.state.value, outcome.kind.value, rows.reason_of(saving)] += 1

    def _save_sites(self, batch: Sorted) -> None:
        number, change = self._numbers.site_id, self._change_many
        tasks = [rows.task_row(number(task.site), task) for task in batch.tasks.values()]
        change(sql.PUT_TASKS, tasks, _TASK_TYPES)
        sites = [
            (each.free_at, each.failures_in_a_row, each.ended_at, number(each.site))
            for each in batch.sites.values()
        ]
        sites.sort(key=lambda row: row[-1])
        change(sql.PUT_SITES, sites, ("double precision", "bigint", "double precision", "bigint"))
        notices = sorted((number(site), *rest, at) for (site, *rest), at in batch.notices.items())
        change(sql.PUT_NOTICES, notices, ("bigint", "text", "text", "double precision"))
        robots = [(number(site), *rest) for site, rest in batch.robots.items()]
        change(sql.PUT_ROBOTS, robots, ("bigint", "text", "double precision"))
        for site, robots_bytes in batch.robots_bytes.items():
            self._sums_of(number(Site(site))).wire_bytes += robots_bytes
        sums = [sums.row(site_id) for site_id, sums in sorted(self._sums.items())]
        change(sql.ADD_SUMS, sums, (*("bigint",) * 5, "double precision", "bigint"))
        counts = [(*which, count) for which, count in sorted(self._outcomes.items())]
        change(sql.COUNT_OUTCOMES, counts, ("bigint", "text", "text", "text", "bigint"))

    def _sums_of(self, site_id: int) -> Sums:
        sums = self._sums.get(site_id)
        if sums is None:
            sums = self._sums[site_id] = Sums()
        return sums

    def _file_id(self, saving: SaveSettled) -> int | None:
        return None if saving.capture is None else self._numbers.file_id(saving.capture.warc_file)

    def _ask_many(self, statement: str, values: Sequence[Sequence[Any]], types: Sequence[str]) -> Any:
        """The question goes out now; calling what is returned waits for the answer."""
        if not values:
            return None
        return self._connection.execute(statement.encode(), arrays.columns(values, types)).fetchall

    def _add(self, table: str, values: Sequence[Sequence[Any]]) -> None:
        """Whole rows of a table, which has the columns that `crawl.sqlite` has."""
        marks = ", ".join(f"%s::{name}[]" for name in self._types[table])
        self._change_many(f"INSERT INTO {table} SELECT * FROM unnest({marks})", values, self._types[table])  # noqa: S608

    def _change_many(self, statement: str, values: Sequence[Sequence[Any]], types: Sequence[str]) -> None:
        if values:
            self._connection.execute(statement.encode(), arrays.columns(values, types))


_by_last_two = itemgetter(2, 3)
_UNKNOWN = (None, None, None, None)
_TASK_TYPES = (
    "bigint",
    "text",
    "double precision",
    "double precision",
    *("bigint",) * 3,
    "double precision",
)


def _is_passed_over(saving: SaveSettled) -> bool:
    """Whether it was found, and not asked for."""
    is_out = saving.outcome.kind is Kind.OUT_OF_SCOPE and saving.state is PageState.EXCLUDED
    return is_out and saving.capture is None
