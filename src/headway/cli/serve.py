"""`headway serve`: the dashboard of a run, running or not."""

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

from headway.cli.log import Log, log_options
from headway.cli.runs import RunType
from headway.errors import HeadwayError

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
    help="The port; 0 for any that is free.",
)
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@click.option("--with-parent", is_flag=True, hidden=True, help="End when standard input closes.")
@log_options
def serve_command(run: Path | str, *, host: str, port: int, opens: bool, with_parent: bool, log: Log) -> int:
    """Show a run in a browser while it crawls, or afterwards; steer it from there.

    The address that is printed has the token in it, without which nothing can be changed; off loopback
    nothing can be seen without it either. Metrics for Prometheus are under /metrics, the API's description
    under /api/openapi.json.
    """
    try:
        from headway.dashboard.safety import new_token
        from headway.dashboard.server import Served
    except ImportError:
        raise HeadwayError("the dashboard needs the extra: pip install 'headway[serve]'") from None
    token = os.environ.pop(_TOKEN_VARIABLE, "") or new_token()
    served = Served(run, host=host, port=port, token=token)
    if with_parent:
        os.nice(5)  # the crawl comes first
        served.stop_with_pipe()

    def say_ready() -> None:
        if log.is_quiet:
            click.echo(served.address)  # without it nobody could come in
        log.say("serving", f"dashboard: {served.address}", {"address": served.address, "port": served.port})
        if served.is_public:
            log.say(
                "public",
                "everybody who can reach this machine can open it; what it shows and does needs the token, "
                "which travels unencrypted: put a proxy with TLS in front where others share the network",
            )

    if opens:
        webbrowser.open(served.address)  # it listens already: the page comes as soon as we serve
    served.run(on_ready=say_ready)
    return 0


def serve_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds --serve and where; the command gets `serve_at`, None without it."""

    @click.option("--serve", is_flag=True, help="Show the crawl in a browser while it runs.")
    @click.option("--serve-host", default="127.0.0.1", show_default=True, help="The dashboard's address.")
    @click.option(
        "--serve-port",
        default=USUAL_PORT,
        show_default=True,
        type=click.IntRange(0, 65535),
        help="The dashboard's port; 0 for any that is free.",
    )
    @functools.wraps(command)
    def with_dashboard(*args: Any, serve: bool, serve_host: str, serve_port: int, **options: Any) -> int:
        return command(*args, serve_at=(serve_host, serve_port) if serve else None, **options)

    return with_dashboard


@contextmanager
def beside(run: Path, log: Log, serve_at: tuple[str, int] | None) -> Iterator[None]:
    """A dashboard beside our own crawl, in a process of its own: who looks on cannot hold up the crawl."""
    if serve_at is None:
        yield
        return
    host, port = serve_at
    command = [sys.executable, "-m", "headway", "serve", "--with-parent", "--host", host, "--port", str(port)]
    command += ["--log-json"] if log.as_json else []
    # A session of its own, so that Ctrl-C reaches the crawl alone, which then ends the dashboard.
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
