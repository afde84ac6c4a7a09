"""One commit on PostgreSQL: a batch turned into a dozen statements over whole columns; and a new round of
visits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import structs

from headway.engine.seen import check_bits, next_key
from headway.model.command import (
    Copy,
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
from headway.model.page import AGAIN, Kind, Page, PageKey, Sighting, Site, Task
from headway.ports import Notes
from headway.store import rows
from headway.store.postgres import tables as sql
from headway.store.postgres.connection import from_text, to_text
from headway.store.postgres.tables import PLACES, Numbers
from headway.store.recrawl import TRANSIENT_NOTICES, in_turn
from headway.store.rows import Changes, Sums
from headway.units import Instant, Seconds

if TYPE_CHECKING:
    import psycopg

ADD_SIGHTINGS = "INSERT INTO sighting SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bytea[])"
# An unchanged page keeps its state: its row says so without a body.
KEEP_CONTENTS = """
    UPDATE page SET links = coalesce(page.links, old.links),
        content_bytes = greatest(page.content_bytes, old.content_bytes)
    FROM unnest(%s::bigint[], %s::bigint[]) AS visit (old_id, id) JOIN page AS old ON old.id = visit.old_id
    WHERE page.id = visit.id"""
_FIND_COPIES = """
    SELECT site.site, seen.key, seen.place IS NOT NULL, state, kind, status, content_type, digest, fetched_at,
           page.depth, etag, last_modified, history
    FROM unnest(%s::text[], %s::bigint[]) AS asked (site, key)
    JOIN site ON site.site = asked.site
    JOIN seen ON seen.site_id = site.id AND seen.key = asked.key
    LEFT JOIN page ON page.id = seen.page_id LEFT JOIN sighting ON sighting.page_id = page.id"""
# A page that is queued again after a single visit has no history yet, and is to be visited all the same.
_HISTORIES = """
    SELECT site.site, coalesce(sighting.history, '')
    FROM site JOIN seen ON seen.site_id = site.id LEFT JOIN sighting ON sighting.page_id = seen.page_id
    WHERE (sighting.history IS NOT NULL OR (seen.place IS NOT NULL AND seen.page_id IS NOT NULL))"""
_HISTORIES_OF = f"{_HISTORIES} AND site.site = ANY(%s)"
_CHOOSE = f"""
    CREATE TEMP TABLE chosen ON COMMIT DROP AS
    SELECT seen.site_id, (SELECT last_value + 1 FROM {PLACES}) * 1000
               + row_number() OVER (ORDER BY page.depth, page.id) AS place,
           seen.key, page.path, page.depth, CASE WHEN page.kind = %s THEN 0 ELSE %s END AS attempt
    FROM seen JOIN page ON page.id = seen.page_id
    WHERE seen.place IS NULL AND page.kind <> %s AND page.fetched_at <= %s"""  # noqa: S608
_ROUND = (
    f"SELECT setval('{PLACES}', last_value + 2 + (SELECT count(*) FROM chosen) / 1000) FROM {PLACES}",  # noqa: S608
    """INSERT INTO waiting (site_id, place, key, path, depth, attempt, rank)
       SELECT site_id, place, key, path, depth, attempt, 0.0 FROM chosen ORDER BY site_id, place""",
    """UPDATE seen SET place = chosen.place FROM chosen
       WHERE seen.site_id = chosen.site_id AND seen.key = chosen.key""",
    """INSERT INTO holding (site_id) SELECT DISTINCT site_id FROM chosen ORDER BY site_id
       ON CONFLICT DO NOTHING""",
    # Bytes and times are those of the round; pages count with their present state until it changes.
    """UPDATE site SET started_at = NULL, ended_at = NULL, wire_bytes = 0, content_bytes = 0
       WHERE free_at IS NOT NULL""",
    # What failed before is asked for again, and counts if it fails again.
    "DELETE FROM outcome WHERE state IN ('failed', 'waiting')",
    # What trouble a site had is found out again.
    f"DELETE FROM notice WHERE what IN {TRANSIENT_NOTICES!r}",  # noqa: S608 - our own words
    # The next process that ranks the waiting pages finds an unknown order, and ranks them again.
    "UPDATE crawl SET waiting_order = '', ended_at = NULL",
)


def find_copies(
    connection: psycopg.Connection[tuple[Any, ...]], pages: Sequence[Page]
) -> dict[tuple[Site, PageKey], Copy]:
    """What the store has of pages from earlier visits, without pages never seen."""
    asked = ([to_text(page.site) for page in pages], [page.key for page in pages])
    return {
        (Site(from_text(site)), PageKey(key)): _copy(rest)
        for site, key, *rest in connection.execute(_FIND_COPIES, asked).fetchall()
    }


def histories(
    connection: psycopg.Connection[tuple[Any, ...]], sites: Sequence[Site] | None = None
) -> list[tuple[Site, bytes]]:
    """The visit histories of all pages of these sites, or of all sites, that were visited and may be visited
    again."""
    asked = (_HISTORIES,) if sites is None else (_HISTORIES_OF, ([to_text(site) for site in sites],))
    return [(Site(from_text(site)), history) for site, history in connection.execute(*asked).fetchall()]


def begin_round_on_server(
    connection: psycopg.Connection[tuple[Any, ...]],
    now: Instant,
    older_than_s: Seconds = Seconds(0.0),
    *,
    cuts: bool = False,
) -> int | None:
    """`store.recrawl.begin_round` for a crawl on a server."""
    run = connection.execute
    with connection.transaction():
        run("SELECT FROM crawl FOR UPDATE")
        left = run("SELECT FROM waiting WHERE attempt >= 0 OR retry_at IS NULL LIMIT 1").fetchone()
        if left is not None and not cuts:
            return None
        run(_CHOOSE, (Kind.LIMIT.value, AGAIN, Kind.OUT_OF_SCOPE.value, now - older_than_s))
        row = run("SELECT count(*) FROM chosen").fetchone()
        assert row is not None
        count = int(row[0])
        if count or cuts:
            for statement in _ROUND:
                run(statement.encode())
            run("UPDATE waiting SET retry_at = NULL WHERE attempt < 0 AND retry_at <= %s", (now,))
            run("UPDATE crawl SET started_at = %s", (now,))
            run("INSERT INTO round SELECT 1 + coalesce(max(number), 0), %s, %s FROM round", (now, count))
    return count


def _copy(row: Sequence[Any]) -> Copy:
    is_waiting, state, kind, status, content_type, digest, fetched_at, depth, *rest = row
    if state is None:
        return Copy(PageState.WAITING, None, 0, "", "", Instant(0.0), is_waiting=is_waiting)
    etag, last_modified, history = rest
    sighting = Sighting(from_text(etag or ""), from_text(last_modified or ""), history or b"")
    return Copy(
        PageState(state),
        Kind(kind),
        status,
        from_text(content_type),
        digest,
        Instant(fetched_at),
        depth,
        sighting,
        is_waiting,
    )


# One commit on PostgreSQL: a batch of savings turned into a dozen statements over whole columns.
#
# They are sent in two groups: queries about the pages, then all changes. Rows are sorted, so that two
# collectors that write the same rows do it in the same order.


class Sorted:
    """A batch, sorted by operation; if a row is set twice, the last value counts."""

    def __init__(self, batch: Sequence[Saving]) -> None:
        self.tasks: dict[str, Task] = {}
        self.found: dict[PageKey, Page] = {}
        self.elsewhere: set[str] = set()
        """URLs."""
        self.settled: list[SaveSettled] = []
        self.turns = list(in_turn(batch))
        self.sites: dict[str, SaveSite] = {}
        self.robots: dict[str, tuple[str | None, float | None]] = {}
        self.servers: dict[str, bytes] = {}
        self.robots_bytes: Counter[str] = Counter()
        self.notices: dict[tuple[Site, str, str], float] = {}
        self.left_out: Counter[tuple[Site, str]] = Counter()
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
                case SaveLeftOut(site, reason, pages):
                    self.left_out[site, reason] += pages
                case SaveNotice():
                    self.notices.setdefault((saving.site, saving.what, saving.subject), saving.at)

    def site_names(self) -> set[str]:
        names = {page.site for page in self.found.values()} | {each.page.site for each in self.settled}
        names |= {page.site for page in self.again()}
        names |= {site for site, _ in self.left_out} | {site for site, _, _ in self.notices}
        return names | self.sites.keys() | self.tasks.keys()

    def again(self) -> list[Page]:
        """Pages to be queued again."""
        return [page for _, savings in self.turns for saving in savings for page in saving.pages]

    def _add_found(self, saving: SaveFound) -> None:
        for page in saving.pages:
            if self.found.setdefault(page.key, page) is page and saving.is_elsewhere:
                self.elsewhere.add(page.url)

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
        added = self._add_seen(placed)
        known = self._find(first)
        placed = self._with_keys_of_their_own(placed, {place for (place,) in added()} if added else set())
        self._queue(placed, batch.elsewhere)
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

    def _add_seen(self, placed: Sequence[tuple[int, Page, int]]) -> Any:
        found = [(site_id, page.key, place, check_bits(page.url)) for site_id, page, place in placed]
        return self._ask_many(sql.ADD_SEEN, found, ("bigint",) * 4)

    def _with_keys_of_their_own(
        self, placed: list[tuple[int, Page, int]], added: set[int]
    ) -> list[tuple[int, Page, int]]:
        """The pages that are new. One that was reported as new but is known is not queued again, unless it is
        known by its key alone: then that is another page, and it gets another key."""
        new = [row for row in placed if row[2] in added]
        while placed := [row for row in placed if row[2] not in added]:
            asked = [(site_id, page.key) for site_id, page, _ in placed]
            checks = {row[:2]: row[2] for row in self._ask_many(sql.FIND_CHECKS, asked, ("bigint",) * 2)()}
            placed = [
                (site_id, structs.replace(page, key=next_key(page.key)), place)
                for site_id, page, place in placed
                if checks.get((site_id, page.key), 0) not in {0, check_bits(page.url)}
            ]
            if not placed:
                break
            added = {place for (place,) in self._add_seen(placed)()}
            new += [row for row in placed if row[2] in added]
        return new

    def _queue(self, new: Sequence[tuple[int, Page, int]], elsewhere: set[str]) -> None:
        rank_of = self._rank_of
        self._add(
            "waiting",
            [rows.waiting_row(site_id, place, page, rank_of(page)) for site_id, page, place in new],
        )
        if not elsewhere:
            return
        mail = [(site_id, place) for site_id, page, place in new if page.url in elsewhere]
        self._change_many(sql.ADD_MAIL, mail, ("bigint", "bigint"))
        sites = {site_id for site_id, _ in mail} - self._numbers.held_site_ids
        self._change_many(sql.ADD_HOLDINGS, [(site_id,) for site_id in sites], ("bigint",))

    def _queue_again(self, savings: Sequence[SaveAgain]) -> None:
        """Pages that wait already, or appear twice in a batch, are queued once."""
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
            changes.add_seen(place, page_id, site_id, page)
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
        """Settle pages, each of which appears once."""
        known: dict[tuple[int, PageKey], Sequence[Any]] = {row[:2]: row[2:] for row in known_rows}
        changes = Changes()
        for saving in settled:
            site_id, key = self._numbers.site_id(saving.page.site), saving.page.key
            place, page_id, state, kind = known.get((site_id, key), _UNKNOWN)
            if place is None and kind == Kind.OUT_OF_SCOPE and _is_passed_over(saving):
                continue  # another collector has found it before
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
                changes.retried.append((saving.next_attempt, saving.retry_at, site_id, place))
            else:
                place = self._numbers.take_place()
                page = saving.page
                changes.placed.append(
                    rows.waiting_row(
                        site_id,
                        place,
                        page,
                        self._rank_of(page),
                        attempt=saving.next_attempt,
                        retry_at=saving.retry_at,
                    )
                )
                changes.add_seen(place, page_id, site_id, saving.page)
        self._write_changes(changes)

    def _write_changes(self, changes: Changes) -> None:
        change = self._change_many
        change(sql.RETRY_LATER, changes.retried, ("bigint", "double precision", "bigint", "bigint"))
        change(sql.DROP_WAITING, sorted(changes.dropped), ("bigint", "bigint"))
        self._add("waiting", changes.placed)
        self._add("page", changes.pages)
        change(ADD_SIGHTINGS, changes.sightings, ("bigint", "text", "text", "bytea"))
        change(KEEP_CONTENTS, changes.unchanged, ("bigint", "bigint"))
        change(sql.PUT_SEEN, sorted(changes.seen, key=_by_site_and_key), ("bigint",) * 5)
        change(sql.ADD_CONTENT, sorted(dict(reversed(changes.contents)).items()), ("bigint", "bigint"))

    def _count_page(self, site_id: int, state: PageState, kind: Kind, by: int) -> None:
        name = rows.counted_as(state, kind)
        if name is not None:
            self._sums_of(site_id).pages[name] += by

    def _count(self, site_id: int, saving: SaveSettled) -> None:
        """Bytes and attempts count whether or not they led to an archived page."""
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
        positions = self._numbers.take_positions(len(batch.tasks)) if batch.tasks else range(0)
        tasks = [
            (position, *rows.task_row(number(task.site), task))
            for position, task in zip(positions, batch.tasks.values(), strict=True)
        ]
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
        for (site, reason), pages in batch.left_out.items():
            words = PageState.EXCLUDED.value, Kind.OUT_OF_SCOPE.value
            self._outcomes[number(site), *words, to_text(reason)] += pages
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
        """Send the query now; calling the result waits for the answer."""
        if not values:
            return None
        return self._connection.execute(statement.encode(), sql.columns(values, types)).fetchall

    def _add(self, table: str, values: Sequence[Sequence[Any]]) -> None:
        """Whole rows of a table, which has the columns of `crawl.sqlite`."""
        marks = ", ".join(f"%s::{name}[]" for name in self._types[table])
        self._change_many(f"INSERT INTO {table} SELECT * FROM unnest({marks})", values, self._types[table])  # noqa: S608

    def _change_many(self, statement: str, values: Sequence[Sequence[Any]], types: Sequence[str]) -> None:
        if values:
            self._connection.execute(statement.encode(), sql.columns(values, types))


_by_site_and_key = itemgetter(2, 3)
_UNKNOWN = (None, None, None, None)
_TASK_TYPES = (
    "bigint",
    "bigint",
    "text",
    "double precision",
    "double precision",
    *("bigint",) * 3,
    "double precision",
)


def _is_passed_over(saving: SaveSettled) -> bool:
    """Whether it was found, but not requested."""
    is_out = saving.outcome.kind is Kind.OUT_OF_SCOPE and saving.state is PageState.EXCLUDED
    return is_out and saving.capture is None
