"""The rules of a job's `[[site.extract]]` tables, checked and ready to extract with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headway.config import checks
from headway.config.lines import Path
from headway.config.reading import Source
from headway.config.schema import ExtractField, ExtractTable
from headway.errors import HeadwayError
from headway.parse.extract import RESERVED, Field, Rule, check_xpath, css_to_xpath, xpath_of

T = TypeVar("T")


def extraction_rules(tables: tuple[ExtractTable, ...], source: Source, where: Path) -> tuple[Rule, ...]:
    """Raises JobError, with file and line."""
    return tuple(_rule(table, source, (*where, "extract", number)) for number, table in enumerate(tables))


def _rule(table: ExtractTable, source: Source, where: Path) -> Rule:
    if not table.fields:
        raise source.error(where, "a rule needs 'fields', such as fields = { title = \"h1\" }")
    return Rule(
        tuple(_field(name, value, source, (*where, "fields", name)) for name, value in table.fields.items()),
        table.item,
        tuple(_read(checks.pattern, text, source, (*where, "pages")) for text in table.pages),
        None if table.each is None else _read(xpath_of, table.each, source, (*where, "each")),
    )


def _field(name: str, value: str | ExtractField, source: Source, where: Path) -> Field:
    if name in RESERVED:
        raise source.error(where, f"{name!r} is in every item already; choose another name")
    if isinstance(value, str):
        return Field(name, _read(xpath_of, value, source, where))
    if (value.css is None) == (value.xpath is None):
        raise source.error(where, "give either 'css' or 'xpath'")
    if value.every and value.join is not None:
        raise source.error(where, "'all' gives a list and 'join' one text; give one of them")
    if value.css is not None:
        query = _read(css_to_xpath, value.css, source, (*where, "css"))
    else:
        query = _read(check_xpath, value.xpath or "", source, (*where, "xpath"))
    if value.regex is not None:
        _read(checks.regex, value.regex, source, (*where, "regex"))
    return Field(name, query, value.type, value.every, value.join, value.regex, value.required)


def _read(parse: Callable[[str], T], value: str, source: Source, where: Path) -> T:
    try:
        return parse(value)
    except HeadwayError as problem:
        raise source.error(where, str(problem)) from None
