"""`python -m headway.demoweb`: serves the demo web until SIGTERM, SIGINT, or the end of stdin.

When all ports listen, it prints a line of JSON with the sites and their origins.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from headway.demoweb.design import DEFAULT_ROSTER, Recipe, WebDesign, design_from
from headway.demoweb.server import Ready, serve
from headway.errors import HeadwayError


@click.command()
@click.option("--seed", default=7, show_default=True, help="The same seed gives the same web.")
@click.option("--scale", default=1.0, show_default=True, help="1 means about 400 pages in 6 MB.")
@click.option("--site", "roster", multiple=True, help="A site to serve; repeatable. Default: all eight.")
@click.option("--port-base", type=int, help="The first port. Default: any free ports.")
@click.option(
    "--access-log", type=click.Path(path_type=Path), help="Write each request to this file as a line of JSON."
)
@click.option("--recipe", help="Seed, scale, sites and tempo as JSON, instead of these options.")
def main(
    *,
    seed: int,
    scale: float,
    roster: tuple[str, ...],
    port_base: int | None,
    access_log: Path | None,
    recipe: str | None,
) -> None:
    """Serve the demo web on loopback."""
    try:
        options = Recipe(seed=seed, scale=scale, roster=roster or DEFAULT_ROSTER)
        design = design_from(msgspec.json.decode(recipe, type=Recipe) if recipe else options)
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            runner.run(_serve_until_stopped(design, port_base, access_log))
    except (HeadwayError, OSError, msgspec.DecodeError) as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return new_loop


async def _serve_until_stopped(design: WebDesign, port_base: int | None, access_log: Path | None) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with serve(design, port_base, access_log=access_log) as served:
        _stop_when_stdin_ends(loop, stopped)
        click.echo(msgspec.json.encode(Ready(served.sites)))
        await stopped.wait()


def _stop_when_stdin_ends(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    """Only if stdin is a pipe. For a program in the background it is /dev/null, which is at its end."""
    stdin = sys.stdin.fileno()
    if not stat.S_ISFIFO(os.fstat(stdin).st_mode):
        return

    def read() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            stopped.set()

    loop.add_reader(stdin, read)


if __name__ == "__main__":
    main()
