"""`headway serve`: the dashboard of a run; and --serve, which starts it beside a crawl."""

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

from headway.cli.frame import Log, log_options
from headway.cli.running import RunType
from headway.errors import HeadwayError, install_command
from headway.runtime.process import INTERRUPTS

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
