"""Sites from a CSV or JSON table: a name, its data, and what else is known of each.

Every mistake is named with the file, the line (in JSON: the site) and the column.
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headway.errors import JobError
from headway.policy.allocation.capacity import FloatArray

DEFAULTS: Mapping[str, float | None] = {
    "data_bytes": None,
    "deadline_s": math.inf,
    "cap_bytes_per_s": math.inf,
    "weight": 1.0,
    "xi": 1.0,
}
"""What an empty field means, by column; None: it may not be empty."""
COLUMNS = ("name", *DEFAULTS)


class SiteTable:
    def __init__(self, path: Path) -> None:
        self.names: list[str] = []
        self._path = path
        self._columns = {key: array("d") for key in DEFAULTS}
        self._place_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.names)

    def column(self, key: str) -> FloatArray:
        return np.array(self._columns[key])

    def add(self, place: str, name: object, fields: Mapping[str, object]) -> None:
        """A site, checked; `place` says where it stands in the file."""
        if not isinstance(name, str) or not name.strip():
            raise self.error(place, "name", "every site needs a name")
        name = name.strip()
        if (first := self._place_of.setdefault(name, place)) != place:
            raise self.error(place, "name", f"{name!r} is there already, in {first}")
        self.names.append(name)
        for key, default in DEFAULTS.items():
            self._columns[key].append(self._number(place, key, fields.get(key), default))

    def error(self, place: str, column: str, message: str) -> JobError:
        where = ", ".join(part for part in (str(self._path), place, column) if part)
        return JobError(f"{where}: {message}")

    def _number(self, place: str, key: str, value: object, default: float | None) -> float:
        if value is None or value == "":
            if default is None:
                raise self.error(place, key, "it is missing, and needed to plan with")
            return default
        number = _as_float(value)
        if number is None:
            hint = "" if key != "data_bytes" else "; sizes are plain bytes here, such as 1500000"
            raise self.error(place, key, f"{value!r} is not a plain number{hint}")
        if not math.isfinite(number):
            raise self.error(place, key, f"{value!r} is not a finite number; leave the field empty for none")
        if key == "deadline_s":
            if number < 0:
                raise self.error(place, key, f"{value} s lies in the past; it counts from the start")
            # The paper writes 0 for a site without a deadline.
            return number or math.inf
        if number <= 0:
            raise self.error(place, key, f"{value} is not more than zero")
        return number


def _as_float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str) or "_" in str(value):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def read_site_table(path: Path) -> SiteTable:
    """Read `name,data_bytes,deadline_s,cap_bytes_per_s,weight,xi` (the columns after data_bytes may be
    absent, an empty field means none), or a JSON list of objects with the same keys."""
    table = SiteTable(path)
    try:
        if path.suffix.lower() == ".json":
            _read_json(table, path.read_bytes())
        else:
            with path.open(newline="", encoding="utf-8-sig") as file:
                _read_csv(table, csv.reader(file, strict=True))
    except OSError as problem:
        raise JobError(f"cannot read {path}: {problem.strerror or problem}") from None
    except UnicodeDecodeError:
        raise JobError(f"{path} is not text in UTF-8") from None
    if not len(table):
        raise JobError(f"{path} names no site; add a row for each, after the header {','.join(COLUMNS)}")
    return table


def _read_csv(table: SiteTable, rows: Any) -> None:
    lines: Iterator[list[str]] = iter(rows)
    try:
        header = [cell.strip() for cell in next(lines, [])]
        _check_header(table, header)
        for row in lines:
            if not any(cell.strip() for cell in row):
                continue
            place = f"line {rows.line_num}"
            if len(row) != len(header):
                message = f"it has {len(row)} fields and the header {len(header)}"
                raise table.error(place, "", message)
            fields = dict(zip(header, (cell.strip() for cell in row), strict=True))
            table.add(place, fields["name"], fields)
    except csv.Error as problem:
        raise table.error(f"line {rows.line_num}", "", str(problem)) from None


def _check_header(table: SiteTable, header: list[str]) -> None:
    if not any(header):
        raise JobError(f"{table.error('', '', 'it is empty')}; the header should be {','.join(COLUMNS)}")
    for column in header:
        if column not in COLUMNS:
            hint = "; separate columns by commas" if ";" in column or "\t" in column else ""
            known = ", ".join(COLUMNS)
            raise table.error("line 1", "", f"there is no column {column!r}, only {known}{hint}")
        if header.count(column) > 1:
            raise table.error("line 1", column, "the column is there twice")
    for column in ("name", "data_bytes"):
        if column not in header:
            raise table.error("line 1", "", f"the column {column!r} is missing")


def _read_json(table: SiteTable, text: bytes) -> None:
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as problem:
        raise table.error("", "", f"it is not JSON: {problem}") from None
    sites = document.get("sites") if isinstance(document, dict) else document
    if not isinstance(sites, list):
        raise table.error("", "", 'it should be a list of sites, or {"sites": [...]}')
    for number, site in enumerate(sites, 1):
        place = f"site {number}"
        if not isinstance(site, dict):
            raise table.error(place, "", "it should be an object with name and data_bytes")
        if strange := [key for key in site if key not in COLUMNS]:
            raise table.error(place, "", f"there is no key {strange[0]!r}, only {', '.join(COLUMNS)}")
        if isinstance(site.get("data_bytes"), str):
            raise table.error(place, "data_bytes", f"{site['data_bytes']!r} is text, not a number")
        table.add(place, site.get("name"), site)
