"""`make reference`: what of docs/reference is made from the code, the JSON Schema, and the man pages.

A test compares what is there with what this gives, so that neither can go its own way.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec
from click_man.core import write_man_pages

import headway as hw
from headway import options
from headway.cli.frame import SUMMARIES
from headway.cli.frame import headway as command
from headway.config.keys import json_schema, markdown, settings_markdown
from headway.config.reading import SETTING_PREFIX
from headway.config.schema import JobFile, ScrapySettings
from headway.dashboard import application
from headway.dashboard.openapi import document

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MADE = "<!-- Made by `make reference` from the code; change it there. -->\n"
BEGIN, END = "<!-- keys -->\n", "<!-- end of keys -->\n"

NAMES = {
    "Plans": ("Plan", "Task", "Forecast", "SiteForecast"),
    "Crawls": ("open", "Run", "Page", "RunView", "SiteState", "crawl"),
    "Orderings and policies": (
        *("Ordering", "LearningOrdering", "QueuedPage", "SiteQueue", "AllocationPolicy", "AllocationProblem"),
    ),
    "Quantities": ("Duration", "Size", "Rate", "Deadline"),
    "Tables": (
        *("TimetableEntry", "Timeouts", "Limits", "Quota", "Revisit", "Scope", "Extract", "ExtractField"),
        *("Group", "Window", "Login"),
        "ScrapyOptions",
    ),
    "Errors": ("HeadwayError", "JobError", "OptionError", "PluginError", "StoreError", "UnitError"),
}
"""The public names in the order of the reference."""


def pages() -> dict[Path, str]:
    """Every file that is made, with what belongs into it."""
    job_file = DOCS / "reference" / "job-file.md"
    before, after = job_file.read_text().partition(BEGIN)[0], job_file.read_text().partition(END)[2]
    made = {
        job_file: before + BEGIN + markdown(JobFile) + END + after,
        DOCS / "how-to" / "scrapy.md": with_settings((DOCS / "how-to" / "scrapy.md").read_text()),
        DOCS / "reference" / "job.schema.json": schema_text(),
        DOCS / "reference" / "metrics.md": metrics_page(),
        DOCS / "reference" / "api.md": api_page(),
    }
    return made | {DOCS / "man" / name: text for name, text in man_pages()}


def with_settings(page: str) -> str:
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    return before + BEGIN + settings_markdown(ScrapySettings, SETTING_PREFIX) + END + after


def schema_text() -> str:
    return msgspec.json.format(msgspec.json.encode(json_schema(JobFile)), indent=2).decode() + "\n"


def metrics_page() -> str:
    """From the calls that make them."""
    lines = [
        "# Metrics",
        MADE,
        "`/metrics` of `headway serve` and `headway crawl --serve` is for Prometheus; see",
        "[how to see a crawl](../how-to/dashboard.md). Sums over sites, never a series for each.",
        "",
        "| metric | kind | labels | |",
        "|---|---|---|---|",
    ]
    for call in ast.walk(ast.parse(inspect.getsource(application))):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        if not call.func.id.endswith("MetricFamily"):
            continue
        kind = call.func.id.removesuffix("MetricFamily").lower()
        name, text = (ast.literal_eval(part) for part in call.args[:2])
        labels = next((ast.literal_eval(each.value) for each in call.keywords if each.arg == "labels"), [])
        name += "_total" if kind == "counter" else ""
        lines.append(f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |")
    return "\n".join(lines) + "\n"


def api_page() -> str:
    lines = [
        "# Python and HTTP",
        MADE,
        "## Python",
        "`import headway as hw`; all types are checked (`py.typed`).",
        "",
    ]
    assert sorted(name for names in NAMES.values() for name in names) == sorted(
        name for name in hw.__all__ if not name.startswith("__")
    ), "each public name has its place in the reference"
    for title, names in NAMES.items():
        lines += [f"### {title}", ""]
        for name in names:
            lines += _described(name, getattr(hw, name))
    lines += [
        "## HTTP",
        "Of `headway serve` and `headway crawl --serve`; the whole, with its types, is `/api/openapi.json`.",
        "",
        "| | | answer |",
        "|---|---|---|",
    ]
    for path, methods in document(is_public=False)["paths"].items():
        for method, told in methods.items():
            content = told["responses"]["200" if "200" in told["responses"] else min(told["responses"])]
            kind = next(iter(content.get("content", {"": {}})))
            lines.append(f"| `{method.upper()} {path}` | {told['summary']} | {kind} |")
    return "\n".join(lines) + "\n"


def _described(name: str, thing: Any) -> Iterator[str]:
    yield f"#### hw.{name}"
    if not inspect.isclass(thing):
        if inspect.isfunction(thing):
            loop = "async for page in " if inspect.isasyncgenfunction(inspect.unwrap(thing)) else ""
            yield f"```text\n{loop}hw.{name}{_signature(thing)}\n```"
        yield inspect.getdoc(thing) if inspect.isfunction(thing) else _remarks(options)[name]
        yield ""
        return
    if thing is hw.Plan:
        yield f"```text\nhw.{name}{_signature(thing.__init__)}\n```"
    yield inspect.cleandoc(vars(thing).get("__doc__") or "")  # not that of a base class
    yield ""
    yield from _fields(thing)
    if thing is hw.Plan:
        yield from _table("keyword", options.CrawlOptions)
    if not issubclass(thing, (msgspec.Struct, dict, Exception)):
        yield from _methods(thing)


def _fields(thing: Any) -> Iterator[str]:
    if issubclass(thing, dict):
        yield from _table("key", thing)
    elif issubclass(thing, msgspec.Struct):
        yield from ("| field | type | default |", "|---|---|---|")
        for field in msgspec.structs.fields(thing):
            default = "" if field.required else f"`{field.default!r}`"
            yield _row(field.name, inspect.formatannotation(field.type), default)
        yield ""
    elif dataclasses.is_dataclass(thing):
        yield from ("| field | type | default |", "|---|---|---|")
        for each in dataclasses.fields(thing):
            default = "" if each.default is dataclasses.MISSING else f"`{each.default!r}`"
            yield _row(each.name, str(each.type), default)
        yield ""


def _table(heading: str, thing: Any) -> Iterator[str]:
    yield from (f"| {heading} | type |", "|---|---|")
    for key, kind in thing.__annotations__.items():
        yield _row(key, kind.__forward_arg__)
    yield ""


def _methods(thing: Any) -> Iterator[str]:
    for name, method in vars(thing).items():
        function = inspect.unwrap(getattr(method, "__func__", method))
        if name.startswith("_") or not isinstance(method, property) | inspect.isfunction(function):
            continue
        text = inspect.getdoc(method) or ""
        if isinstance(method, property):
            yield f"`.{name}`: {text}"
        else:
            awaited = "await " if inspect.iscoroutinefunction(function) else ""
            yield f"`{awaited}.{name}{_signature(function)}`: {text}"
        yield ""


def _row(name: str, kind: str, *rest: str) -> str:
    kind = re.sub(r"\b(?:headway|collections)(?:\.[a-z]+)*\.", "", kind).replace("|", "\\|")
    return f"| {' | '.join((f'`{name}`', kind, *rest))} |"


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    kept = [each for name, each in signature.parameters.items() if name not in {"self", "cls"}]
    shown = signature.replace(parameters=kept, return_annotation=inspect.Signature.empty)
    return str(shown).replace("'", "").replace("*, **options: Unpack[CrawlOptions]", "**options")


def _remarks(module: ModuleType) -> dict[str, str]:
    """The texts that stand below the names that a module assigns."""
    body = ast.parse(inspect.getsource(module)).body
    return {
        assign.targets[0].id: text.value.value
        for assign, text in pairwise(body)
        if isinstance(assign, ast.Assign)
        and isinstance(assign.targets[0], ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def man_pages() -> Iterator[tuple[str, str]]:
    context = click.Context(command)
    # The command itself imports its parts only when they are called, so it cannot be asked for all of them.
    whole = click.Group("headway", help=command.help, short_help=(command.help or "").rstrip("."))
    whole.params = command.params
    for name in command.list_commands(context):
        part = command.get_command(context, name)
        assert part is not None
        part.short_help = SUMMARIES[name].rstrip(".")
        whole.add_command(part, name)
    with tempfile.TemporaryDirectory() as folder:
        write_man_pages("headway", whole, version=hw.__version__, target_dir=folder)
        for path in sorted(Path(folder).iterdir()):
            # The day on which it was made says nothing.
            yield (
                path.name,
                re.sub(r'^(\.TH "[^"]+" "1" )"[^"]*"', r'\1""', path.read_text(), flags=re.MULTILINE),
            )


def main() -> int:
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            click.echo(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
