"""`headway demo`: a small web that headway serves itself, crawled under a bound and with deadlines."""

from __future__ import annotations

import contextlib
import shutil
import signal
from pathlib import Path
from typing import Any

import click

from headway.app.clock import WallClock
from headway.cli.crawl import run_job
from headway.cli.frame import INTERRUPTED
from headway.cli.log import Log, log_options, printable
from headway.cli.serve import serve_options
from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.errors import HeadwayError, StoreError
from headway.store.failures import clear_errors
from headway.store.reader import DATABASE, RunReader
from headway.store.sqlite import SqliteStore
from headway.testing.demoweb import Scope, Served, ServedProcess, design_web
from headway.version import __version__

DEADLINES = {
    "gazette": "13 s",
    "museum": "15 s",
    "library": "20 s",
    "registry": "25 s",
    "harbour": "30 s",
    "workshop": "60 s",
}
"""The others are wanted at no particular time."""
_MAX_DEPTH = 8
_MARK = "(demo)"
_USER_AGENT = f"headway/{__version__} {_MARK}"
"""By which a demo's run folder is known from one that somebody wants to keep."""


@click.command("demo")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("headway-demo"),
    show_default=True,
    help="The run folder; a demo's earlier one is replaced.",
)
@click.option(
    "--bandwidth", default="4 Mbit/s", show_default=True, metavar="RATE", help="The bound on the link."
)
@click.option("--seed", default=7, show_default=True, help="Another seed gives another web.")
@click.option("--scale", default=1.0, show_default=True, help="How large the web is.")
@click.option("--port-base", type=click.IntRange(1, 65000), help="Serve on this port and the next ones.")
@click.option("--serve-only", is_flag=True, help="Serve the web until interrupted, and crawl nothing.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON.")
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
    """Crawl a small web that headway serves itself, under a bound and with deadlines."""
    with ServedProcess(design_web(seed, scale), port_base) as served:
        if serve_only:
            return _serve(served, log)
        job = demo_job(served, bandwidth)
        _make_room(out)
        pages = len(served.reachable(Scope(max_depth=_MAX_DEPTH, redirects_cost_depth=False)))
        log.say(
            "serving",
            f"Serving {len(served.sites)} sites with {pages} pages on loopback ports, "
            f"and crawling them within {bandwidth}.",
            {"sites": served.sites, "pages": pages},
        )
        if not log.as_json:
            _tell_names(served, log)
        code = run_job(job, out, log, as_json=as_json, serve_at=serve_at)
    if code != INTERRUPTED and not as_json and not log.is_quiet:
        _report(out, log)
    return code


def _tell_names(served: Served, log: Log) -> None:
    """Which site is which: later on they are known by their ports."""
    for name, origin in served.sites.items():
        wanted = f"wanted in {DEADLINES[name]}" if name in DEADLINES else "at any time"
        log.say("site", f"  {origin}  {name:<12} {wanted}")


def _report(out: Path, log: Log) -> None:
    """The page to look at, where figures can be drawn."""
    from headway.app.reporting import gather
    from headway.report.run_report import write_report

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
            "retry_penalty": "500 ms",
            "backoff": "500 ms",
            "max_backoff": "1 s",
            "scope": {"max_depth": _MAX_DEPTH},
            "timeouts": {"first_byte": "1500 ms", "idle": "1500 ms"},
        },
        "site": sites,
    }
    source = Source("demo")
    source.overrule("crawl.bandwidth", "--bandwidth")
    return build_job(convert(tables, source), source, now=WallClock().now())


def _make_room(out: Path) -> None:
    """Take away an earlier demo, and nothing else that may be there."""
    with clear_errors(out):
        if not out.exists() or not any(out.iterdir()):
            return
        if not _is_demo(out):
            raise HeadwayError(f"{out} holds something else than a demo's run; name another with --out")
        SqliteStore(out / DATABASE).close()  # refuses when another process crawls into it
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
