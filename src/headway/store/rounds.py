"""The rounds of a run: when each began and ended, and what it found new, changed and gone.

The first round is the crawl itself. A later one begins when `headway crawl` is started again after the round
before has ended; one that was interrupted is continued.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headway.archive.files import clear_errors
from headway.errors import StoreError
from headway.model.page import Kind
from headway.store import schema
from headway.store.reader import RunReader, database_of, open_reader
from headway.units import Instant, Seconds

_ABANDONED_AFTER_S = Seconds(12 * 3600.0)
"""A round that began longer ago than this, and all of whose deadlines have passed, is not continued: another
night has begun."""

NEW, CHANGED, UNCHANGED, GONE, FAILED = "new", "changed", "unchanged", "gone", "failed"
CHANGES = (NEW, CHANGED, UNCHANGED, GONE, FAILED)

_ROUNDS = "SELECT number, started_at, pages, ended_at, result FROM round ORDER BY number"
_BEGAN = "SELECT started_at FROM crawl"
_LAST_DEADLINE = "SELECT max(deadline_at) FROM task"
_LEFT = "SELECT 1 FROM waiting WHERE attempt >= 0 OR retry_at IS NULL LIMIT 1"
_PAGES = "SELECT count(*) FROM seen"
_PUT_FIRST = "INSERT INTO round (number, started_at, pages, ended_at, result) VALUES (0, ?, ?, ?, ?)"
_PUT_END = "UPDATE round SET ended_at = ?, result = ? WHERE number = ?"

# Each page visited in the round by its last visit, compared with its visit before and its copy before.
VISITS = f"""
    WITH visit AS (
        SELECT id, site_id, key, state, kind, status, digest,
               row_number() OVER (PARTITION BY site_id, key ORDER BY id DESC) AS place
        FROM page WHERE settled_at >= ? AND settled_at < ? AND state IN ('done', 'failed')
              AND kind <> '{Kind.LISTING.value}'
    ), earlier AS (
        SELECT site_id, key, state, status,
               row_number() OVER (PARTITION BY site_id, key ORDER BY id DESC) AS place
        FROM page WHERE settled_at < ? AND state IN ('done', 'failed')
    ), copy AS (
        SELECT site_id, key, digest, row_number() OVER (PARTITION BY site_id, key ORDER BY id DESC) AS place
        FROM page WHERE settled_at < ? AND state = 'done'
    )
    SELECT visit.id, visit.site_id, CASE
        WHEN visit.state = 'done' AND (copy.key IS NULL OR earlier.status IN (404, 410)) THEN '{NEW}'
        WHEN visit.state = 'done' AND (visit.kind = '{Kind.NOT_MODIFIED.value}' OR visit.digest = copy.digest)
            THEN '{UNCHANGED}'
        WHEN visit.state = 'done' THEN '{CHANGED}'
        WHEN visit.status IN (404, 410) AND earlier.state = 'done' THEN '{GONE}'
        ELSE '{FAILED}' END AS change
    FROM visit
    LEFT JOIN earlier ON earlier.site_id = visit.site_id AND earlier.key = visit.key AND earlier.place = 1
    LEFT JOIN copy ON copy.site_id = visit.site_id AND copy.key = visit.key AND copy.place = 1
    WHERE visit.place = 1"""  # noqa: S608 - our own words
_COUNTS = f"""
    SELECT site.site, found.change, count(*) FROM ({VISITS}) AS found JOIN site ON site.id = found.site_id
    GROUP BY site.site, found.change"""  # noqa: S608 - our own words


class SiteOutcome(msgspec.Struct, frozen=True):
    """What became of a site in a round."""

    site: str
    verdict: str
    deadline_at: float | None
    ended_at: float | None
    done: int
    failed: int
    wire_bytes: int
    problem: str = ""


class RoundResult(msgspec.Struct, frozen=True):
    """What is stored of a round when it has ended."""

    done: int
    failed: int
    wire_bytes: int
    met: int
    missed: int
    exit_code: int
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    gone: int = 0
    failed_visits: int = 0
    is_complete: bool = True
    """False: another round was begun while pages of this one still waited."""
    sites: tuple[SiteOutcome, ...] = ()
    """The first thousand."""


class Round(msgspec.Struct, frozen=True):
    """A round; the first has the number 1."""

    number: int
    started_at: float
    pages: int
    """How many were known at its start; of the first round, at its end."""
    ended_at: float | None = None
    result: RoundResult | None = None
    """None while it has not ended."""


def rounds_of(reader: RunReader) -> list[Round]:
    """All rounds, the current one last. Of runs of earlier versions only the beginnings are known."""
    rows = {number: rest for number, *rest in reader.ask(_ROUNDS)}
    started_at, _ = reader.crawl()
    last = max(rows, default=0)
    if last == 0 and 0 not in rows:
        rows[0] = [started_at, reader.ask(_PAGES)[0][0], None, None]
    elif 0 not in rows:
        first = reader.ask("SELECT min(settled_at) FROM page")[0][0]
        rows[0] = [started_at if first is None else first, 0, None, None]
    return [
        Round(number + 1, began, pages, ended_at, _result(text))
        for number, (began, pages, ended_at, text) in sorted(rows.items())
    ]


def _result(text: str | None) -> RoundResult | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=RoundResult)
    except msgspec.DecodeError:
        return None  # of a later version


def period_of(rounds: Sequence[Round], number: int) -> tuple[Instant, Instant]:
    """From when to when the pages of a round settled. StoreError if there is no such round."""
    if not 1 <= number <= len(rounds):
        raise StoreError(f"there is no round {number}; this run has {len(rounds)}")
    later = rounds[number].started_at if number < len(rounds) else float("inf")
    # What settled before the first round is known to have begun belongs to it too.
    return Instant(0.0 if number == 1 else rounds[number - 1].started_at), Instant(later)


def changes_by_site(reader: RunReader, period: tuple[Instant, Instant]) -> dict[str, dict[str, int]]:
    """How many pages of each site the round found new, changed, unchanged, gone or failed."""
    found: dict[str, dict[str, int]] = {}
    began_at, until = period[0], min(period[1], 1e18)
    for site, change, count in reader.ask(_COUNTS, (began_at, until, began_at, began_at)):
        found.setdefault(site, {})[change] = count
    return found


def changes_in(reader: RunReader, period: tuple[Instant, Instant]) -> dict[str, int]:
    """`changes_by_site`, of all sites together."""
    total = dict.fromkeys(CHANGES, 0)
    for counts in changes_by_site(reader, period).values():
        for change, count in counts.items():
            total[change] += count
    return total


def change_of_each(reader: RunReader, period: tuple[Instant, Instant]) -> Iterator[tuple[int, str]]:
    """The number of each page row that counts in a round, and what the visit found."""
    began_at, until = period[0], min(period[1], 1e18)
    for number, _, change in reader.ask(VISITS, (began_at, until, began_at, began_at)):
        yield number, change


class NextRound(NamedTuple):
    """What the next start of the crawl in a folder, or on a server, does."""

    begins: bool
    """Whether a new round begins."""
    cuts: Round | None = None
    """The unfinished round that it ends."""


def next_round(run: Path | str, now: Instant) -> NextRound:
    """Whether the round of a run has ended, so that the next start begins another one."""
    try:
        reader = open_reader(run)
    except (StoreError, OSError):
        return NextRound(begins=False)  # there is none, or the next open reports the reason
    with reader:
        if not reader.ask(_BEGAN):
            return NextRound(begins=False)
        current = rounds_of(reader)[-1]
        if current.ended_at is not None:
            # A repair may have queued pages of the round that has ended.
            return NextRound(begins=not reader.ask(_LEFT))
        ((last_deadline,),) = reader.ask(_LAST_DEADLINE)
        is_over = last_deadline is not None and last_deadline < now
        is_old = now - current.started_at > _ABANDONED_AFTER_S
        if is_over and is_old:
            return NextRound(begins=True, cuts=current)
    return NextRound(begins=False)


def end_round(run: Path | str, ended_at: Instant, result: RoundResult) -> None:
    """Note that the current round has ended. A second time changes nothing."""
    with open_reader(run) as reader:
        current = rounds_of(reader)[-1]
    if current.ended_at is not None:
        return
    text = msgspec.json.encode(result).decode()
    if current.number == 1:
        values: tuple[Any, ...] = (current.started_at, current.pages, ended_at, text)
        _execute(run, _PUT_FIRST, values)
    else:
        _execute(run, _PUT_END, (ended_at, text, current.number - 1))


def _execute(run: Path | str, statement: str, values: tuple[Any, ...]) -> None:
    if isinstance(run, str):
        from headway.store.postgres.connection import Address
        from headway.store.postgres.store import PostgresStore
        from headway.store.postgres.tables import translated_query

        store = PostgresStore(Address.parse(run), make=False)
        try:
            store.asked(lambda run: run.execute(translated_query(statement).encode(), values))
        finally:
            store.close()
        return
    with writing(run) as connection:
        connection.execute(statement, values)


@contextmanager
def writing(run: Path) -> Iterator[Any]:
    """The database of a run folder into which nobody crawls, in one transaction."""
    path = database_of(run)
    lock = schema.lock(path)
    try:
        connection = schema.open_for_writing(path)
        try:
            with clear_errors(path):
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
        finally:
            schema.close_for_good(connection)
    finally:
        schema.unlock(lock)


def words_of(result: RoundResult | Mapping[str, int]) -> str:
    """What a round found, in words."""
    counts = result if isinstance(result, Mapping) else counts_of(result)
    return ", ".join(f"{counts[change]} {change}" for change in CHANGES if counts[change]) or "nothing"


def counts_of(result: RoundResult) -> dict[str, int]:
    return {
        NEW: result.new,
        CHANGED: result.changed,
        UNCHANGED: result.unchanged,
        GONE: result.gone,
        FAILED: result.failed_visits,
    }
