"""A job file as text and as tables. What is unknown, missing or of a wrong type is an error with its line."""

from __future__ import annotations

import datetime as dt
import functools
import re
import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path as FilePath
from typing import Any, TypeVar

import msgspec

from headway.config.keys import (
    DeclaredKey,
    DeclaredTable,
    Table,
    child_of,
    closest,
    edits,
    root_of,
    suggestion,
)
from headway.config.schema import DEFAULT_USER_AGENT, JobFile, ScrapySettings
from headway.config.tables import IdentityTable
from headway.config.values import LinkPart, as_written, check_type, given
from headway.errors import HeadwayError, JobError, UnitError
from headway.http.identity import Signer, load_signer
from headway.policy.scope import registered_domain, use_public_suffixes
from headway.policy.server_groups import GroupRule, GroupRules
from headway.policy.timetable import Entry, Timetable
from headway.units import UNBOUNDED, Instant

_NAME = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(rf"\s*({_DOTTED})\s*=")
_MAX_SHOWN = 80

SETTING_PREFIX = "HEADWAY_"
SEAT_SETTING = "HEADWAY_SEAT"
"""Set by `headway run-scrapy` for its own processes."""

Path = tuple[str | int, ...]
Root = TypeVar("Root", bound=Table)


class Source:
    """A job file's text, kept so that later mistakes can still be shown with their line."""

    def __init__(self, name: str, text: str = "", folder: str | None = None) -> None:
        """`folder`: where the objects that the job names may be, besides the installed packages."""
        self.name = name
        self.text = text
        self.folder = folder
        self._options: dict[str, str] = {}

    def overrule(self, key: str, option: str) -> None:
        """From now on a key such as "crawl.bandwidth" has its value from the command line."""
        self._options[key] = option

    def is_overruled(self, key: str) -> bool:
        return key in self._options

    def error(self, path: Path, message: str) -> JobError:
        key = ".".join(part[:_MAX_SHOWN] for part in path if isinstance(part, str))
        if key in self._options:
            return JobError(f"{self._options[key]}: {message}")
        line = line_of(self.text, path) if self.text else None
        where = f"{self.name}, line {line}" if line else self.name
        return JobError(f"{where}: {key}: {message}" if key else f"{where}: {message}")


def read_job_file(path: FilePath) -> tuple[JobFile, Source]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows write a byte order mark
    except FileNotFoundError:
        raise JobError(f"{path}: there is no such job file") from None
    except IsADirectoryError:
        raise JobError(f"{path} is a folder; a job file is a TOML file") from None
    except UnicodeDecodeError:
        raise JobError(f"{path} is not text in UTF-8, as a TOML job file must be") from None
    except OSError as problem:
        raise JobError(f"{path} cannot be read: {problem.strerror}") from None
    source = Source(str(path), text, str(path.absolute().parent))
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise JobError(f"{path}: not valid TOML: {problem}") from None
    return convert(tables, source), source


def convert(tables: dict[str, Any], source: Source) -> JobFile:
    """The tables of a job as they are declared. JobError names the first mistake."""
    return convert_as(JobFile, tables, source)


def convert_as(root: type[Root], tables: dict[str, Any], source: Source) -> Root:
    """`convert` for any declaration."""
    checked = _Checker(root, source).table(tables, root_of(root), ())
    try:
        return msgspec.convert(checked, root)
    except msgspec.ValidationError as problem:
        raise source.error((), str(problem)) from None


def read_table(struct: type[Root], fields: dict[str, Any], source: Source) -> Root:
    """One table of a declaration by itself, as a row of a list has it."""
    return msgspec.convert(_Checker(struct, source).table(fields, root_of(struct), ()), struct)


class _Checker:
    """Goes once through the tables, so that its work grows with their size."""

    def __init__(self, root: type[Table], source: Source) -> None:
        self._root = root
        self._source = source

    def table(self, value: Any, table: DeclaredTable, path: Path) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._source.error(path, _not_a_table(value, table))
        keys = table.keys
        made = {}
        for name, item in value.items():
            declared = keys.get(name)
            if declared is None:
                raise self._unknown(str(name), table, path)
            if item is not None:  # from Python: as if it were left out
                made[name] = self._value(item, declared, (*path, name))
        for declared in keys.values():
            if declared.required and declared.name not in made:
                raise self._source.error(
                    path, f"the key {declared.name!r} is missing; write {declared.shown}"
                )
        return made

    def _unknown(self, name: str, table: DeclaredTable, path: Path) -> JobError:
        where = f" in {table.title}" if table.path and not table.is_map else ""
        advice = suggestion(name, table, self._root)
        return self._source.error((*path, name), f"there is no such key{where}; {advice}")

    def _value(self, value: Any, declared: DeclaredKey, path: Path) -> Any:
        if declared.is_list:
            if not isinstance(value, list | tuple):
                raise self._source.error(path, _not_a_list(value, declared))
            is_tables = declared.nested is not None
            return [
                self._item(item, declared, (*path, number) if is_tables else path)
                for number, item in enumerate(value)
            ]
        if declared.is_map:
            if not isinstance(value, dict):
                expected = f"expected a table such as {declared.shown}"
                raise self._source.error(path, f"{expected}, but got {given(value)}")
            return {name: self._item(item, declared, (*path, name)) for name, item in value.items()}
        return self._item(value, declared, path)

    def _item(self, value: Any, declared: DeclaredKey, path: Path) -> Any:
        kind = declared.kind
        if kind is None or (declared.nested is not None and isinstance(value, dict)):
            return self.table(value, child_of(declared), path)
        if type(value) is kind.types[0] and not kind.choices:
            return value
        try:
            if str in kind.types and isinstance(value, dt.date | dt.time | dt.timedelta):
                value = as_written(value)
            check_type(kind, value, declared.name, declared.example)
            # A number of seconds is stored as text too: a run folder is read by other versions.
            return as_written(value) if str in kind.types and not isinstance(value, str) else value
        except UnitError as problem:
            raise self._source.error(path, str(problem)) from None


def _not_a_table(value: Any, table: DeclaredTable) -> str:
    if isinstance(value, list) and not table.is_list:
        return f"write {table.title} in single brackets: there is only one"
    return f"expected a table {table.title}, but got {given(value)}"


def _not_a_list(value: Any, declared: DeclaredKey) -> str:
    if declared.nested is not None and isinstance(value, dict):
        return f"write {declared.header} in double brackets: there can be several"
    expected = f"tables {declared.header}" if declared.nested else f"a list such as {declared.shown}"
    return f"expected {expected}, but got {given(value)}"


def read_values(struct: Table, table: DeclaredTable, source: Source, path: Path = ()) -> dict[str, Any]:
    """The values of a table by their kinds: quantities as numbers in base units. Raises JobError, with the
    line, when one is out of range or cannot be read."""
    made = dict(_defaults(table))
    for declared in table.keys.values():
        value = getattr(struct, declared.attribute)
        if declared.name not in made or value != declared.default:
            made[declared.name] = _read_key(value, declared, source, (*path, declared.name))
    return made


@functools.lru_cache(maxsize=256)
def _defaults(table: DeclaredTable) -> dict[str, Any]:
    """Read once: most keys of most sites have their default."""
    source = Source("default")
    return {
        declared.name: _read_key(declared.default, declared, source, (declared.name,))
        for declared in table.keys.values()
        if not declared.required
    }


def _read_key(value: Any, declared: DeclaredKey, source: Source, path: Path) -> Any:
    if value is None:
        return None
    if declared.is_list:
        is_tables = declared.nested is not None
        return tuple(
            _read(item, declared, source, (*path, number) if is_tables else path)
            for number, item in enumerate(value)
        )
    if declared.is_map:
        return {name: _read(item, declared, source, (*path, name)) for name, item in value.items()}
    return _read(value, declared, source, path)


def _read(value: Any, declared: DeclaredKey, source: Source, path: Path) -> Any:
    if isinstance(value, Table):
        return read_values(value, child_of(declared), source, path)
    assert declared.kind is not None
    try:
        is_single = not (declared.is_list or declared.is_map)
        return declared.kind.read(value, declared.example if is_single else None)
    except HeadwayError as problem:
        raise source.error(path, str(problem)) from None


def setting_suggestion(name: str) -> str | None:
    """What is wrong with the name of a Scrapy setting; None when it is known, or not one of headway's."""
    word = name.upper()
    prefix, _, rest = word.partition("_")
    if not rest or edits(prefix, "HEADWAY") > 2 or name == SEAT_SETTING:
        return None
    keys = root_of(ScrapySettings).keys
    if name == f"{SETTING_PREFIX}{rest}" and rest.lower() in keys:
        return None
    if rest.lower() in keys:
        return f"there is no such setting; did you mean '{SETTING_PREFIX}{rest}'?"
    if near := closest(rest, root_of(ScrapySettings)):
        return f"there is no such setting; did you mean '{SETTING_PREFIX}{near.upper()}'?"
    names = ", ".join(f"{SETTING_PREFIX}{key.upper()}" for key in keys)
    return f"there is no such setting; known are {names}"


# -- lines ------------------------------------------------------------------------------------------------


def line_of(text: str, path: Path) -> int | None:
    """The line (from 1) of a key such as ("site", 1, "deadline"), or of the nearest table around it."""
    best: tuple[int, int] | None = None
    for number, here in _lines(text):
        shared = _shared(here, path)
        if shared == len(path):
            return number
        if shared == len(here) and (best is None or shared > best[0]):
            best = (shared, number)
    return best[1] if best else None


def _lines(text: str) -> list[tuple[int, Path]]:
    found: list[tuple[int, Path]] = []
    counts: Counter[Path] = Counter()
    table: Path = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _in_last(_parts(header[2]), counts)
            if header[1] == "[[":
                counts[table] += 1
                table = (*table, counts[table] - 1)
            found.append((number, table))
        elif key := _KEY.match(line):
            found.append((number, table + _parts(key[1])))
    return found


def _in_last(parts: Path, counts: Counter[Path]) -> Path:
    """TOML's [[site.extract]] is one of the last [[site]]."""
    path: Path = ()
    for number, part in enumerate(parts):
        path = (*path, part)
        if number < len(parts) - 1 and counts[path]:
            path = (*path, counts[path] - 1)
    return path


def _parts(dotted: str) -> Path:
    return tuple(part.strip("\"'") for part in re.findall(_NAME, dotted))


def _shared(here: Path, path: Path) -> int:
    count = 0
    for one, other in zip(here, path, strict=False):
        if one != other:
            break
        count += 1
    return count


def link_part_of(crawl: Mapping[str, Any], windows: Sequence[Any], source: Source) -> float | None:
    """The bound of `[crawl]` as a part of what the link carries; None for a rate, or without a bound."""
    bound, timetable = crawl["bandwidth"], crawl["timetable"]
    if isinstance(bound, LinkPart):
        if timetable or windows:
            raise source.error(
                ("crawl", "timetable") if timetable else ("window",),
                "cannot be combined with a bandwidth that is a part of the link; give a rate there",
            )
        return float(bound)
    if crawl["background"] and bound is None and not timetable:
        raise source.error(
            ("crawl", "background"),
            'needs a bound, which may be above what the link carries; add bandwidth = "100 Mbit/s"',
        )
    return None


def timetable_of(crawl: Mapping[str, Any], zone: dt.tzinfo, windows: Timetable | None) -> Timetable:
    """The bound of `[crawl]` by the hour; a part of the link is none."""
    entries = tuple(
        Entry(entry["days"], from_minute, to_minute, entry["bandwidth"])
        for entry in crawl["timetable"]
        for from_minute, to_minute in [entry["hours"]]
    )
    bound = crawl["bandwidth"]
    has_rate = bound is not None and not isinstance(bound, LinkPart)
    usual = bound if has_rate else UNBOUNDED
    if windows is None:
        return Timetable(usual, entries, zone)
    return Timetable(usual, entries, zone, windows.windows, windows.window_zone, windows.grace_s)


def groups_of(crawl: Mapping[str, Any], servers: Sequence[Mapping[str, Any]], source: Source) -> GroupRules:
    """What holds for servers and domains."""
    exceptions = []
    for number, server in enumerate(servers):
        if (server["network"] is None) == (server["domain"] is None):
            raise source.error(("server", number), "give either the network of the servers or their domain")
        domain = registered_domain((server["domain"] or "").lower().strip("."))
        exceptions.append(
            GroupRule(server["network"] or "", domain, server["interval"], server["connections"])
        )
    # The smallest network that an address is in counts.
    exceptions.sort(key=lambda rule: -int(rule.network.partition("/")[2] or 0))
    own_s = crawl["interval"]
    return GroupRules(
        own_s if crawl["server_interval"] is None else crawl["server_interval"],
        own_s if crawl["domain_interval"] is None else crawl["domain_interval"],
        connections=crawl["per_server_connections"],
        most_interval_s=crawl["max_server_interval"],
        backoff_s=crawl["backoff"],
        max_backoff_s=crawl["max_backoff"],
        whole_networks=crawl["server_networks"],
        exceptions=tuple(exceptions),
        follow_sites=crawl["server_interval"] is None and crawl["domain_interval"] is None and not exceptions,
    )


def as_run(file: JobFile, source: Source) -> JobFile:
    """The job as a run remembers it: the default user agent names the contact, if there is one, and the
    folder of the key does not depend on where the job file is."""
    crawl = file.crawl
    if crawl.contact is not None and crawl.user_agent == DEFAULT_USER_AGENT:
        shown = crawl.contact if "@" not in crawl.contact else f"mailto:{crawl.contact}"
        crawl = msgspec.structs.replace(crawl, user_agent=f"{DEFAULT_USER_AGENT} (+{shown})")
    if crawl.identity.folder is not None:
        folder = FilePath(crawl.identity.folder).expanduser()
        if source.folder is not None and not source.is_overruled("crawl.identity.folder"):
            folder = source.folder / folder
        table = msgspec.structs.replace(crawl.identity, folder=str(folder.absolute()))
        crawl = msgspec.structs.replace(crawl, identity=table)
    return file if crawl is file.crawl else msgspec.structs.replace(file, crawl=crawl)


def signer_of(table: IdentityTable, now: Instant | None) -> Signer | None:
    """The key that requests are signed with; None if they are not."""
    if table.folder is None or table.sign == "never":
        return None
    return load_signer(FilePath(table.folder), Instant(time.time()) if now is None else now)


@functools.lru_cache(maxsize=1)
def know_public_suffixes() -> None:
    """Read the Public Suffix List, which separates domains."""
    text = resources.files("headway.config").joinpath("public_suffixes.txt").read_text(encoding="ascii")
    use_public_suffixes(line for line in text.splitlines() if not line.startswith("#"))
