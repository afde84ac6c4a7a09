"""`headway status`, `report`, `export`, `limit`, `verify`, `rebuild`, `serve`: the commands on a run.

Also --serve, which starts the dashboard beside a crawl."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from headway.cli.frame import Log, log_options, print_lines, results, stderr, stdout
from headway.cli.running import LISTED_OF_MANY, RunType, print_round, print_rounds, print_summary, zone_of
from headway.config.job import load_job
from headway.errors import HeadwayError, install_command
from headway.runtime.control import limit_of, write_limit
from headway.runtime.process import INTERRUPTS
from headway.store.reader import LiveReader, open_reader
from headway.store.rounds import period_of
from headway.units import format_size
from headway.view.export import BINARY, FORMATS, SUFFIXES, export_pages
from headway.view.summary import rounds_in, summarise, summarise_some


@click.command("status")
@click.argument("run", type=RunType(), metavar="RUN | postgresql://...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--rounds", "lists_rounds", is_flag=True, help="List the rounds of the run.")
@click.option(
    "--round",
    "number",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show the result of round N.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw the link and the sites to a PNG, SVG or PDF file.",
)
def status_command(
    run: Path | str, *, as_json: bool, lists_rounds: bool, number: int | None, plot: Path | None
) -> int:
    """Show the progress of a run: its sites with their deadlines, errors, and the use of the link.

    RUN is a run folder or the address of a crawl on a PostgreSQL server. The crawl may be running.
    """
    if lists_rounds or number is not None:
        rounds = rounds_in(run)
        with open_reader(run) as reader:
            period_of(rounds, number or 1)  # an error if there is no such round
            zone = zone_of(reader.job.get("crawl", {}).get("timezone"))
        chosen = rounds if number is None else [rounds[number - 1]]
        with results():
            if as_json:
                click.echo(msgspec.json.encode(chosen))
            elif number is None:
                print_rounds(stdout(is_literal=True), chosen, zone)
            else:
                print_round(stdout(is_literal=True), chosen[0], zone)
        return 0
    if as_json:
        summary, listed_of = summarise(run), None
    else:
        summary, listed_of = summarise_some(run, LISTED_OF_MANY)
    with results():
        if as_json:
            click.echo(msgspec.json.encode(summary))
        else:
            print_summary(stdout(is_literal=True), summary, listed_of)
    if plot is not None:
        from headway.report.plots import draw_picture

        draw_picture(run, plot)
    return 0


@click.command("report")
@click.argument("run", type=RunType())
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder to write to.  [default: RUN/report, or RUN/report-of-round-N]",
)
@click.option(
    "--round",
    "number",
    type=click.IntRange(min=1),
    metavar="N",
    help="The report of round N.  [default: the last one]",
)
@click.option("--open", "opens", is_flag=True, help="Open the report in the browser.")
@click.option("--json", "as_json", is_flag=True, help="Print the path and the main results as JSON.")
@log_options
def report_command(
    run: Path | str, *, out: Path | None, number: int | None, opens: bool, as_json: bool, log: Log
) -> int:
    """Write a report of a run: one HTML file, and its figures as PNG, SVG and CSV.

    The crawl may be running; the report then covers what is in the run folder so far.
    """
    if not isinstance(run, Path):
        raise click.UsageError(
            "headway report needs a run folder; for a crawl on a server use headway status, export or serve"
        )
    from headway.report.run_page import verdict, write_report
    from headway.view.reporting import gather

    facts = gather(run, round_number=number)
    usual = run / ("report" if facts.round_number is None else f"report-of-round-{number}")
    page = write_report(facts, out if out is not None else usual)
    location = os.fsencode(page).decode("utf-8", "replace")
    with results():
        if as_json:
            missed = [msgspec.to_builtins(each) for each in facts.missed]
            click.echo(
                msgspec.json.encode(
                    {
                        "report": location,
                        "state": facts.view.state,
                        "pages": facts.view.done,
                        "missed": missed,
                        "verdict": verdict(facts),
                    }
                )
            )
        elif not log.is_quiet:
            click.echo(verdict(facts))
            click.echo(f"report: {location}")
    if opens:
        webbrowser.open(page.resolve().as_uri())
    return 0


@click.command("export")
@click.argument("run", type=RunType(), metavar="RUN | postgresql://...")
@click.option(
    "-f",
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="The format.  [default: by the suffix of the file; jsonl to standard output]",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="The file to write, or the folder of a mirror.  [default: standard output]",
)
@click.option(
    "--round",
    "number",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the pages of round N; wacz and mirror: all pages as they were at its end.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the file, its format and its size as JSON.")
@log_options
def export_command(
    run: Path | str, *, kind: str | None, out: Path | None, number: int | None, as_json: bool, log: Log
) -> int:
    """Export the pages of a run, or its archive, for other programs.

    jsonl, csv, parquet and sqlite have a row for every page that was fetched, failed or was excluded, with
    its round and whether it was new, changed, unchanged or gone. cdxj is the index of the archive, wacz the
    archive in one file for replay tools, mirror a folder of files that a browser opens from disk.

    \b
      headway export run -o pages.csv
      headway export run --round 2 | jq -r 'select(.change == "changed") | .url'
      headway export run -o archive.wacz
      headway export run -f mirror -o mirror
    """
    if kind is None:
        kind = _format_of(out)
    if out is None or os.fspath(out) == "-":
        if as_json:
            raise click.UsageError(
                "--json writes to standard output, where the pages go; name a file with -o"
            )
        if kind == "mirror":
            raise click.UsageError("a mirror is a folder of files; name it with -o")
        if kind in BINARY and sys.stdout.isatty():
            raise click.UsageError(f"{kind} is a binary format; name a file with -o")
        with results():
            export_pages(run, kind, sys.stdout.buffer, round_number=number)
            sys.stdout.buffer.flush()
        return 0
    count = export_pages(run, kind, out, round_number=number)
    size_bytes = sum(file.stat().st_size for file in out.rglob("*")) if out.is_dir() else out.stat().st_size
    with results():
        if as_json:
            click.echo(
                msgspec.json.encode({"file": str(out), "format": kind, "rows": count, "bytes": size_bytes})
            )
        else:
            log.say("exported", f"{out}: {count} pages, {format_size(size_bytes)}")
    return 0


def _format_of(out: Path | None) -> str:
    """By the name of the file."""
    if out is None or os.fspath(out) == "-" or (out.exists() and not out.is_file() and not out.is_dir()):
        return "jsonl"
    ending = out.suffix.lstrip(".").lower()
    if ending in SUFFIXES:
        return SUFFIXES[ending]
    if out.is_dir() or os.fspath(out).endswith("/"):
        return "mirror"
    names = ", ".join(FORMATS)
    raise click.UsageError(
        f"{out}: its name does not say which format it is to have; give one with -f: {names}"
    )


def _bandwidth_of_job(run: Path) -> str:
    with open_reader(run) as reader:
        tables = reader.job.get("crawl", {})
    hours = ", and other bandwidths by its timetable" if tables.get("timetable") else ""
    return f"{tables.get('bandwidth') or 'unlimited'}{hours}"


@click.command("limit")
@click.argument("run", type=RunType())
@click.argument("bandwidth", required=False)
@click.option("--clear", is_flag=True, help="Return to the bandwidth of the job.")
def limit_command(run: Path | str, bandwidth: str | None, *, clear: bool) -> int:
    """Change the bandwidth limit of a crawl, for example to 2Mbit/s; without a bandwidth, show it.

    A running crawl applies it within a second, a stopped one when it is started again. It stays in force
    until it is changed again or cleared with --clear.
    """
    if clear and bandwidth is not None:
        raise click.UsageError("give a bandwidth such as 2Mbit/s, or --clear")
    if not isinstance(run, Path):
        raise click.UsageError(
            "headway limit needs a run folder; a crawl on a server keeps its job's bandwidth"
        )
    if bandwidth is None and not clear:
        click.echo(limit_of(run) or f"{_bandwidth_of_job(run)} (by the job)")
        return 0
    write_limit(run, bandwidth)
    with LiveReader(run) as live_reader:
        is_running = bool(live_reader.collectors())
    limit = "the job's bandwidth" if clear else f"at most {bandwidth}"
    since = "from now on" if is_running else "when the crawl is started again; it is not running now"
    stderr().print(f"{run}: {limit}, {since}", markup=False)
    return 0


_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_DAMAGED = 1


@click.command("verify")
@click.argument("run", type=_FOLDER)
@click.option("--repair", "repairs", is_flag=True, help="Correct what is damaged; queue lost pages again.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@log_options
def verify_command(run: Path, *, repairs: bool, as_json: bool, log: Log) -> int:
    """Check every record, digest, index line and row of a run folder against each other.

    Exits with 1 if anything is damaged and was not repaired. No crawl may be running in the folder.
    """
    from headway.store.verify import verify

    report = verify(run, repairs=repairs)
    with results():
        if as_json:
            click.echo(msgspec.json.encode(report))
        else:
            lines = [f"{finding.kind}: {finding.where}: {finding.what}" for finding in report.findings]
            hidden = sum(report.counts.values()) - len(lines)
            lines += [f"and {hidden} more"] if hidden else []
            print_lines(stdout(is_literal=True), *lines)
    total = sum(report.counts.values())
    checked = f"{report.records} records and {report.pages} pages"
    if not total:
        log.say("verified", f"{checked}; nothing is damaged")
        return 0
    if report.is_repaired:
        log.say("repaired", f"{total} findings in {checked}; {report.queued} pages will be fetched again")
        return 0
    log.say("damaged", f"{total} findings in {checked}; 'headway verify --repair' corrects them")
    return _DAMAGED


@click.command("rebuild")
@click.argument("run", type=_FOLDER)
@click.argument("job", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@log_options
def rebuild_command(run: Path, job: Path | None, *, as_json: bool, log: Log) -> int:
    """Rebuild the database of a run folder from its WARC files and logs.

    The old database is renamed. Give JOB, the job file, if the old database cannot be read.
    """
    from headway.runtime.rebuild import rebuild

    result = rebuild(run, load_job(job) if job is not None else None)
    with results():
        if as_json:
            click.echo(msgspec.json.encode(result))
        else:
            print_lines(stdout(is_literal=True), *result.skipped)
    log.say(
        "rebuilt",
        f"{result.pages} settled pages, {result.captures} captures, {result.waiting} pages wait"
        + (f"; the old database is {result.old_database}" if result.old_database else ""),
    )
    return 0


USUAL_PORT = 8077
_TOKEN_VARIABLE = "HEADWAY_DASHBOARD_TOKEN"  # noqa: S105 - a name, not a token


@click.command("serve")
@click.argument("run", type=RunType(), metavar="RUN | postgresql://...")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    default=USUAL_PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port to listen on; 0 chooses a free one.",
)
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in the browser.")
@click.option("--with-parent", is_flag=True, hidden=True, help="End when standard input closes.")
@log_options
def serve_command(run: Path | str, *, host: str, port: int, opens: bool, with_parent: bool, log: Log) -> int:
    """Show a run in a browser, during the crawl or afterwards, and control it from there.

    The command prints the dashboard's URL, which contains a token. Changes need the token; if the dashboard
    listens on an address other than loopback, reading needs it too. Prometheus metrics are at /metrics, the
    OpenAPI description of the API at /api/openapi.json.
    """
    try:
        from headway.dashboard.application import Served, new_token
    except ImportError:
        raise HeadwayError(f"the dashboard needs more packages: {install_command('serve')}") from None
    token = os.environ.pop(_TOKEN_VARIABLE, "") or new_token()
    served = Served(run, host=host, port=port, token=token)
    if with_parent:
        os.nice(5)  # the crawl comes first
        served.stop_with_pipe()

    def say_ready() -> None:
        if log.is_quiet:
            click.echo(served.address)  # it has the token
        log.say("serving", f"dashboard: {served.address}", {"address": served.address, "port": served.port})
        if served.is_public:
            log.say(
                "public",
                "the dashboard can be reached from other machines; the token is sent unencrypted, so put a "
                "reverse proxy with TLS in front of it on a network that others use",
            )

    if opens:
        webbrowser.open(served.address)  # the socket listens already; the request waits until `run`
    INTERRUPTS.handle(lambda _: served.interrupt())
    served.run(on_ready=say_ready)
    return 0


def serve_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add --serve, --serve-host and --serve-port. The command gets `serve_at`: host and port, or None."""

    @click.option("--serve", is_flag=True, help="Start the dashboard beside the crawl (see headway serve).")
    @click.option(
        "--serve-host", default="127.0.0.1", show_default=True, help="The address for the dashboard."
    )
    @click.option(
        "--serve-port",
        default=USUAL_PORT,
        show_default=True,
        type=click.IntRange(0, 65535),
        help="The port for the dashboard; 0 chooses a free one.",
    )
    @functools.wraps(command)
    def with_dashboard(*args: Any, serve: bool, serve_host: str, serve_port: int, **options: Any) -> int:
        return command(*args, serve_at=(serve_host, serve_port) if serve else None, **options)

    return with_dashboard


@contextmanager
def beside(run: Path, log: Log, serve_at: tuple[str, int] | None) -> Iterator[None]:
    """Run the dashboard beside a crawl, in a process of its own so that it cannot slow the crawl down."""
    if serve_at is None:
        yield
        return
    host, port = serve_at
    command = [sys.executable, "-m", "headway", "serve", "--with-parent", "--host", host, "--port", str(port)]
    command += ["--log-json"] if log.as_json else []
    # In a new session, so that Ctrl-C reaches only the crawl, which then ends the dashboard.
    with subprocess.Popen(  # noqa: S603
        [*command, "--", os.fspath(run)], stdin=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
