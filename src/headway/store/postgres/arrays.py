"""Whole columns as PostgreSQL's binary arrays, made at once.

The driver's own way takes a microsecond an element, and a commit has tens of thousands of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from psycopg import BaseConnection
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

from headway.store.postgres.texts import to_text

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


def register(connection: BaseConnection[Any]) -> None:
    for column, oid in ((Integers, _INT8[1]), (Floats, _FLOAT8[1]), (Texts, _TEXT[1]), (Blobs, _BYTEA[1])):
        connection.adapters.register_dumper(column, _dumper_for(oid))


def _dumper_for(array_oid: int) -> type[Dumper]:
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
