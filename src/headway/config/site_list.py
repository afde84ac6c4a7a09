"""Lists of sites in files: CSV, Parquet, TOML, or text with a URL on each line.

A list is read row by row, so that a million sites take no more memory than one. It is checked as a whole
before a crawl starts: each wrong line is named, the first ten and how many more there are.
"""

from __future__ import annotations

import csv
import datetime as dt
import hashlib
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from headway.config.keys import child_of, closest, root_of
from headway.config.schema import JobFile
from headway.engine.seen import seen_set
from headway.errors import HeadwayError, JobError, SiteListError, install_command
from headway.model.page import Page, PageKey, Site
from headway.pages.url import page_of

STDIN = "-"
COLUMNS = ("url", "group", "seeds", "deadline", "weight", "max_pages", "max_bytes", "data", "cap")
_WHOLE_NUMBERS = frozenset({"max_pages"})
_NUMBERS = frozenset({"weight"})
_ERRORS_NAMED = 10
_LONGEST_SHOWN = 100
_LONGEST_LINE = 1 << 20
_ROWS_AT_ONCE = 4096


class Row(NamedTuple):
    line: int
    """From 1. In Parquet, the number of the row."""
    fields: dict[str, Any]
    """As the keys of a `[[site]]` table. Fields that are empty are left out."""
    problem: str = ""
    """Why the line cannot be read; its fields are empty then."""


class SiteList:
    """A list of sites in a file. `check` it before `rows` are used."""

    def __init__(self, name: str, folder: str | None = None) -> None:
        """`folder`: where a relative path begins."""
        self.name = "standard input" if name == STDIN else name
        self.path = _spooled() if name == STDIN else FilePath(folder or ".", name).absolute()
        self.sites = 0
        self.pages = 0
        self.has_deadlines = False
        self.hosts: set[str] = set()
        """With their ports: the scope of a crawl of the list."""
        self.digest = ""
        """The SHA-256 of the file, by which a later run sees that it has not changed."""
        self._stamp: tuple[int, int] | None = None

    def rows(self) -> Iterator[Row]:
        """The rows, as they are read. JobError if the file cannot be read, or has changed since `check`."""
        try:
            stat = self.path.stat()
            stamp = (stat.st_size, stat.st_mtime_ns)
            if self._stamp is not None and stamp != self._stamp:
                raise JobError(f"{self.name} was changed after it was checked; start the crawl again")
            yield from _reader_of(self.path)(self.path)
        except FileNotFoundError:
            raise JobError(f"{self.name}: there is no such list of sites") from None
        except IsADirectoryError:
            raise JobError(f"{self.name} is a folder; a list of sites is a file") from None
        except UnicodeDecodeError as problem:
            raise JobError(f"{self.name} is not text in UTF-8: {problem.reason}") from None
        except OSError as problem:
            raise JobError(f"{self.name} cannot be read: {problem.strerror or problem}") from None
        except _UnreadableError as problem:
            raise JobError(f"{self.name}: {problem}") from None

    def check(self, check_fields: Callable[[dict[str, Any]], object], taken: Sequence[Site] = ()) -> None:
        """Read the whole list. `check_fields` raises HeadwayError for fields that make no site; `taken` are
        the sites of the job itself. JobError names the first wrong lines, and how many more there are."""
        named: list[tuple[int, str, PageKey | None]] = []
        count, known = 0, _Known(taken)
        self.sites = self.pages = 0
        for row in self.rows():
            problem, key = (row.problem, None) if row.problem else self._problem_of(row, known, check_fields)
            if problem:
                count += 1
                if len(named) < _ERRORS_NAMED:
                    named.append((row.line, problem, key))
        if count:
            raise self._error(count, named)
        if not self.sites:
            raise JobError(f"{self.name} names no site; write a URL on each line, or a CSV with a column url")
        stat = self.path.stat()
        self._stamp = (stat.st_size, stat.st_mtime_ns)
        with self.path.open("rb") as file:
            self.digest = hashlib.file_digest(file, "sha256").hexdigest()

    def tables(self) -> list[dict[str, Any]]:
        """All rows as tables of a job file; further URLs of a site become its seeds."""
        tables: dict[Site, dict[str, Any]] = {}
        for row in self.rows():
            page = page_of(row.fields["url"])
            assert page is not None
            table = tables.setdefault(page.site, dict(row.fields))
            if table["url"] != row.fields["url"]:
                table["seeds"] = (*table.get("seeds", ()), row.fields["url"])
        return list(tables.values())

    def _problem_of(
        self, row: Row, known: _Known, check_fields: Callable[[dict[str, Any]], object]
    ) -> tuple[str, PageKey | None]:
        """What is wrong with a row; of a URL that is there already, also its key."""
        fields = row.fields
        try:
            pages = pages_of_row(fields)
            if len(fields) > 1:
                check_fields(fields)
        except HeadwayError as problem:
            return str(problem).removeprefix(": "), None
        page = pages[0]
        if known.is_taken(page.site):
            return f"{page.site} is in the job file already", None
        if not known.pages.add(page.key):
            return f"{_shown(page.url)} is there already", page.key
        is_new = known.sites.add(_key_of(page.site))
        if not is_new and len(fields) > 1:
            return f"{page.site} is there already; list its other URLs under 'seeds'", None
        self.hosts.add(page.site.partition("://")[2])
        self.sites += is_new
        self.pages += len(pages)
        self.has_deadlines = self.has_deadlines or "deadline" in fields
        return "", None

    def _error(self, count: int, named: Sequence[tuple[int, str, PageKey | None]]) -> JobError:
        first = self._first_lines({key for _, _, key in named if key is not None})
        lines = []
        for line, problem, key in named:
            where = f", in line {first[key]}" if key in first else ""
            lines.append(f"  line {line}: {problem}{where}")
        if count > len(lines):
            lines.append(f"  and {count - len(lines):,} more")
        wrong = "1 line is wrong" if count == 1 else f"{count:,} lines are wrong"
        return SiteListError(f"{self.name}: {wrong}, so nothing was started:", lines)

    def _first_lines(self, wanted: set[PageKey]) -> dict[PageKey | None, int]:
        """Where pages that are named twice are named first."""
        first: dict[PageKey | None, int] = {}
        for row in self.rows() if wanted else ():
            page = page_of(row.fields.get("url", ""))
            if page is not None and page.key in wanted:
                first.setdefault(page.key, row.line)
                if len(first) == len(wanted):
                    break
        return first


class _Known:
    """What a list has named so far, in eight bytes each."""

    def __init__(self, taken: Sequence[Site]) -> None:
        self.pages, self.sites = seen_set(), seen_set()
        self._taken = frozenset(taken)

    def is_taken(self, site: Site) -> bool:
        return site in self._taken


def _key_of(site: Site) -> PageKey:
    return PageKey(xxh3_64_intdigest(site.encode()) - 2**63)


def pages_of_row(fields: dict[str, Any]) -> list[Page]:
    """The pages of a row, the first that of its site. HeadwayError if one is no URL, or of another site."""
    pages: list[Page] = []
    for url in (fields.get("url", ""), *fields.get("seeds", ())):
        page = page_of(url)
        if page is None:
            what = "the URL is missing" if not url else f"{_shown(url)!r} is not an http or https URL"
            raise HeadwayError(f"{what} such as 'https://www.example.org/'" if url else what)
        if pages and page.site != pages[0].site:
            raise HeadwayError(f"{_shown(page.url)} is not on {pages[0].site}; give it a line of its own")
        pages.append(page)
    return pages


def _shown(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


class _UnreadableError(Exception):
    """The list as a whole cannot be read."""


def _spooled() -> FilePath:
    """Standard input as a file, which can be read twice."""
    with tempfile.NamedTemporaryFile("wb", prefix="headway-sites-", delete=False) as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return FilePath(file.name)


def _reader_of(path: FilePath) -> Callable[[FilePath], Iterator[Row]]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _parquet_rows
    if suffix == ".toml":
        return _toml_rows
    if suffix in {".csv", ".tsv"}:
        return _csv_rows
    with path.open("rb") as file:
        begin = file.read(_LONGEST_SHOWN).decode("utf-8-sig", "replace").strip().lower()
    # Standard input has no suffix, and a table has a header.
    header = begin.partition("\n")[0].replace("\t", ",").split(",")
    return _csv_rows if len(header) > 1 and "url" in [cell.strip(" \"'") for cell in header] else _text_rows


def _lines_of(path: FilePath) -> Iterator[tuple[int, str, str]]:
    """Number, text and problem of each line. A line that is no UTF-8, or too long, does not end the list."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_LONGEST_LINE):
            number += 1
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                while (rest := file.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
                    pass
                yield number, "", "the line is longer than 1 MiB"
                continue
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            try:
                yield number, line.decode(), ""
            except UnicodeDecodeError:
                yield number, "", "it is not text in UTF-8"


def _text_rows(path: FilePath) -> Iterator[Row]:
    for number, line, problem in _lines_of(path):
        text = line.strip()
        if problem:
            yield Row(number, {}, problem)
        elif text and not text.startswith("#"):
            yield Row(number, {"url": text})


def _csv_rows(path: FilePath) -> Iterator[Row]:
    """Each line is a row by itself, so that a quotation mark too many costs one row and not all the rest."""
    header: list[str] | None = None
    delimiter = ","
    for number, line, problem in _lines_of(path):
        if problem:
            yield Row(number, {}, problem)
            continue
        if not line.strip():
            continue
        if header is None:
            delimiter = max(",;\t", key=line.count)
        try:
            (cells,) = csv.reader((line,), delimiter=delimiter, strict=True)
        except csv.Error as error:
            yield Row(number, {}, f"it is not CSV: {error}")
            continue
        if header is None:
            header = _header_of(cells)
            if "url" not in header:
                raise _UnreadableError(f"line {number}: the column 'url' is missing")
            if "://" not in cells[0]:
                continue
        if len(cells) != len(header):
            yield Row(number, {}, f"it has {len(cells)} fields, and the header has {len(header)}")
            continue
        yield _row(number, dict(zip(header, cells, strict=True)))


def _header_of(cells: Sequence[str]) -> list[str]:
    if len(cells) == 1 and "://" in cells[0]:
        return ["url"]  # one column needs no header
    header = [cell.strip().lower() for cell in cells]
    for name in header:
        if name not in COLUMNS:
            near = closest(name, child_of(root_of(JobFile).keys["site"]))
            advice = f"did you mean {near!r}?" if near in COLUMNS else f"known are {', '.join(COLUMNS)}"
            raise _UnreadableError(f"line 1: there is no column {_shown(name)!r}; {advice}")
        if header.count(name) > 1:
            raise _UnreadableError(f"line 1: the column {name!r} appears twice")
    return header


def _row(line: int, cells: dict[str, Any]) -> Row:
    """Texts and numbers as the keys of a table have them."""
    fields: dict[str, Any] = {}
    for name, cell in cells.items():
        value = cell.strip() if isinstance(cell, str) else cell
        if value is None or value == "":
            continue
        if name == "seeds":
            fields[name] = tuple(value.split()) if isinstance(value, str) else tuple(value)
        elif name in _WHOLE_NUMBERS or name in _NUMBERS:
            try:
                fields[name] = int(value) if name in _WHOLE_NUMBERS else float(value)
            except ValueError:
                what = "a whole number" if name in _WHOLE_NUMBERS else "a number"
                return Row(line, {}, f"{name}: {_shown(str(value))!r} is not {what}")
        elif name == "deadline" and isinstance(value, str) and value.replace(".", "", 1).isdecimal():
            fields[name] = float(value)
        else:
            fields[name] = value
    return Row(line, fields)


def _toml_rows(path: FilePath) -> Iterator[Row]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as problem:
        raise _UnreadableError(f"not valid TOML: {problem}") from None
    sites = tables.pop("site", [])
    if tables or not isinstance(sites, list):
        raise _UnreadableError("a list of sites has only [[site]] tables")
    for number, table in enumerate(sites, 1):
        if not isinstance(table, dict) or not isinstance(table.get("url", ""), str):
            yield Row(number, {}, "a site is a table with a url")
        elif strange := [name for name in table if name not in COLUMNS]:
            yield Row(number, {}, f"a list has no key {_shown(strange[0])!r}; known are {', '.join(COLUMNS)}")
        else:
            yield _row(number, {name: _plain(value) for name, value in table.items()})


def _parquet_rows(path: FilePath) -> Iterator[Row]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise _UnreadableError(f"Parquet needs the package pyarrow: {install_command('parquet')}") from None
    try:
        file = parquet.ParquetFile(path)
        header = _header_of(file.schema_arrow.names)
        if "url" not in header:
            raise _UnreadableError("the column 'url' is missing")
        number = 0
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            columns = [column.to_pylist() for column in batch.columns]
            for values in zip(*columns, strict=True):
                number += 1
                yield _row(number, {name: _plain(each) for name, each in zip(header, values, strict=True)})
    except pa.ArrowException as problem:
        raise _UnreadableError(f"not valid Parquet: {problem}") from None


def _plain(value: Any) -> Any:
    """Numbers and times as a table has them."""
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    return value
