"""`headway collect`: one more collector for a crawl on a PostgreSQL server."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from pathlib import Path

import click
import msgspec

from headway.app.clock import WallClock
from headway.app.collecting import CollectRun, begin, job_of
from headway.app.garbage import look_for_garbage_seldom
from headway.app.summary import summarise
from headway.cli.crawl import exit_code_of
from headway.cli.frame import INTERRUPTED, read_option, results, stdout
from headway.cli.log import Log, log_options
from headway.cli.progress import Progress
from headway.cli.running import allow_many_files, drain_on_signals, tell
from headway.cli.tables import print_summary
from headway.config.job import Job
from headway.fleet.postgres import LEASE_S
from headway.parse.heap import keep_freed_memory
from headway.store.cdxj import write_index
from headway.store.postgres.address import Address
from headway.units import Seconds, parse_duration

_SHORTEST_LEASE_S = 2.0


@click.command("collect")
@click.option(
    "--store",
    required=True,
    metavar="URL",
    help="The crawl: postgresql://user@host/database#name, as it was given to headway crawl.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("collector"),
    show_default=True,
    help="The folder for this collector's part of the archive and its logs.",
)
@click.option(
    "--name", metavar="NAME", help="How it is called in logs and tables.  [default: the host's name]"
)
@click.option(
    "--label",
    default="",
    metavar="PLACE",
    help="Where it is, such as eu-west: sites go to the place that is nearest by measured round trips.",
)
@click.option(
    "--archive",
    metavar="URL",
    help="Where finished WARC files go: s3://bucket/prefix, or another storage that fsspec knows.  "
    "[default: they stay in the folder]",
)
@click.option(
    "--lease",
    default="10 s",
    show_default=True,
    metavar="TIME",
    help="When it is not heard of for so long, its sites are given to others.",
)
@log_options
def collect_command(
    store: str, out: Path, *, name: str | None, label: str, archive: str | None, lease: str, log: Log
) -> int:
    """Work on a crawl together with other collectors, until it is done.

    \b
      headway crawl job.toml --store postgresql://headway@db/crawls#news    begins it, and works on it
      headway collect --store postgresql://headway@db/crawls#news           on every other machine

    SIGTERM or Ctrl-C lets what is under way finish and gives the sites to the others. A collector that dies
    loses nothing: its sites are taken over when its lease has ended.
    """
    address = Address.parse(store)
    lease_s = read_option("--lease", parse_duration, lease)
    if lease_s < _SHORTEST_LEASE_S:
        raise click.UsageError(f"a lease of {lease} is too short to be renewed in time; give 2 s or more")
    host = name or socket.gethostname()
    return run_collector(address, out, log, name=host, label=label, lease_s=lease_s, archive=archive)


def crawl_on_server(
    job: Job, address: Address, out: Path, log: Log, *, as_json: bool, archive: str | None = None
) -> int:
    """Begin the crawl, or take it up, and work on it until it is done, with whoever joins."""
    begin(job, address, WallClock().now())
    name = socket.gethostname()
    is_interrupted = run_collector(address, out, log, name=name, label="", archive=archive) == INTERRUPTED
    summary = summarise(address.whole)
    write_index(out, store=address.whole)
    with results():
        if as_json:
            click.echo(msgspec.json.encode(summary))
        elif not log.is_quiet:
            print_summary(stdout(is_literal=True), summary)
    return exit_code_of(summary, interrupted=is_interrupted)


def run_collector(
    address: Address,
    out: Path,
    log: Log,
    *,
    name: str,
    label: str,
    lease_s: Seconds = LEASE_S,
    archive: str | None = None,
) -> int:
    keep_freed_memory()
    allow_many_files()
    run = CollectRun(
        address,
        job_of(address),
        out,
        name=name,
        label=label,
        lease_s=lease_s,
        archive=archive,
        on_decision=None if log.is_quiet else partial(tell, log),
        on_news=partial(log.say, "fleet"),
    )
    look_for_garbage_seldom()
    with Progress(log, run.view) as progress:
        asyncio.run(_run(run, progress, log))
    return INTERRUPTED if run.interrupted else 0


async def _run(run: CollectRun, progress: Progress, log: Log) -> None:
    drain_on_signals(run, log)
    await run.run(on_second=None if log.is_quiet else progress.refresh)
