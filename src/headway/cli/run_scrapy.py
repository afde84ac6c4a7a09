"""`headway run-scrapy`: Scrapy spiders as the crawlers, each site's in a process of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.table import Table

from headway.cli.frame import DEADLINES_MISSED, INTERRUPTED, results, stderr, stdout
from headway.config.job import load_job
from headway.errors import HeadwayError
from headway.policy.allocation.policies import POLICIES
from headway.units import format_duration, format_size

if TYPE_CHECKING:
    from headway.scrapy.running import RunResult


@click.command("run-scrapy")
@click.argument("job", type=click.Path(path_type=Path), metavar="JOB.toml")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("run"),
    show_default=True,
    help="The run folder; again on the same one goes on where it was left.",
)
@click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    metavar="NAME",
    help=f"How the link is shared out; else the job's, or headway: {', '.join(POLICIES)}.",
)
@click.option(
    "--crawlers", type=click.IntRange(min=1), metavar="M", help="Sites at once; else the job's, or all."
)
@click.option("-q", "--quiet", is_flag=True, help="Only the table at the end.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON.")
def run_scrapy_command(
    job: Path, *, out: Path, policy: str | None, crawlers: int | None, quiet: bool, as_json: bool
) -> int:
    """Run the spiders of a job file's sites under its bandwidth, so that its deadlines hold.

    A site's spider is a class path (spider = "shop.spiders.Books"), or the built-in one, which follows links
    and extracts by the site's rules. Items go to OUT/items unless scrapy.settings.FEEDS says otherwise.
    """
    from headway.scrapy.running import ScrapyRun, run_with_signals

    run = ScrapyRun(load_job(job), out, policy=policy, crawlers=crawlers)
    console = stderr()

    def tell(text: str) -> None:
        if not quiet:
            console.print(text, markup=False)

    result = asyncio.run(run_with_signals(run, tell))
    with results():
        if as_json:
            click.echo(msgspec.json.encode(result))
        else:
            stdout(is_literal=True).print(_table(result))
    if result.is_interrupted:
        return INTERRUPTED
    if not result.are_all_met:
        return DEADLINES_MISSED
    if result.given_up:
        raise HeadwayError(f"not done: {', '.join(result.given_up)}; {out / 'logs'} says what its spider met")
    return 0


def _table(result: RunResult) -> Table:
    table = Table(box=None, pad_edge=False, title=f"policy {result.policy}", title_justify="left")
    table.add_column("site")
    for name in ("planned", "took", "off by", "deadline", "", "data", "items", "restarts"):
        table.add_column(name, justify="right")
    for site in result.sites:
        off = "" if site.end_s is None else f"{site.end_s / site.planned_end_s - 1:+.1%}"
        met = "" if site.deadline_s is None else "met" if site.is_met else "MISSED"
        table.add_row(
            site.site,
            format_duration(site.planned_end_s),
            "not done" if site.end_s is None else format_duration(site.end_s),
            off,
            "" if site.deadline_s is None else format_duration(site.deadline_s),
            met,
            format_size(site.wire_bytes),
            str(site.items),
            str(site.restarts or ""),
        )
    return table
