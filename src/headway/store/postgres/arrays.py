"""Whole columns as PostgreSQL's binary arrays, and the numbers by which rows refer to each other."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.store.postgres import tables as sql
from headway.store.postgres.connection import from_text, to_text
from headway.store.postgres.tables import BLOCK, PAGE_IDS, PLACES

if TYPE_CHECKING:
    # An extra, which a crawl into a run folder does not need.
    import psycopg
    from psycopg.abc import Buffer
    from psycopg.adapt import Dumper

# The driver's own conversion takes a microsecond per element, and a commit has tens of thousands of them.

_INT8, _FLOAT8, _TEXT, _BYTEA = (20, 1016), (701, 1022), (25, 1009), (17, 1001)
"""The type of an element, and of the array."""
_HEADER = struct.Struct("!iiIii")
_NULL = b"\xff\xff\xff\xff"


class _Column(bytes):
    """An array, ready to be sent."""


class Integers(_Column): ...


class Floats(_Column): ...


class Texts(_Column): ...


class Blobs(_Column): ...


def integers(values: Sequence[int | None]) -> Integers:
    return Integers(_numbers(values, _INT8[0], ">i8", "!iq"))


def floats(values: Sequence[float | None]) -> Floats:
    return Floats(_numbers(values, _FLOAT8[0], ">f8", "!id"))


def texts(values: Sequence[str | None]) -> Texts:
    return Texts(_joined([None if text is None else to_text(text).encode() for text in values], _TEXT[0]))


def blobs(values: Sequence[bytes | None]) -> Blobs:
    return Blobs(_joined(values, _BYTEA[0]))


MAKERS: dict[str, Any] = {
    "bigint": integers,
    "double precision": floats,
    "text": texts,
    "bytea": blobs,
}
"""By the name of the column's type."""


def columns(rows: Iterable[Sequence[Any]], types: Sequence[str]) -> list[_Column]:
    """Rows turned into arrays, one for each column."""
    turned = list(zip(*rows, strict=True)) or [()] * len(types)
    return [MAKERS[name](values) for name, values in zip(types, turned, strict=True)]


def register(connection: psycopg.BaseConnection[Any]) -> None:
    for column, oid in ((Integers, _INT8[1]), (Floats, _FLOAT8[1]), (Texts, _TEXT[1]), (Blobs, _BYTEA[1])):
        connection.adapters.register_dumper(column, _dumper_for(oid))


def _dumper_for(array_oid: int) -> type[Dumper]:
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class ColumnDumper(Dumper):
        format = Format.BINARY
        oid = array_oid

        def dump(self, obj: Any) -> Buffer | None:
            return bytes(obj)

    return ColumnDumper


def _header(count: int, oid: int) -> bytes:
    return _HEADER.pack(1, 1, oid, count, 1) if count else struct.pack("!iiI", 0, 0, oid)


def _numbers(values: Sequence[float | None], oid: int, code: str, one: str) -> bytes:
    header = _header(len(values), oid)
    if None in values:
        pack = struct.Struct(one).pack
        return header + b"".join([_NULL if value is None else pack(8, value) for value in values])
    cells = np.empty(len(values), dtype=[("length", ">i4"), ("value", code)])
    cells["length"] = 8
    cells["value"] = values
    return header + cells.tobytes()


def _joined(values: Sequence[bytes | None], oid: int) -> bytes:
    parts = [_header(len(values), oid)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(len(value).to_bytes(4, "big"))
            parts.append(value)
    return b"".join(parts)


class Numbers:
    """Call `prepare` with everything that a batch will need; afterwards nothing here waits for the database.

    Numbers that were drawn but not used, because a commit failed, are skipped forever.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._site_ids: dict[str, int] = {}
        self._file_ids: dict[str, int] = {}
        self._page_ids: list[range] = []
        self._places: list[range] = []
        self.held_site_ids: set[int] = set()
        """Sites that are known to have a row in `holding`."""

    def site_id(self, site: str) -> int:
        return self._site_ids[site]

    def file_id(self, name: str) -> int:
        return self._file_ids[name]

    def take_place(self) -> int:
        return _take(self._places)

    def take_page_id(self) -> int:
        return _take(self._page_ids)

    def learn_sites(self, pairs: Iterable[tuple[int, str]]) -> None:
        self._site_ids.update((site, number) for number, site in pairs)

    def full_name(self, name: str) -> str:
        """A file's name among those of all collectors."""
        return f"{self._place}/{name}" if self._place else name

    def prepare(
        self,
        connection: psycopg.Connection[tuple[Any, ...]],
        *,
        sites: Iterable[str],
        files: Iterable[str],
        pages: int,
        places: int,
    ) -> None:
        """Assign numbers to new names. Outside the transaction of the batch, since a name without rows does
        no harm."""
        new_sites = [to_text(site) for site in sites if site not in self._site_ids]
        if new_sites:
            connection.execute(sql.NAME_SITES, (new_sites,))
            found = connection.execute(sql.FIND_SITES, (new_sites,)).fetchall()
            self.learn_sites((number, from_text(site)) for number, site in found)
        new_files = {to_text(self.full_name(name)): name for name in files if name not in self._file_ids}
        if new_files:
            connection.execute(sql.NAME_FILES, (list(new_files),))
            for number, name in connection.execute(sql.FIND_FILES, (list(new_files),)).fetchall():
                self._file_ids[new_files[name]] = number
        _refill(connection, self._page_ids, PAGE_IDS, pages)
        _refill(connection, self._places, PLACES, places)


def _take(blocks: list[range]) -> int:
    number = blocks[0][0]
    blocks[0] = blocks[0][1:]
    if not blocks[0]:
        del blocks[0]
    return number


def _refill(
    connection: psycopg.Connection[tuple[Any, ...]], blocks: list[range], sequence: str, wanted: int
) -> None:
    missing = wanted - sum(map(len, blocks))
    if missing > 0:
        drawn = connection.execute(sql.DRAW_BLOCKS, (sequence, -(-missing // BLOCK))).fetchall()
        blocks += [range(number * BLOCK, (number + 1) * BLOCK) for (number,) in drawn]
