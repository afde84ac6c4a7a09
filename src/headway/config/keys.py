"""What a declaration of keys is, and what derives from it: the JSON Schema, the tables in the documentation
and the suggestion for an unknown key.

The functions take the root of a declaration (`schema.JobFile` for job files). The command-line options derive
in `cli.options`, the checks in `config.reading` and `config.job`.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from headway.config.values import COUNT, FLAG, TEXT, Kind, choice, toml

_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_MAX_NAME = 60
"""A longer name is no misspelling of a key."""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A table of the job file: unknown keys are errors."""


class Option(msgspec.Struct, frozen=True):
    """A command-line option that sets a key."""

    usage: str
    """Its name and what it takes, as in "--interval TIME"; a name alone is a flag or a choice."""
    help: str
    commands: str = "crawl"
    """The commands that have it, separated by spaces."""
    names: Mapping[str, str] = types.MappingProxyType({})
    """In which command it is called otherwise."""
    sets: bool = True
    """What a flag sets its key to."""

    def name_in(self, command: str) -> str:
        return self.names.get(command, self.usage.partition(" ")[0])


class Key(msgspec.Struct, frozen=True):
    """What stands beside the type of a key; see `key`."""

    text: str
    kind: Kind | None
    aliases: frozenset[str]
    example: Any
    option: Option | None
    default: str


def key(
    text: str,
    kind: Kind | None = None,
    *,
    aliases: str = "",
    example: Any = None,
    option: Option | None = None,
    default: str = "",
) -> Key:
    """A key with its description. `aliases` are names that people try for it, separated by spaces; `default`
    is for the documentation where the value itself does not say enough."""
    return Key(text, kind, frozenset(aliases.split()), example, option, default)


class DeclaredKey(msgspec.Struct, frozen=True):
    """A key with its type taken apart."""

    name: str
    attribute: str
    """Its name in the struct."""
    table: DeclaredTable
    key: Key
    kind: Kind | None
    """None: a table."""
    nested: type[Table] | None
    is_list: bool
    is_map: bool
    required: bool
    default: Any

    @property
    def example(self) -> Any:
        """A value of the whole key."""
        value = self.key.example
        if value is None and type(self.default) in {str, int, float}:
            value = self.default
        if value is None:
            value = self.kind.example if self.kind else {}
        if self.is_list and not isinstance(value, list | tuple):
            return [value]
        return {"name": value} if self.is_map and not isinstance(value, dict) else value

    @property
    def shown(self) -> str:
        """For error texts: `interval = "15 s"`, or the header of a table."""
        return f"{self.name} = {toml(self.example)}" if self.kind else self.header

    @property
    def header(self) -> str:
        """Of the table that this key holds: [crawl.scope], [[site]]."""
        return header_of((*self.table.path, self.name), is_list=self.is_list)


class DeclaredTable(msgspec.Struct, frozen=True, eq=False):
    """A table with its place in the file."""

    struct: type[Table]
    path: tuple[str, ...]
    is_list: bool = False
    is_map: bool = False

    @property
    def title(self) -> str:
        if self.is_map:
            return f"A value in [{'.'.join(self.path)}]"
        return header_of(self.path, is_list=self.is_list)

    @property
    def text(self) -> str:
        return " ".join((self.struct.__doc__ or "").split())

    @property
    def keys(self) -> dict[str, DeclaredKey]:
        return _keys_of(self)


def header_of(path: tuple[str, ...], *, is_list: bool) -> str:
    name = ".".join(path)
    return f"[[{name}]]" if is_list else f"[{name}]"


@functools.lru_cache(maxsize=256)
def _keys_of(table: DeclaredTable) -> dict[str, DeclaredKey]:
    hints = get_type_hints(table.struct, include_extras=True)
    # A table's own keys come before the keys that it shares with others.
    own = table.struct.__annotations__
    fields = sorted(msgspec.structs.fields(table.struct), key=lambda field: field.name not in own)
    return {field.encode_name: _declared(field, hints[field.name], table) for field in fields}


def _declared(field: msgspec.structs.FieldInfo, hint: Any, table: DeclaredTable) -> DeclaredKey:
    if get_origin(hint) is not Annotated or not isinstance(hint.__metadata__[0], Key):
        raise TypeError(f"{table.struct.__name__}.{field.name} is not declared with key(...)")
    declared: Key = hint.__metadata__[0]
    part = _without_none(hint.__origin__)
    is_list, is_map = get_origin(part) is tuple, get_origin(part) is dict
    item = get_args(part)[0] if is_list else get_args(part)[1] if is_map else part
    choices = get_args(item) if get_origin(item) in {Union, types.UnionType} else (item,)
    nested = next((each for each in choices if isinstance(each, type) and issubclass(each, Table)), None)
    kind = declared.kind
    if kind is None and get_origin(item) is Literal:
        kind = choice(*get_args(item))
    elif kind is None and nested is None:
        kind = {bool: FLAG, int: COUNT, str: TEXT}[item]
    default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
    return DeclaredKey(
        field.encode_name,
        field.name,
        table,
        declared,
        kind,
        nested,
        is_list,
        is_map,
        field.required,
        default,
    )


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in {Union, types.UnionType} and type(None) in get_args(hint):
        return functools.reduce(lambda one, other: one | other, set(get_args(hint)) - {type(None)})
    return hint


@functools.lru_cache(maxsize=16)
def root_of(struct: type[Table]) -> DeclaredTable:
    return DeclaredTable(struct, ())


def child_of(key: DeclaredKey) -> DeclaredTable:
    assert key.nested is not None
    return _child_of(key.nested, (*key.table.path, key.name), key.is_list, key.is_map)


@functools.lru_cache(maxsize=256)
def _child_of(struct: type[Table], path: tuple[str, ...], is_list: bool, is_map: bool) -> DeclaredTable:
    return DeclaredTable(struct, path, is_list, is_map)


def tables(root: type[Table]) -> Iterator[DeclaredTable]:
    """The root and all tables below it, in the order of the file."""
    waiting = [root_of(root)]
    while waiting:
        table = waiting.pop(0)
        yield table
        waiting[:0] = [child_of(each) for each in table.keys.values() if each.nested is not None]


def all_keys(root: type[Table]) -> Iterator[DeclaredKey]:
    for table in tables(root):
        yield from table.keys.values()


# -- what derives -----------------------------------------------------------------------------------------


def json_schema(root: type[Table]) -> dict[str, Any]:
    """The JSON Schema, by which editors complete and check a job file while it is written."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": root_of(root).text,
        "$ref": f"#/$defs/{root.__name__}",
        "$defs": {table.struct.__name__: _table_schema(table) for table in tables(root)},
    }


def _table_schema(table: DeclaredTable) -> dict[str, Any]:
    return {
        "title": table.text,
        "type": "object",
        "properties": {name: _key_schema(each) for name, each in table.keys.items()},
        "required": [name for name, each in table.keys.items() if each.required],
        "additionalProperties": False,
    }


def _key_schema(declared: DeclaredKey) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [] if declared.kind is None else [declared.kind.json_schema()]
    if declared.nested is not None:
        parts.append({"$ref": f"#/$defs/{declared.nested.__name__}"})
    part = parts[0] if len(parts) == 1 else {"anyOf": parts}
    if declared.is_list:
        part = {"type": "array", "items": part}
    elif declared.is_map:
        part = {"type": "object", "additionalProperties": part}
    part = {**part, "description": _LINK.sub(r"\1", declared.key.text)}
    default = declared.default
    if not (declared.required or default is None or isinstance(default, Table)):
        part["default"] = default
    if declared.kind is not None and not declared.kind.choices and declared.kind is not FLAG:
        part["examples"] = [declared.example]
    return part


def markdown(root: type[Table]) -> str:
    """The tables of a reference page, one for each table of the file."""
    lines: list[str] = []
    for table in tables(root):
        if table.path:
            lines += [
                f"## {table.title}",
                table.text,
                "",
                "| key | value | default | meaning |",
                "|---|---|---|---|",
            ]
            lines += [_row(each) for each in table.keys.values()]
            lines.append("")
    return "\n".join(lines)


def _row(declared: DeclaredKey) -> str:
    option = declared.key.option
    text = declared.key.text
    if option is not None:
        others = [f", `{name}` in `{command}`" for command, name in option.names.items()]
        text += f" (option `{option.usage.partition(' ')[0]}`{''.join(others)})"
    return f"| `{declared.name}` | {_value(declared)} | {default_text(declared)} | {text} |"


def _value(declared: DeclaredKey) -> str:
    kind = declared.kind
    if kind is None:
        return f"{'tables' if declared.is_list else 'table'} `{declared.header}`"
    if kind is FLAG:
        return "`true` or `false`"
    if kind.choices:
        return ", ".join(f"`{toml(each)}`" for each in kind.choices)
    text = kind.noun + (f", {kind.range()}" if kind.least else "")
    text += f" or a number of {kind.unit}" if kind.unit else ""
    text = (
        f"list of {kind.plural}"
        if declared.is_list
        else f"table of {kind.plural}"
        if declared.is_map
        else text
    )
    has_default = declared.key.example is None and default_text(declared).startswith("`")
    return text if has_default else f"{text}: `{toml(declared.example)}`"


def default_text(declared: DeclaredKey) -> str:
    value = declared.default
    if declared.required:
        return "required"
    if declared.key.default:
        return declared.key.default
    return "" if value is None or value in ((), {}) or isinstance(value, Table) else f"`{toml(value)}`"


def settings_markdown(root: type[Table], prefix: str) -> str:
    """The table of a page on settings of Python: name, an example and what it means."""
    lines = ["| setting | meaning |", "|---|---|"]
    for each in root_of(root).keys.values():
        value = each.example
        if each.nested is not None and (values := [key.example for key in child_of(each).keys.values()]):
            item = dict(zip(child_of(each).keys, values, strict=True))
            value = [item] if each.is_list else {"www.example.org": item}
        python = repr(value).replace("'", '"')
        lines.append(f"| `{prefix}{each.name.upper()} = {python}` | {each.key.text} |")
    return "\n".join(lines) + "\n"


# -- suggestions ------------------------------------------------------------------------------------------


def suggestion(name: str, table: DeclaredTable, root: type[Table]) -> str:
    """What to write instead of a key that the table does not have."""
    found = meant(name, table, root)
    if found is None:
        return f"known here: {', '.join(sorted(table.keys))}"
    declared, is_sure = found
    place = declared.header if declared.kind is None else declared.table.title
    is_here = declared.table is table
    if not is_sure:
        if declared.kind is None:
            return f"did you mean {place}?"
        return (
            f"did you mean {declared.name!r}?" if is_here else f"did you mean {declared.name!r} in {place}?"
        )
    if declared.kind is None:
        return f"write {place}"
    if not is_here and declared.name == _plain_name(name):
        return f"{declared.name!r} belongs in {' or '.join(_places(declared.name, root))}"
    where = "" if is_here else f" in {place}"
    return f"use {declared.name!r}{where} ({_brief(declared)})"


def meant(name: str, table: DeclaredTable, root: type[Table]) -> tuple[DeclaredKey, bool] | None:
    """The key that this name in this table stands for, and whether that is sure: False when only the spelling
    is near."""
    word = _plain_name(name)
    others = [each for each in all_keys(root) if each.table is not table]
    alike = next((each for each in others if each.name == word), None)
    other = next((each for each in others if word in each.key.aliases), None)
    if alike is not None and alike.required and other is not None:
        alike = None  # a key that its table must have is hardly the one that was put elsewhere
    prefix = f"{table.title.strip('[]')}."
    # `timeout` in [crawl] is one of [crawl.timeouts], not the one of [on_end].
    inside = [each for each in others if each.table.title.strip("[]").startswith(prefix)]
    within = next((each for each in inside if word == each.name or word in each.key.aliases), None)
    sure = _by_name(word, table) or within or alike or other
    if sure is not None:
        return sure, True
    near = _nearest(word, list(table.keys.values())) or _nearest(word, others)
    return None if near is None else (near, False)


def _places(name: str, root: type[Table]) -> list[str]:
    return [each.table.title for each in all_keys(root) if each.name == name and each.kind is not None]


def closest(name: str, table: DeclaredTable) -> str | None:
    """The key of a table that a name stands for, or that is spelled nearly so."""
    word = _plain_name(name)
    found = _by_name(word, table) or _nearest(word, list(table.keys.values()))
    return None if found is None else found.name


def _by_name(word: str, table: DeclaredTable) -> DeclaredKey | None:
    return table.keys.get(word) or next(
        (each for each in table.keys.values() if word in each.key.aliases), None
    )


def _brief(declared: DeclaredKey) -> str:
    return re.split(r"[;:.] |[;:]$", _LINK.sub(r"\1", declared.key.text))[0]


def _plain_name(name: str) -> str:
    """maxPages, max-pages and MAX_PAGES as max_pages."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[: _MAX_NAME + 1])
    return re.sub(r"[-\s.]+", "_", snake).lower()


def _singular(word: str) -> str:
    return f"{word[:-3]}y" if word.endswith("ies") else word.removesuffix("s")


def _nearest(word: str, keys: list[DeclaredKey]) -> DeclaredKey | None:
    """The key whose name, or one of whose aliases, differs from the word by few letters."""
    best: tuple[int, DeclaredKey] | None = None
    word = _singular(word)
    for each in keys:
        for name in map(_singular, (each.name, *sorted(each.key.aliases))):
            most = max(1, min(len(word), len(name)) // 4)
            if len(word) > _MAX_NAME or min(len(word), len(name)) < 3 or abs(len(word) - len(name)) > most:
                continue
            distance = edits(word, name)
            if distance <= most and (best is None or distance < best[0]):
                best = (distance, each)
    return best[1] if best else _longest_beginning(word, keys)


_LEAST_BEGINNING = 5
"""The letters of a beginning that says which key is meant: "tls" begins too much."""


def _longest_beginning(word: str, keys: list[DeclaredKey]) -> DeclaredKey | None:
    """The longest name that the word begins with: allow_private for allow_private_hosts."""
    begins = [
        (len(name), each)
        for each in keys
        for name in (each.name, *sorted(each.key.aliases))
        if len(name) >= _LEAST_BEGINNING and word.startswith(f"{name}_")
    ]
    return max(begins, key=lambda found: found[0])[1] if begins else None


def edits(one: str, other: str) -> int:
    """How many letters must be added, left out, replaced or swapped with the next (Damerau-Levenshtein)."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        row = [i]
        for j, b in enumerate(other, start=1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]
