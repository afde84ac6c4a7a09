"""`python -m headway.testing.demoweb`: serves the demo web until SIGTERM, SIGINT, or the end of its stdin.

The first line on stdout, once all ports listen, is JSON with the sites and their origins.
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

from headway.errors import HeadwayError
from headway.testing.demoweb.design import DEFAULT_ROSTER, Recipe, WebDesign, design_from
from headway.testing.demoweb.process import Ready
from headway.testing.demoweb.server import serve


@click.command()
@click.option("--seed", default=7, show_default=True, help="The same seed gives the same web.")
@click.option("--scale", default=1.0, show_default=True, help="1 is some 400 pages in 6 MB.")
@click.option("--site", "roster", multiple=True, help="A site to serve, repeatable; all eight by default.")
@click.option("--port-base", type=int, help="First port; without it any free ports are taken.")
@click.option("--access-log", type=click.Path(path_type=Path), help="Write each request here as JSON.")
@click.option("--recipe", help="All of seed, scale, sites and tempo as JSON, in place of these options.")
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
        asked = Recipe(seed=seed, scale=scale, roster=roster or DEFAULT_ROSTER)
        design = design_from(msgspec.json.decode(recipe, type=Recipe) if recipe else asked)
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            runner.run(_serve_until_told(design, port_base, access_log))
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


async def _serve_until_told(design: WebDesign, port_base: int | None, access_log: Path | None) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    async with serve(design, port_base, access_log=access_log) as served:
        _tell_when_stdin_ends(loop, told)
        click.echo(msgspec.json.encode(Ready(served.sites)))
        await told.wait()


def _tell_when_stdin_ends(loop: asyncio.AbstractEventLoop, told: asyncio.Event) -> None:
    """Only for a pipe: a program in the background has /dev/null there, which ends where it begins."""
    stdin = sys.stdin.fileno()
    if not stat.S_ISFIFO(os.fstat(stdin).st_mode):
        return

    def look() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            told.set()

    loop.add_reader(stdin, look)


if __name__ == "__main__":
    main()
