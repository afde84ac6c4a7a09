"""`headway run-scrapy`: runs a Scrapy spider for each site of a job, each in its own process."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.table import Table

from headway.cli.frame import DEADLINES_MISSED, INTERRUPTED, results, stderr, stdout
from headway.cli.options import job_options
from headway.cli.plan import PolicyType
from headway.config.job import load_job
from headway.errors import HeadwayError
from headway.planning.policies import POLICIES
from headway.units import Instant, format_duration, format_size

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
    help="The run folder. Give the folder of an earlier run to resume it.",
)
@job_options(
    "run-scrapy",
    policy={
        "type": PolicyType(),
        "help": "Policy that allocates the bandwidth; by default the job's, or headway: "
        f"{', '.join(POLICIES)}.",
    },
    crawlers={
        "type": click.IntRange(min=1),
        "help": "Sites crawled at the same time; by default as in the job, or all.",
    },
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the table at the end.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def run_scrapy_command(
    job: Path, *, out: Path, policy: str | None, crawlers: int | None, quiet: bool, as_json: bool
) -> int:
    """Run the spiders of a job file's sites within its bandwidth and by its deadlines.

    The key "spider" of a site is the name of a spider in the Scrapy project of the current folder, or the
    path of a class ("shop.spiders.Books"). Without it, the built-in spider follows links and extracts items
    by the site's rules. Items are written to OUT/items unless scrapy.settings.FEEDS is set.
    """
    from headway.scrapy.running import ScrapyRun, run_with_signals
    from headway.scrapy.supervisor import EventLog

    console = stderr()

    def show(text: str) -> None:
        if not quiet:
            console.print(text, markup=False)

    run = ScrapyRun(
        load_job(job, Instant(time.time())), out, EventLog(show), policy=policy, crawlers=crawlers
    )
    result = asyncio.run(run_with_signals(run))
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
        raise HeadwayError(f"spiders failed: {', '.join(result.given_up)}; see their logs in {out / 'logs'}")
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
