"""The JSON Schema of job files says what the reader says, and the documentation has every key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from headway.config.keys import json_schema
from headway.config.schema import JobFile

DOCS = Path(__file__).parents[2] / "docs"
GOOD = {"crawl": {"bandwidth": "5 Mbit/s", "interval": "1 s"}, "site": [{"url": "https://www.example.org/"}]}


def shown_jobs() -> Iterator[Any]:
    for page in sorted(DOCS.rglob("*.md")):
        for number, match in enumerate(re.finditer(r"```toml[^\n]*\n(.*?)```", page.read_text(), re.DOTALL)):
            if "[[site]]" in match[1]:
                yield pytest.param(match[1], id=f"{page.name}-{number}")


@pytest.mark.parametrize("text", list(shown_jobs()))
def test_job_files_that_the_documentation_shows_fit(text: str) -> None:
    jsonschema.validate(tomllib.loads(text), json_schema(JobFile))


@pytest.mark.parametrize(
    "change",
    [
        {"crawl": {"bandwith": "5 Mbit/s"}},
        {"crawl": {"bandwidth": 5}},
        {"crawl": {"objective": "soonest"}},
        {"site": [{"deadline": "2 h"}]},
        {"sites": []},
    ],
)
def test_mistakes_do_not_fit(change: dict[str, object]) -> None:
    schema = json_schema(JobFile)
    jsonschema.validate(GOOD, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(GOOD | change, schema)


def test_no_key_can_be_null() -> None:
    assert "null" not in str(json_schema(JobFile))


@pytest.mark.parametrize("table", sorted(json_schema(JobFile)["$defs"]))
def test_every_key_is_documented(table: str) -> None:
    text = (DOCS / "reference" / "job-file.md").read_text()
    keys = json_schema(JobFile)["$defs"][table]["properties"]
    tables = set(re.findall(r"\[+(?:crawl\.|site\.)?(\w+)\]+", text))
    assert not [key for key in keys if f"`{key}`" not in text and key not in tables]
