"""The job file as a JSON Schema, by which editors complete and check it while it is written."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from headway.config.explained import EXPLAINED
from headway.config.schema import JobFile

_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def job_schema() -> dict[str, Any]:
    schema: dict[str, Any] = _without_nulls(msgspec.json.schema(JobFile))
    for name, texts in EXPLAINED.items():
        for key, part in schema["$defs"][name]["properties"].items():
            part["description"] = _LINK.sub(r"\1", texts[key])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A headway job",
        **schema,
    }


def _without_nulls(part: Any) -> Any:
    """TOML has no null: a key that has nothing to say is left out."""
    if isinstance(part, list):
        return [_without_nulls(each) for each in part]
    if not isinstance(part, dict):
        return part
    part = {key: _without_nulls(value) for key, value in part.items()}
    if part.get("default", ...) is None:
        del part["default"]
    choices = part.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        left = [choice for choice in choices if choice != {"type": "null"}]
        del part["anyOf"]
        part.update(left[0] if len(left) == 1 else {"anyOf": left})
    return part
