"""`headway demo`: a crawl with a bandwidth limit and deadlines of a small web that headway serves itself."""

from __future__ import annotations

import contextlib
import shutil
import signal
from pathlib import Path
from typing import Any

import click

from headway.archive.files import clear_errors
from headway.cli.crawl import run_job
from headway.cli.frame import INTERRUPTED, Log, log_options, printable
from headway.cli.inspect import serve_options
from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.demoweb import Scope, Served, ServedProcess, design_web
from headway.errors import HeadwayError, StoreError
from headway.runtime.driver import WallClock
from headway.store.reader import DATABASE, RunReader
from headway.store.sqlite import SqliteStore
from headway.version import __version__

DEADLINES = {
    "gazette": "13 s",
    "museum": "15 s",
    "library": "20 s",
    "registry": "25 s",
    "harbour": "30 s",
    "workshop": "35 s",
}
"""The other sites have no deadline."""
_MAX_DEPTH = 8
_MARK = "(demo)"
_USER_AGENT = f"headway/{__version__} {_MARK}"
"""Marks a run folder as a demo's, which the next demo may replace."""


@click.command("demo")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("headway-demo"),
    show_default=True,
    help="The run folder. That of an earlier demo is replaced.",
)
@click.option(
    "--bandwidth", default="4 Mbit/s", show_default=True, metavar="RATE", help="Bandwidth limit of the crawl."
)
@click.option("--seed", default=7, show_default=True, help="Random seed of the web.")
@click.option("--scale", default=1.0, show_default=True, help="Factor for the number of pages.")
@click.option("--port-base", type=click.IntRange(1, 65000), help="Serve on this port and the next ones.")
@click.option("--serve-only", is_flag=True, help="Only serve the web, until interrupted with Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@serve_options
@log_options
def demo_command(
    out: Path,
    *,
    bandwidth: str,
    seed: int,
    scale: float,
    port_base: int | None,
    serve_only: bool,
    as_json: bool,
    serve_at: tuple[str, int] | None,
    log: Log,
) -> int:
    """Crawl a small web that headway serves itself, with a bandwidth limit and deadlines.

    The demo needs no internet connection and takes about half a minute. It ends with a table of the sites and
    a report.
    """
    with ServedProcess(design_web(seed, scale), port_base) as served:
        if serve_only:
            return _serve(served, log)
        job = demo_job(served, bandwidth)
        _remove_earlier_demo(out)
        pages = len(served.reachable(Scope(max_depth=_MAX_DEPTH, redirects_cost_depth=False)))
        log.say(
            "serving",
            f"Serving {len(served.sites)} sites with {pages} pages on loopback ports, "
            f"and crawling them with at most {bandwidth}.",
            {"sites": served.sites, "pages": pages},
        )
        if not log.as_json:
            _log_sites(served, log)
        code = run_job(job, out, log, as_json=as_json, serve_at=serve_at)
    if code != INTERRUPTED and not as_json and not log.is_quiet:
        _report(out, log)
    return code


def _log_sites(served: Served, log: Log) -> None:
    """Log the name of each site; everywhere else sites are shown by their ports."""
    for name, origin in served.sites.items():
        deadline = f"deadline {DEADLINES[name]}" if name in DEADLINES else "no deadline"
        log.say("site", f"  {origin}  {name:<12} {deadline}")


def _report(out: Path, log: Log) -> None:
    """Write the report, if the packages that draw its figures are installed."""
    from headway.report.run_page import write_report
    from headway.view.reporting import gather

    try:
        page = write_report(gather(out, is_over=True), out / "report")
    except HeadwayError as problem:
        log.detail("no-report", f"no report: {problem}")
    else:
        log.say("report", f"report: {page}", {"report": printable(str(page))})


def demo_job(served: Served, bandwidth: str) -> Job:
    sites: list[dict[str, Any]] = []
    for name, origin in served.sites.items():
        site: dict[str, Any] = {"url": f"{origin}/"}
        if name in DEADLINES:
            site["deadline"] = DEADLINES[name]
        sites.append(site)
    tables = {
        "crawl": {
            "bandwidth": bandwidth,
            "interval": "50 ms",
            "allow_private": True,
            "user_agent": _USER_AGENT,
            # Short, because with the default pauses the site that fails would delay the end by 10 s.
            "retry_penalty": "200 ms",
            "backoff": "200 ms",
            "max_backoff": "300 ms",
            "scope": {"max_depth": _MAX_DEPTH},
            "timeouts": {"first_byte": "1 s", "idle": "1 s"},
        },
        "site": sites,
    }
    source = Source("demo")
    source.overrule("crawl.bandwidth", "--bandwidth")
    return build_job(convert(tables, source), source, now=WallClock().now())


def _remove_earlier_demo(out: Path) -> None:
    """Remove the run folder of an earlier demo; any other folder with files in it is an error."""
    with clear_errors(out):
        if not out.exists() or not any(out.iterdir()):
            return
        if not _is_demo(out):
            raise HeadwayError(
                f"{out} is not empty and not the run of a demo; name another folder with --out"
            )
        SqliteStore(out / DATABASE).close()  # raises if another process crawls into it
        shutil.rmtree(out)


def _is_demo(out: Path) -> bool:
    try:
        with RunReader(out) as reader:
            crawl = reader.job.get("crawl")
    except StoreError:
        return False
    return isinstance(crawl, dict) and str(crawl.get("user_agent")).endswith(_MARK)


def _serve(served: Served, log: Log) -> int:
    for name, origin in served.sites.items():
        click.echo(f"{origin}/  {name}")
    log.say("serving", "Serving until interrupted with Ctrl-C.", {"sites": served.sites})
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
    return 0
