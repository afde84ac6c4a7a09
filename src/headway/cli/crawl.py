"""`headway crawl`: the job from files, URLs and options; the crawl with progress and signals; its result. And
`headway collect`: one more collector for a crawl on a PostgreSQL server."""

from __future__ import annotations

import asyncio
import datetime as dt
import difflib
import math
import re
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np
from click.core import ParameterSource

from headway.cli.ending import Ended, check_hooks, conclude, report_failure
from headway.cli.frame import (
    DEADLINES_MISSED,
    INTERRUPTED,
    Log,
    log_options,
    printable,
    read_option,
    results,
    stdout,
)
from headway.cli.inspect import beside, serve_options
from headway.cli.options import job_options, learning_options, learnt_by, set_options
from headway.cli.running import Progress, RunType, allow_many_files, drain_on_signals, print_summary, tell
from headway.cluster.collecting import (
    CollectorOptions,
    CollectRun,
    begin,
    begin_recrawl,
    has_shortened_files,
    job_of,
    job_tables,
)
from headway.config.job import Job, SiteWish, build_job
from headway.config.reading import Source, convert, read_job_file
from headway.config.schema import DEFAULT_USER_AGENT
from headway.engine.start_pages import LEADS_OUT
from headway.errors import HeadwayError, JobError
from headway.model.page import Kind
from headway.pages.url import page_of
from headway.planning.estimate import DEFAULT, NOTHING_LEARNT
from headway.planning.feasibility import least_bandwidths
from headway.planning.policies import VARYING
from headway.planning.problem import USABLE
from headway.planning.rate_plan import given_up
from headway.policy.politeness import UNREACHABLE
from headway.policy.site_rules import SiteHours
from headway.policy.timetable import Timetable
from headway.runtime.crawling import CrawlRun, check_is_same_crawl
from headway.runtime.driver import WallClock
from headway.runtime.plan import start_of
from headway.runtime.process import keep_freed_memory, look_for_garbage_seldom
from headway.runtime.runtime import check_bounds, check_fits
from headway.store.learnt import LearntStore
from headway.store.postgres.connection import Address
from headway.store.reader import database_of, open_reader
from headway.store.rounds import NextRound, next_round
from headway.store.run_folder import write_index
from headway.store.schema import lock, unlock
from headway.units import FOREVER, Instant, Seconds, format_duration, format_rate, parse_duration
from headway.view.summary import Summary, begun_at, finish_round, rounds_in, site_lines, summarise

if TYPE_CHECKING:
    from headway.cluster.processes import ProcessRun

_SHORTEST_LEASE_S = 2.0


@click.command("crawl")
@click.argument("targets", nargs=-1, metavar="JOB.toml | URL...")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("run"),
    show_default=True,
    help="The run folder. If it has an unfinished crawl, that crawl is continued.",
)
@job_options("crawl")
@click.option(
    "--again",
    type=RunType(),
    metavar="RUN",
    help="Recrawl a finished run with conditional requests, which transfer only pages that have changed.",
)
@click.option(
    "--older-than", metavar="TIME", help="With --again: only pages that were fetched longer ago than this."
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Worker processes, each with its own sites; for machines with several cores.",
)
@click.option(
    "--store",
    metavar="URL",
    help="Store the crawl on a PostgreSQL server, postgresql://user@host/database#name, so that other "
    "machines can join it with headway collect.",
)
@click.option(
    "--archive",
    metavar="URL",
    help="With --store: upload finished WARC files to this URL, such as s3://bucket/prefix.",
)
@learning_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
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
    learn_from: Path | None,
    forget: bool,
    as_json: bool,
    serve_at: tuple[str, int] | None,
    log: Log,
    **options: Any,
) -> int:
    """Crawl the sites of a job file, or the given URLs, by their deadlines and within the bandwidth limit.

    \b
      headway crawl https://www.example.org/ --bandwidth 5Mbit/s --deadline 2h -o run
      headway crawl job.toml -o run
      headway crawl --again run

    Options replace the keys of the job file. Ctrl-C finishes the requests in flight and stops; a second
    Ctrl-C stops within a second. The same command continues a crawl that was stopped.

    Exit codes: 0 all deadlines met; 1 error; 2 wrong usage; 3 deadlines missed; 4 error in the job;
    5 disk full or run folder lost; 11 interrupted.
    """
    if processes > 1 and (store is not None or isinstance(again, str)):
        raise click.UsageError(
            "--processes needs a run folder; for a crawl on a server start headway collect several times"
        )
    _refuse_idle_options(out, again=again, older_than=older_than, store=store, archive=archive)
    learnt = learnt_by(learn_from, forget=forget, warn=partial(log.say, "learnt"))
    if again is not None:
        job = _recrawl_job(targets, options, again, older_than, log)
        if isinstance(again, Path):
            return run_job(
                job, again, log, as_json=as_json, serve_at=serve_at, processes=processes, learnt=learnt
            )
        return crawl_on_server(job, Address.parse(again), out, log, as_json=as_json, archive=archive)
    if not targets and options["sites"] is None:
        raise click.UsageError(
            "give a job file or URLs, or --sites, or --again with the folder of a finished crawl",
            click.get_current_context(),
        )
    run: Path | str = out if store is None else store
    now = WallClock().now()
    following = next_round(run, now)
    if store is not None and following.begins and has_shortened_files(Address.parse(store), out):
        following = NextRound(begins=False)  # a repair comes first
    # A continued crawl keeps its deadlines, including those that have passed in the meantime.
    started_at = now if following.begins else begun_at(run) or now
    job = job_from(targets, options, started_at, streams=processes == 1 and store is None)
    check_bounds(job)
    if following.begins and job.revisiting is None:
        check_hooks(job)
        check_fits(job)
        _begin_next_round(job, run, now, following, log)
    if store is not None:
        return crawl_on_server(job, Address.parse(store), out, log, as_json=as_json, archive=archive)
    log.detail(
        "start",
        f"{job.site_count} sites, strategy {job.strategy}, into {out}",
        {"sites": job.site_count, "strategy": job.strategy, "run": printable(str(out))},
    )
    return run_job(
        job,
        out,
        log,
        as_json=as_json,
        serve_at=serve_at,
        processes=processes,
        learnt=learnt,
        begins_round=following.begins,
    )


def _refuse_idle_options(
    out: Path, *, again: Path | str | None, older_than: str | None, store: str | None, archive: str | None
) -> None:
    """Refuse an option that would have no effect."""
    if again is None:
        if older_than is not None:
            raise click.UsageError("--older-than applies to a recrawl; give --again as well")
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
        raise click.UsageError("--again writes to the folder that it names; leave out --out")


def job_from(
    targets: tuple[str, ...], options: dict[str, Any], now: Instant, *, streams: bool = False
) -> Job:
    """A job file whose keys the options replace, or a job made of URLs and options alone. `streams`: the
    sites of a long list are left in their file."""
    files = [target for target in targets if "://" not in target]
    if len(files) > 1 or (files and len(targets) > 1):
        raise click.UsageError(f"give one job file or URLs, not {' and '.join(targets)}")
    if files:
        if not files[0].endswith(".toml") and not Path(files[0]).exists():
            raise JobError(_no_target(files[0]))
        path = Path(files[0])
        if not path.exists() and path.parent.is_dir():
            near = difflib.get_close_matches(path.name, [one.name for one in path.parent.glob("*.toml")], n=1)
            if near:
                raise JobError(f"{path}: there is no such job file; did you mean {path.parent / near[0]}?")
        file, source = read_job_file(path)
    else:
        source = Source("command line")
        source.overrule("site.url", "command line")
        source.overrule("site.seeds", "command line")
        file = convert({"site": _sites_of(targets)}, source)
    return _with_options(msgspec.to_builtins(file), source, options, now, streams=streams)


_HOST = re.compile(r"(?:[\w-]+\.)+[a-z][\w-]+(?::\d+)?(?:/.*)?", re.IGNORECASE)


def _no_target(name: str) -> str:
    """What is wrong with a target that is neither a file nor a URL, and what may be meant."""
    near = difflib.get_close_matches(name, [path.name for path in Path().glob("*.toml")], n=1)
    if near:
        return f"{name!r} is neither a job file nor a URL; did you mean {near[0]}?"
    if _HOST.fullmatch(name):
        return f"{name!r} is neither a job file nor a URL; did you mean https://{name}?"
    return f"{name!r} is neither a job file nor a URL; a URL begins with https:// or http://"


def _recrawl_job(
    targets: tuple[str, ...], options: dict[str, Any], run: Path | str, older_than: str | None, log: Log
) -> Job:
    """The job of the crawl that is repeated, or the job that was given to replace it."""
    now, source = WallClock().now(), Source(f"the job in {run}")
    tables = job_tables(run)
    job = job_from(targets, options, now) if targets else _with_options(tables, source, options, now)
    count = begin_recrawl(run, now, older_than)
    if count is None:
        log.say("taken-up", "continuing the unfinished recrawl: the pages that still wait are fetched")
    else:
        log.say("again", f"recrawling {count} pages", {"pages": count})
    return job


def _begin_next_round(job: Job, run: Path | str, now: Instant, following: NextRound, log: Log) -> None:
    """Queue all pages once more, after the round before has ended, or was left unfinished long ago."""
    if isinstance(run, Path):
        unlock(lock(database_of(run)))  # an error if another process has it, or nothing may be written
    with open_reader(run) as reader:
        known = {site for (site,) in reader.ask("SELECT site FROM site JOIN task ON task.site_id = site.id")}
    check_is_same_crawl(known, job, str(run), "give another folder with --out")
    if following.cuts is not None:
        finish_round(run, summarise(run, compares_pages=False), DEADLINES_MISSED, is_complete=False)
        log.say(
            "round-left",
            f"round {following.cuts.number} was interrupted and its deadlines have passed; what is left of it"
            " belongs to the next one",
            {"round": following.cuts.number},
        )
    count = begin_recrawl(run, now, cuts=following.cuts is not None)
    number = len(rounds_in(run))
    log.say(
        "again",
        f"round {number}: {count or 0} known pages are asked for again",
        {"pages": count or 0, "round": number},
    )


def _with_options(
    tables: dict[str, Any], source: Source, options: dict[str, Any], now: Instant, *, streams: bool = False
) -> Job:
    set_options(tables, source, "crawl", options)
    return build_job(convert(tables, source), source, now=now, streams=streams)


def _sites_of(urls: tuple[str, ...]) -> list[dict[str, Any]]:
    """The sites of these URLs; several URLs of a site become its seeds."""
    sites: dict[str, dict[str, Any]] = {}
    for url in urls:
        page = page_of(url)
        site = url if page is None else page.site  # the check of the job refuses what is not a URL
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
    learnt: LearntStore | None = None,
    begins_round: bool = False,
) -> int:
    """Run a crawl with progress and signals, print its result, and return the exit code."""
    check_hooks(job)
    check_fits(job)
    keep_freed_memory()
    allow_many_files()
    run: CrawlRun | ProcessRun
    if processes > 1:
        from headway.cluster.processes import ProcessRun

        run = ProcessRun(job, out, processes)
    else:
        on_decision = None if log.is_quiet else partial(tell, log)
        run = CrawlRun(job, out, on_decision=on_decision, learnt=learnt)
    if not begins_round:
        _say_continued(log, run)
    if run.folder.snapshot is None or begins_round:
        _say_folders(log, job)
        _say_closed(log, job)
        _say_shut(log, job)
        _say_shortage(log, job)
    if run.folder.snapshot is None:
        _say_contact(log, job)
    look_for_garbage_seldom()
    with Progress(log, run.view, job.zone) as progress, beside(out, log, serve_at):
        try:
            asyncio.run(_run(run, progress, log))
        except HeadwayError as problem:
            report_failure(job, out, out, problem, log)
            raise
    return conclude_crawl(job, out, out, log, as_json=as_json, interrupted=run.interrupted)


def _say_contact(log: Log, job: Job) -> None:
    """Once for each crawl, and not for one of a network of its own."""
    crawl = job.file.crawl
    if crawl.user_agent == DEFAULT_USER_AGENT and crawl.contact is None and not crawl.allow_private:
        log.say(
            "contact",
            "no contact is given: an owner of a site cannot ask you to slow down, and may block you instead; "
            'give one with --contact you@example.org or contact = "..." in [crawl]',
        )


def conclude_crawl(
    job: Job, run: Path | str, folder: Path, log: Log, *, as_json: bool, interrupted: bool
) -> int:
    """Note the end of the round, call the hooks and print the result; returns the exit code. `folder`: where
    this machine has its part of the crawl."""
    summary = summarise(run, compares_pages=as_json or not log.is_quiet)
    failure: HeadwayError | None = None
    try:
        code = exit_code_of(summary, interrupted=interrupted)
    except HeadwayError as problem:
        failure, code = problem, problem.exit_code
    if not interrupted:
        conclude(job, Ended(run, folder, summary, code, "" if failure is None else str(failure)), log)
        summary = msgspec.structs.replace(summary, rounds=summarise(run, compares_pages=False).rounds)
    with results():
        if as_json:
            click.echo(msgspec.json.encode(summary))
        elif not log.is_quiet:
            print_summary(stdout(is_literal=True), summary)
    if failure is not None:
        raise failure
    return code


_MOST_PLANNED = 2000
_MOST_NAMED = 5
_WINDOWS_REPEAT_S = 8 * 86400.0
"""Within this each window opens."""


def _say_folders(log: Log, job: Job) -> None:
    """At the start, log which sites are crawled only in part because they start in a folder."""
    found = [
        (wish.site, wish.own.scope.prefixes)
        for wish in job.sites
        if wish.own is not None and wish.own.scope is not None
        if wish.own.scope.prefixes and not wish.own.scope.is_prefix_given
    ]
    if not found:
        return
    names = [f"{site}{' and '.join(prefixes)}" for site, prefixes in found]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    log.say(
        "folders",
        f"only the folder of the start URL is crawled: {', '.join(names[:_MOST_NAMED])}{more}"
        ' (for a whole site write prefix = "/", or --prefix /)',
        {"sites": {site: list(prefixes) for site, prefixes in found[:_MOST_PLANNED]}},
    )


def _say_closed(log: Log, job: Job) -> None:
    """At the start, log when the crawl, or the first of its sites, may begin, if that is later."""
    now = WallClock().now()
    opens_at = now
    if not job.timetable.capacity_at(now):
        opens_at = job.timetable.next_change_after(now) or now
    elif job.listed is None and all(wish.own is not None for wish in job.sites):
        opens_at = min(wish.own.hours.opens_at(now) for wish in job.sites if wish.own is not None)
    if now < opens_at < FOREVER:
        at = dt.datetime.fromtimestamp(opens_at, job.zone)
        text = f"nothing is open now; the crawl begins at {at:%a %H:%M}, in {format_duration(opens_at - now)}"
        log.say("closed", text, {"until": opens_at})


def _say_shut(log: Log, job: Job) -> None:
    """At the start, log the deadlines before which the windows leave no time."""
    now = WallClock().now()
    never: list[str] = []
    for wish in job.sites[:_MOST_PLANNED]:
        windows, due_at = _windows_of(wish), job.task_of(wish, now).deadline_at
        if due_at is None or due_at - now > _WINDOWS_REPEAT_S or not (windows or job.timetable.windows):
            continue
        hours = SiteHours(windows)
        open_s = sum(
            to_s - from_s - hours.shut_s(Instant(now + from_s), now + to_s)
            for from_s, to_s, rate in job.timetable.segments(now, Seconds(due_at - now))
            if rate
        )
        if open_s < 1.0:
            never.append(wish.site)
    if never:
        more = f" and {len(never) - _MOST_NAMED} more" if len(never) > _MOST_NAMED else ""
        log.say(
            "deadlines-shut",
            f"{', '.join(never[:_MOST_NAMED])}{more}: no window is open before the deadline, which is missed;"
            " give a later deadline, or another window",
            {"sites": never},
            style="yellow",
        )


def _windows_of(wish: SiteWish) -> Timetable | None:
    return None if wish.own is None else wish.own.hours.windows


def _say_shortage(log: Log, job: Job) -> None:
    """At the start, log which deadlines cannot hold by the plan, and what would help."""
    timed = sum(wish.deadline is not None for wish in job.sites)
    is_planned = job.is_bounded or job.timetable.windows or any(_windows_of(wish) for wish in job.sites)
    if not (timed and is_planned and len(job.sites) <= _MOST_PLANNED) or job.file.crawl.policy != VARYING:
        return
    plan = start_of(job, WallClock().now(), NOTHING_LEARNT)
    problem, objective = plan.problem, job.file.crawl.objective
    # Of a site whose size is a guess nothing is known yet.
    known = [one.data_bytes.source != DEFAULT for one in plan.assumptions]
    late = [site for site in np.flatnonzero(given_up(problem, plan.objective)).tolist() if known[site]]
    if not late:
        return
    names = [problem.names[site].partition("://")[2] for site in late]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    slow = problem.data_bytes / problem.cap_bytes_per_s > problem.deadline_s
    needed, _ = least_bandwidths(problem)
    cures = (
        []
        if math.isinf(needed) or not job.is_bounded
        else [f"a bandwidth of {format_rate(needed / USABLE)} would meet all"]
    )
    if np.any(slow):
        polite = any(plan.assumptions[site].pause_s for site in np.flatnonzero(slow).tolist())
        limit = "interval or the server" if polite else "server"
        caps = {wish.site: wish.cap_bytes_per_s for wish in job.sites}
        if all(caps[plan.assumptions[site].site] is not None for site in np.flatnonzero(slow).tolist()):
            limit = "cap of the site"
        cures.append(f"{int(slow.sum())} of them are limited by the {limit}, not by the bandwidth")
    if guessed := known.count(False):
        cures.append(f"the size of {guessed} sites is a guess: give data, or learn it from an earlier run")
    log.say(
        "deadlines-given-up",
        f"{len(late)} of {timed} deadlines cannot hold by the plan (objective {objective}):"
        f" {', '.join(names[:_MOST_NAMED])}{more}; {'; '.join(cures)}",
        {"sites": [problem.names[site] for site in late], "deadlines": timed, "objective": objective},
        style="yellow",
    )


def _say_continued(log: Log, run: CrawlRun | ProcessRun) -> None:
    """Log that the run folder has an earlier part of the crawl, and what was repaired in it."""
    snapshot = run.folder.snapshot
    if snapshot is None:
        return
    if run.folder.repaired:
        log.say("mended", run.folder.repaired, {})
    done = sum(record.done for record in snapshot.sites)
    waiting = len(snapshot.waiting) + sum(snapshot.unloaded.values())
    ago_s = WallClock().now() - snapshot.started_at
    log.say(
        "taken-up",
        f"continuing the crawl started {format_duration(ago_s)} ago: {done} pages done, {waiting} waiting",
        {"started_at": snapshot.started_at, "done": done, "waiting": waiting},
    )


def exit_code_of(summary: Summary, *, interrupted: bool) -> int:
    if interrupted:
        return INTERRUPTED
    if summary.done == 0 or all(site.verdict in _NOTHING_FETCHED for site in summary.sites):
        raise HeadwayError(f"nothing was fetched: {_why_nothing(summary)}")
    is_missed = summary.missed or any(site.is_failure for site in summary.sites)
    return DEADLINES_MISSED if is_missed else 0


_NOTHING_FETCHED = frozenset({"unreachable", "failed", "redirects"})


def _why_nothing(summary: Summary) -> str:
    lines = [line for line in site_lines(summary.sites) if LEADS_OUT.partition(" ")[0] in line]
    if lines:
        return "; ".join(lines[:3])
    problem = summary.first_problem or "every page was out of scope"
    if Kind.FORBIDDEN_ADDRESS in problem:
        return f"{problem}; to crawl it, give --allow-private and a new folder"
    if any(kind in problem for kind in UNREACHABLE | {Kind.ROBOTS_UNREACHABLE}):
        return f"{problem}; the same command tries it again; a corrected address needs a new folder"
    advice = "correct that and crawl into a new folder, because this one has recorded the page as failed"
    return f"{problem}; {advice}"


async def _run(run: CrawlRun | ProcessRun, progress: Progress, log: Log) -> None:
    drain_on_signals(run, log)
    await run.run(on_second=None if log.is_quiet else progress.refresh)


@click.command("collect")
@click.option(
    "--store",
    required=True,
    metavar="URL",
    help="The crawl: postgresql://user@host/database#name, as given to headway crawl.",
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
    "--name", metavar="NAME", help="Name of this collector in logs and tables.  [default: the host's name]"
)
@click.option(
    "--label",
    default="",
    metavar="PLACE",
    help="Its place, such as eu-west: each site goes to the nearest place by measured round trips.",
)
@click.option(
    "--link",
    default="",
    metavar="NAME",
    help="Its link to the sites: collectors behind the same link yield to its other users together.  "
    "[default: that of the machine]",
)
@click.option(
    "--archive",
    metavar="URL",
    help="Upload finished WARC files to this URL: s3://bucket/prefix, or another storage that fsspec knows.  "
    "[default: they stay in the folder]",
)
@click.option(
    "--lease",
    default="10 s",
    show_default=True,
    metavar="TIME",
    help="Without contact for this long, its sites are given to other collectors.",
)
@log_options
def collect_command(
    store: str,
    out: Path,
    *,
    name: str | None,
    label: str,
    link: str,
    archive: str | None,
    lease: str,
    log: Log,
) -> int:
    """Work on a crawl together with other collectors, until it is finished.

    \b
      headway crawl job.toml --store postgresql://headway@db/crawls#news    creates the crawl and works on it
      headway collect --store postgresql://headway@db/crawls#news           on every other machine

    SIGTERM or Ctrl-C finishes the requests in flight and returns the sites to the others. If a collector
    dies, nothing is lost: others take over its sites when its lease has expired.
    """
    address = Address.parse(store)
    lease_s = read_option("--lease", parse_duration, lease)
    if lease_s < _SHORTEST_LEASE_S:
        raise click.UsageError(f"a lease of {lease} is too short; give 2 s or more")
    options = CollectorOptions(name or socket.gethostname(), label, lease_s, link, archive)
    return run_collector(address, out, log, options)


def crawl_on_server(
    job: Job, address: Address, out: Path, log: Log, *, as_json: bool, archive: str | None = None
) -> int:
    """Create or resume the crawl, and work on it until it is finished, together with other collectors."""
    check_hooks(job)
    if job.kept is not None:
        raise JobError(
            "crawl.keep: it is for run folders; the archive of a crawl on a server is in the folders of its"
            " collectors, or in a storage, which has rules of its own for old files"
        )
    begin(job, address, WallClock().now())
    options = CollectorOptions(socket.gethostname(), archive=archive)
    is_interrupted = run_collector(address, out, log, options) == INTERRUPTED
    write_index(out, store=address.whole)
    return conclude_crawl(job, address.whole, out, log, as_json=as_json, interrupted=is_interrupted)


def run_collector(address: Address, out: Path, log: Log, options: CollectorOptions) -> int:
    keep_freed_memory()
    allow_many_files()
    run = CollectRun(
        address,
        job_of(address),
        out,
        options=options,
        on_decision=None if log.is_quiet else partial(tell, log),
        on_news=partial(log.say, "fleet"),
    )
    look_for_garbage_seldom()
    with Progress(log, run.view) as progress:
        asyncio.run(_collect(run, progress, log))
    return INTERRUPTED if run.interrupted else 0


async def _collect(run: CollectRun, progress: Progress, log: Log) -> None:
    drain_on_signals(run, log)
    await run.run(on_second=None if log.is_quiet else progress.refresh)
