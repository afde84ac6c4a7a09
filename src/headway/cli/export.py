"""`headway export`: the pages of a run for other programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import msgspec

from headway.app.exporting import FORMATS, export_pages
from headway.cli.frame import results
from headway.cli.log import Log, log_options
from headway.cli.runs import RunType
from headway.units import format_size


@click.command("export")
@click.argument("run", type=RunType(), metavar="RUN | postgresql://...")
@click.option(
    "-f",
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="What to write.  [default: by the name of the file, else jsonl]",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file.  [default: standard output]",
)
@click.option("--json", "as_json", is_flag=True, help="Say as JSON what was written.")
@log_options
def export_command(run: Path | str, *, kind: str | None, out: Path | None, as_json: bool, log: Log) -> int:
    """Write every settled page of a run, one line or row each, whatever came of it.

    \b
      headway export run -o pages.parquet
      headway export run | jq -r 'select(.status == 404) | .url'
      headway export run -f cdxj -o index.cdxj
    """
    if kind is None:
        ending = out.suffix.lstrip(".").lower() if out is not None else ""
        kind = ending if ending in FORMATS else "jsonl"
    if out is None or os.fspath(out) == "-":
        if as_json:
            raise click.UsageError(
                "--json speaks on standard output, where the pages go; name a file with -o"
            )
        if kind == "parquet" and sys.stdout.isatty():
            raise click.UsageError("Parquet is not for a terminal; name a file with -o")
        with results():
            export_pages(run, kind, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        return 0
    count = export_pages(run, kind, out)
    size_bytes = out.stat().st_size
    with results():
        if as_json:
            click.echo(
                msgspec.json.encode({"file": str(out), "format": kind, "rows": count, "bytes": size_bytes})
            )
        else:
            log.say("exported", f"{out}: {count} pages, {format_size(size_bytes)}")
    return 0
