"""`make reference`: what of docs/reference is made from the code, the JSON Schema, and the man pages.

A test compares what is there with what this gives, so that neither can go its own way.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from click_man.core import write_man_pages

import headway as hw
from headway.app.library import Forecast
from headway.cli.frame import SUMMARIES
from headway.cli.frame import headway as command
from headway.config import schema
from headway.config.explained import EXPLAINED
from headway.config.jsonschema import job_schema
from headway.dashboard import metrics
from headway.dashboard.openapi import document

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MADE = "<!-- Made by `make reference` from the code; change it there. -->\n"
BEGIN, END = "<!-- keys -->\n", "<!-- end of keys -->\n"
TABLES = (
    ("[crawl]", schema.CrawlTable, ""),
    ("[[crawl.timetable]]", schema.TimetableEntry, "Where entries overlap the later one holds."),
    ("[crawl.scope]", schema.ScopeTable, ""),
    ("[crawl.quota]", schema.QuotaTable, "In bytes on the wire."),
    ("[crawl.revisit]", schema.RevisitTable, ""),
    ("[crawl.timeouts]", schema.TimeoutsTable, ""),
    ("[crawl.limits]", schema.LimitsTable, ""),
    ("[[site]]", schema.SiteTable, ""),
    (
        "[[site.extract]]",
        schema.ExtractTable,
        "See [extraction](../how-to/extraction.md). A field is a selector, or a table of the keys below.",
    ),
    ("A field of [site.extract.fields]", schema.ExtractField, ""),
    ("[scrapy]", schema.ScrapyTable, "For [`headway run-scrapy`](../how-to/scrapy.md) alone."),
)


def pages() -> dict[Path, str]:
    """Every file that is made, with what belongs into it."""
    job_file = DOCS / "reference" / "job-file.md"
    before, after = job_file.read_text().partition(BEGIN)[0], job_file.read_text().partition(END)[2]
    made = {
        job_file: before + BEGIN + keys() + END + after,
        DOCS / "reference" / "job.schema.json": schema_text(),
        DOCS / "reference" / "metrics.md": metrics_page(),
        DOCS / "reference" / "api.md": api_page(),
    }
    return made | {DOCS / "man" / name: text for name, text in man_pages()}


def schema_text() -> str:
    return msgspec.json.format(msgspec.json.encode(job_schema()), indent=2).decode() + "\n"


def keys() -> str:
    lines = []
    for title, table, remark in TABLES:
        lines += [f"## {title}", *([remark, ""] if remark else [])]
        lines += ["| key | default | means |", "|---|---|---|"]
        for field in msgspec.structs.fields(table):
            text = EXPLAINED[table.__name__][field.encode_name]
            lines.append(f"| `{field.encode_name}` | {_default(field)} | {text} |")
        lines.append("")
    return "\n".join(lines)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "to be given"
    value = field.default
    if field.encode_name == "user_agent":
        return "`headway/VERSION ...`"
    if value is msgspec.NODEFAULT or value is None or value in ((), {}) or isinstance(value, msgspec.Struct):
        return ""
    if isinstance(value, tuple):
        return "HTML, XHTML, PDF, PostScript, plain text" if value == schema.DEFAULT_TYPES else ""
    return f"`{msgspec.json.encode(value).decode()}`"


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
    for call in ast.walk(ast.parse(inspect.getsource(metrics))):
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
    for name in (*hw.__all__, "Forecast"):
        thing: Any = Forecast if name == "Forecast" else getattr(hw, name)
        if name.startswith("__") or not callable(thing):
            continue
        lines += list(_described(name, thing))
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
    yield f"### hw.{name}" if name != "Forecast" else "### What `Plan.forecast()` gives"
    if not inspect.isclass(thing) or not issubclass(thing, (msgspec.Struct, Exception)):
        signature = str(inspect.signature(thing)).partition(" -> ")[0].replace("'", "")
        loop = "async for page in " if inspect.isasyncgenfunction(thing) else ""
        yield f"```text\n{loop}hw.{name}{signature}\n```"
    yield inspect.getdoc(thing) or ""
    yield ""
    if inspect.isclass(thing) and issubclass(thing, msgspec.Struct):
        yield from ("| field | type | default |", "|---|---|---|")
        for field in msgspec.structs.fields(thing):
            kind = inspect.formatannotation(field.type).replace("|", "\\|")
            default = "" if field.required else f"`{field.default!r}`"
            yield f"| `{field.name}` | {kind} | {default} |"
        yield ""
    elif inspect.isclass(thing):
        for method_name, method in inspect.getmembers(thing, inspect.isfunction):
            if not method_name.startswith("_"):
                yield f"`{name}.{method_name}()`: {inspect.getdoc(method)}"
                yield ""


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
