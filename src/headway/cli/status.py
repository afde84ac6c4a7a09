"""`headway status`: how far a crawl has come, whether it is running or not."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from headway.app.summary import summarise
from headway.cli.frame import results, stdout
from headway.cli.runs import RunType
from headway.cli.tables import print_summary


@click.command("status")
@click.argument("run", type=RunType(), metavar="RUN | postgresql://...")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    help="Draw the link and the sites as PNG or SVG.",
)
def status_command(run: Path | str, *, as_json: bool, plot: Path | None) -> int:
    """Show how far a crawl has come, in a run folder or on a PostgreSQL server, running or not."""
    summary = summarise(run)
    with results():
        if as_json:
            click.echo(msgspec.json.encode(summary))
        else:
            print_summary(stdout(is_literal=True), summary)
    if plot is not None:
        from headway.app.picture import draw_picture

        draw_picture(run, plot)
    return 0
