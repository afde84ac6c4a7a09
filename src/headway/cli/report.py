"""`headway report`: a run as one page to look at, with its figures as files."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path

import click
import msgspec

from headway.cli.frame import results
from headway.cli.log import Log, log_options
from headway.cli.runs import RunType


@click.command("report")
@click.argument("run", type=RunType())
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to write it.  [default: RUN/report]",
)
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@click.option("--json", "as_json", is_flag=True, help="Say as JSON where it is and what it found.")
@log_options
def report_command(run: Path | str, *, out: Path | None, opens: bool, as_json: bool, log: Log) -> int:
    """Write a report of a run, running or not: one HTML file, and its figures as PNG, SVG and CSV."""
    if not isinstance(run, Path):
        raise click.UsageError(
            "a report is made of a run folder; a crawl on a server has headway status, export and serve"
        )
    from headway.app.reporting import gather
    from headway.report.run_page import verdict
    from headway.report.run_report import write_report

    facts = gather(run)
    page = write_report(facts, out if out is not None else run / "report")
    told = os.fsencode(page).decode("utf-8", "replace")
    with results():
        if as_json:
            missed = [msgspec.to_builtins(each) for each in facts.missed]
            click.echo(
                msgspec.json.encode(
                    {
                        "report": told,
                        "state": facts.state,
                        "pages": facts.done,
                        "missed": missed,
                        "verdict": verdict(facts),
                    }
                )
            )
        elif not log.is_quiet:
            click.echo(verdict(facts))
            click.echo(f"report: {told}")
    if opens:
        webbrowser.open(page.resolve().as_uri())
    return 0
