"""Reading a job file: every mistake becomes one message that names file, line, key and cure."""

from __future__ import annotations

import datetime as dt
import difflib
import re
import tomllib
from pathlib import Path as FilePath
from typing import Any

import msgspec

from headway.config.lines import Path, line_of
from headway.config.schema import JobFile
from headway.errors import JobError

_WITH_UNITS = {
    "bandwidth": "5 Mbit/s",
    "cap": "200 KB/s",
    "max_bytes": "1 GB",
    "data": "1 GB",
    "deadline": "2 h",
    "interval": "15 s",
    "retry_penalty": "60 s",
    "backoff": "30 s",
    "max_backoff": "30 min",
    "max_crawl_delay": "1 d",
    "every": "24 h",
    "shortest": "1 h",
    "longest": "30 d",
    "day": "10 GB",
    "month": "200 GB",
    "connect": "10 s",
    "first_byte": "30 s",
    "idle": "30 s",
    "total": "10 min",
    "head": "64 KiB",
    "body": "50 MB",
    "decoded": "200 MB",
}


class Source:
    """A job file's text, kept so that later mistakes can still be shown where they stand."""

    def __init__(self, name: str, text: str = "") -> None:
        self.name = name
        self.text = text
        self._options: dict[str, str] = {}

    def overrule(self, key: str, option: str) -> None:
        """From now on a key such as "crawl.bandwidth" has its value from the command line."""
        self._options[key] = option

    def error(self, path: Path, message: str) -> JobError:
        key = ".".join(str(part) for part in path if isinstance(part, str))
        if key in self._options:
            return JobError(f"{self._options[key]}: {message}")
        line = line_of(self.text, path) if self.text else None
        where = f"{self.name}, line {line}" if line else self.name
        return JobError(f"{where}: {key}: {message}" if key else f"{where}: {message}")


def read_job_file(path: FilePath) -> tuple[JobFile, Source]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows put a mark in front
    except FileNotFoundError:
        raise JobError(f"{path}: there is no such job file") from None
    except IsADirectoryError:
        raise JobError(f"{path} is a folder; a job file is a TOML file") from None
    except UnicodeDecodeError:
        raise JobError(f"{path} is not text in UTF-8, as a TOML job file must be") from None
    except OSError as problem:
        raise JobError(f"{path} cannot be read: {problem.strerror}") from None
    source = Source(str(path), text)
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise JobError(f"{path}: not valid TOML: {problem}") from None
    return convert(tables, source), source


def convert(tables: dict[str, Any], source: Source) -> JobFile:
    try:
        return msgspec.convert(_plain(tables), JobFile)
    except msgspec.ValidationError as problem:
        raise _explain(str(problem), source) from None


def _plain(value: Any) -> Any:
    """TOML's own dates and times as text: they are read like the quoted ones."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, dt.date | dt.time) else value


def _explain(problem: str, source: Source) -> JobError:
    message, _, where = problem.partition(" - at `$")
    path = _path(where.rstrip("`"))
    if unknown := re.search(r"contains unknown field `(.+)`", message):
        known = _fields_at(path)
        near = difflib.get_close_matches(unknown[1], known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(known))}"
        return source.error((*path, unknown[1]), f"there is no such key; {hint}")
    if missing := re.search(r"missing required field `(.+)`", message):
        return source.error(path, f"the key {missing[1]!r} is missing")
    if message.startswith("Invalid enum value"):
        wrong = message.removeprefix("Invalid enum value ")
        return source.error(path, f"{wrong} is none of {', '.join(map(repr, _type_at(path).__args__))}")
    key = path[-1] if path else ""
    if (
        message.startswith("Expected `str")
        and re.search(r"got `(int|float)`", message)
        and key in _WITH_UNITS
    ):
        return source.error(
            path, f'the unit is missing; write it as text, such as {key} = "{_WITH_UNITS[str(key)]}"'
        )
    return source.error(path, _in_words(message))


def _in_words(message: str) -> str:
    names = {
        "str": "text",
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "array": "a list",
        "object": "a table",
    }
    return re.sub(
        r"`([a-z]+)(?: \| null)?`",
        lambda found: names.get(found[1], f"`{found[1]}`"),
        message.replace("Expected", "expected"),
    )


def _path(text: str) -> Path:
    return tuple(
        int(index) if index else name for name, index in re.findall(r"\.([A-Za-z_]\w*)|\[(\d+)\]", text)
    )


def _fields_at(path: Path) -> list[str]:
    struct = _table_in(_type_at(path))
    return [] if struct is None else [field.encode_name for field in msgspec.structs.fields(struct)]


def _type_at(path: Path) -> Any:
    kind: Any = JobFile
    for part in path:
        if isinstance(part, int):
            kind = kind.__args__[0]
        else:
            fields = msgspec.structs.fields(_table_in(kind) or JobFile)
            kind = next((field.type for field in fields if field.encode_name == part), kind)
    return kind


def _table_in(kind: Any) -> Any:
    """The table that a type is, or may be, or holds by name."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((table for part in getattr(kind, "__args__", ()) if (table := _table_in(part))), None)
