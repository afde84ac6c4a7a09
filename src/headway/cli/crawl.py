"""`headway crawl`: the main job."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource

from headway.app.again import begin_again, job_tables
from headway.app.clock import WallClock
from headway.app.crawling import CrawlRun
from headway.app.garbage import look_for_garbage_seldom
from headway.app.summary import Summary, begun_at, summarise
from headway.cli.frame import DEADLINES_MISSED, INTERRUPTED, results, stdout
from headway.cli.log import Log, log_options, printable
from headway.cli.progress import Progress
from headway.cli.running import allow_many_files, drain_on_signals, tell
from headway.cli.runs import RunType
from headway.cli.serve import beside, serve_options
from headway.cli.tables import print_summary
from headway.config.job import Job, build_job
from headway.config.reading import Source, convert, read_job_file
from headway.config.schema import CrawlTable
from headway.errors import HeadwayError, JobError
from headway.model.outcome import Kind
from headway.parse.heap import keep_freed_memory
from headway.parse.url import page_of
from headway.store.postgres.address import Address
from headway.units import Instant, format_duration

if TYPE_CHECKING:
    from headway.app.processes import ProcessRun

_DEFAULTS = CrawlTable()


@click.command("crawl")
@click.argument("targets", nargs=-1, metavar="JOB.toml | URL...")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("run"),
    show_default=True,
    help="The run folder; an existing one is taken up again.",
)
@click.option("--bandwidth", metavar="RATE", help="The bound on the link, such as 5Mbit/s.")
@click.option("--deadline", metavar="WHEN", help="For every site: 2h, 07:30 or a date and time.")
@click.option(
    "--interval",
    metavar="TIME",
    help=f"Between two requests to a site, such as 15s.  [default: {_DEFAULTS.interval}]",
)
@click.option(
    "--strategy",
    metavar="NAME",
    help="The order of sites and pages.  [default: deadline where there is one, else length]",
)
@click.option("--ranks-from", metavar="RUN", help="With --strategy optimal: an earlier crawl of these sites.")
@click.option(
    "--accept",
    multiple=True,
    metavar="TYPE",
    help="A media type to keep, or '*' for all; repeatable.  [default: HTML, PDF, PostScript, plain text]",
)
@click.option("--max-pages", type=int, metavar="N", help="At most so many pages of each site.")
@click.option(
    "--max-depth",
    type=int,
    metavar="N",
    help=f"At most so many links from a seed.  [default: {_DEFAULTS.scope.max_depth}]",
)
@click.option(
    "--max-connections",
    type=int,
    metavar="R",
    help=f"Sites asked at the same time.  [default: {_DEFAULTS.max_connections}]",
)
@click.option(
    "--pages-per-connection",
    type=int,
    metavar="K",
    help=f"Pages in a row before the interval.  [default: {_DEFAULTS.pages_per_connection}]",
)
@click.option("--user-agent", metavar="TEXT", help="Who we say we are; name a page about your crawl.")
@click.option("--proxy", metavar="URL", help="Send everything through this proxy.")
@click.option("--allow-private", is_flag=True, default=None, help="Private and loopback addresses too.")
@click.option("--insecure", is_flag=True, default=None, help="Do not verify TLS certificates.")
@click.option(
    "--again",
    type=RunType(),
    metavar="RUN",
    help="Visit the pages of a finished crawl once more, asking only for what has changed.",
)
@click.option("--older-than", metavar="TIME", help="With --again: only pages whose copy is so old.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Crawl with so many processes, each on sites of its own: for a machine with several cores.",
)
@click.option(
    "--store",
    metavar="URL",
    help="Keep the crawl on a PostgreSQL server, postgresql://user@host/database#name, where others can join "
    "in with headway collect.",
)
@click.option(
    "--archive", metavar="URL", help="With --store: where finished WARC files go, such as s3://bucket/prefix."
)
@click.option("--json", "as_json", is_flag=True, help="The result as JSON.")
@serve_options
@log_options
def crawl_command(
    targets: tuple[str, ...],
    out: Path,
    *,
    again: Path | str | None,
    older_than: str | None,
    processes: int,
    store: str | None,
    archive: str | None,
    as_json: bool,
    serve_at: tuple[str, int] | None,
    log: Log,
    **options: Any,
) -> int:
    """Crawl the sites of a job file, or the URLs given, within the bandwidth and by the deadlines.

    \b
      headway crawl https://www.example.org/ --bandwidth 5Mbit/s --deadline 2h -o run
      headway crawl job.toml -o run
      headway crawl --again run

    Ctrl-C lets what is under way finish, a second one stops at once; the same command goes on from there.

    Exit codes: 0 all done, deadlines met; 1 error; 2 wrong usage; 3 done, deadlines missed; 4 bad job;
    5 disk full or run folder lost; 11 interrupted.
    """
    if processes > 1 and (store is not None or isinstance(again, str)):
        raise click.UsageError(
            "--processes is for a run folder; on a server, start headway collect as often as you like"
        )
    _refuse_idle_options(out, again=again, older_than=older_than, store=store, archive=archive)
    if again is not None:
        job = _job_again(targets, options, again, older_than, log)
        if isinstance(again, Path):
            return run_job(job, again, log, as_json=as_json, serve_at=serve_at, processes=processes)
        from headway.cli.collect import crawl_on_server

        return crawl_on_server(job, Address.parse(again), out, log, as_json=as_json, archive=archive)
    if not targets:
        raise click.UsageError(
            "give a job file or some URLs, or --again with the folder of a finished crawl",
            click.get_current_context(),
        )
    if store is not None:
        from headway.cli.collect import crawl_on_server

        address = Address.parse(store)
        job = job_from(targets, options, begun_at(store) or WallClock().now())
        return crawl_on_server(job, address, out, log, as_json=as_json, archive=archive)
    # A crawl that is taken up again keeps its deadlines, also those that have passed meanwhile.
    job = job_from(targets, options, begun_at(out) or WallClock().now())
    log.detail(
        "start",
        f"{len(job.sites)} sites, strategy {job.strategy}, into {out}",
        {"sites": len(job.sites), "strategy": job.strategy, "run": printable(str(out))},
    )
    return run_job(job, out, log, as_json=as_json, serve_at=serve_at, processes=processes)


def _refuse_idle_options(
    out: Path, *, again: Path | str | None, older_than: str | None, store: str | None, archive: str | None
) -> None:
    """An option that would change nothing is a misunderstanding."""
    if again is None:
        if older_than is not None:
            raise click.UsageError("--older-than is for pages that were crawled before; give --again as well")
        if archive is not None and store is None:
            raise click.UsageError("--archive is for a crawl on a server; give --store as well")
        return
    if store is not None:
        raise click.UsageError("--again names the crawl; for one on a server give its address there")
    if isinstance(again, str):
        return
    if archive is not None:
        raise click.UsageError("--archive is for a crawl on a server; --again names a run folder")
    is_out_given = click.get_current_context().get_parameter_source("out") is ParameterSource.COMMANDLINE
    if is_out_given and out.absolute() != again.absolute():
        raise click.UsageError("--again goes on in the folder it names; leave --out away")


def job_from(targets: tuple[str, ...], options: dict[str, Any], now: Instant) -> Job:
    """A job file with options that overrule it, or a job made of URLs and options alone."""
    files = [target for target in targets if "://" not in target]
    if len(files) > 1 or (files and len(targets) > 1):
        raise click.UsageError(f"give one job file or some URLs, not {' and '.join(targets)}")
    if files:
        if not files[0].endswith(".toml") and not Path(files[0]).exists():
            raise JobError(
                f"{files[0]!r} is neither a job file nor a URL; a URL begins with https:// or http://"
            )
        file, source = read_job_file(Path(files[0]))
    else:
        source = Source("command line")
        source.overrule("site.url", "command line")
        source.overrule("site.seeds", "command line")
        file = convert({"site": _sites_of(targets)}, source)
    return _overruled(msgspec.to_builtins(file), source, options, now)


def _job_again(
    targets: tuple[str, ...], options: dict[str, Any], run: Path | str, older_than: str | None, log: Log
) -> Job:
    """The job of the crawl that is begun once more, or the one given in its place."""
    now, source = WallClock().now(), Source(f"the job in {run}")
    tables = job_tables(run)
    job = job_from(targets, options, now) if targets else _overruled(tables, source, options, now)
    count = begin_again(run, now, older_than)
    if count is None:
        log.say("taken-up", "pages still wait from the last time: they come first")
    else:
        log.say("again", f"{count} pages are visited once more", {"pages": count})
    return job


def _overruled(tables: dict[str, Any], source: Source, options: dict[str, Any], now: Instant) -> Job:
    crawl = tables.setdefault("crawl", {})
    for key, value in options.items():
        if value is None or value == ():
            continue
        option = f"--{key.replace('_', '-')}"
        match key:
            case "deadline":
                for site in tables["site"]:
                    site["deadline"] = value
                source.overrule("site.deadline", option)
            case "max_depth":
                crawl.setdefault("scope", {})["max_depth"] = value
                source.overrule("crawl.scope.max_depth", option)
            case "insecure":
                crawl["verify_tls"] = False
            case _:
                crawl[key] = value
                source.overrule(f"crawl.{key}", option)
    return build_job(convert(tables, source), source, now=now)


def _sites_of(urls: tuple[str, ...]) -> list[dict[str, Any]]:
    """URLs of one site become one site with several seeds."""
    sites: dict[str, dict[str, Any]] = {}
    for url in urls:
        page = page_of(url)
        site = url if page is None else page.site  # what is no URL is refused by the job
        if site in sites:
            sites[site]["seeds"].append(url)
        else:
            sites[site] = {"url": url, "seeds": []}
    return list(sites.values())


def run_job(
    job: Job,
    out: Path,
    log: Log,
    *,
    as_json: bool = False,
    serve_at: tuple[str, int] | None = None,
    processes: int = 1,
) -> int:
    """Run a crawl with progress and signals, print what came of it, and return the exit code."""
    keep_freed_memory()
    allow_many_files()
    run: CrawlRun | ProcessRun
    if processes > 1:
        from headway.app.processes import ProcessRun

        run = ProcessRun(job, out, processes)
    else:
        run = CrawlRun(job, out, on_decision=None if log.is_quiet else partial(tell, log))
    _tell_of_earlier_runs(log, run)
    look_for_garbage_seldom()
    with Progress(log, run.view) as progress, beside(out, log, serve_at):
        asyncio.run(_run(run, progress, log))
    summary = summarise(out)
    with results():
        if as_json:
            click.echo(msgspec.json.encode(summary))
        elif not log.is_quiet:
            print_summary(stdout(is_literal=True), summary)
    return exit_code_of(summary, interrupted=run.interrupted)


def _tell_of_earlier_runs(log: Log, run: CrawlRun | ProcessRun) -> None:
    snapshot = run.folder.snapshot
    if snapshot is None:
        return
    if run.folder.mended:
        log.say("mended", run.folder.mended, {})
    done = sum(record.done for record in snapshot.sites)
    waiting = len(snapshot.waiting) + sum(snapshot.unloaded.values())
    ago_s = WallClock().now() - snapshot.started_at
    log.say(
        "taken-up",
        f"taking up the crawl begun {format_duration(ago_s)} ago: {done} pages done, {waiting} waiting",
        {"started_at": snapshot.started_at, "done": done, "waiting": waiting},
    )


def exit_code_of(summary: Summary, *, interrupted: bool) -> int:
    if interrupted:
        return INTERRUPTED
    if summary.done == 0:
        problem = summary.first_problem or "every page was out of scope"
        cure = "see to that, then crawl into a new folder: this one remembers that it has tried"
        if Kind.FORBIDDEN_ADDRESS in problem:
            cure = "with --allow-private and a new folder it will be crawled"
        raise HeadwayError(f"nothing was fetched: {problem}; {cure}")
    return DEADLINES_MISSED if summary.missed else 0


async def _run(run: CrawlRun | ProcessRun, progress: Progress, log: Log) -> None:
    drain_on_signals(run, log)
    await run.run(on_second=None if log.is_quiet else progress.refresh)
