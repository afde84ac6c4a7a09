"""`python -m tests.support.chaos`: serves the chaos web until SIGTERM, SIGINT, or the end of its stdin.

The first line on stdout, once all ports listen, is JSON with the sites' origins and the authority to trust.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys

import click
import msgspec
from tests.support.chaos.process import Ready
from tests.support.chaos.roster import ROSTER, named
from tests.support.chaos.server import serve_chaos
from tests.support.chaos.site import ChaosSite
from tests.support.chaos.traps import TRAPS

from headway.errors import HeadwayError


@click.command()
@click.option("--site", "names", multiple=True, help="A site to serve, repeatable; all by default.")
@click.option("--list", "only_list", is_flag=True, help="Print the sites and what they do, and end.")
def main(names: tuple[str, ...], *, only_list: bool) -> None:
    """Serve the chaos web on loopback."""
    try:
        sites = named(names) if names else ROSTER
        if only_list:
            for site in {**sites, **({} if names else TRAPS)}.values():
                click.echo(f"{site.name:28} {site.bad:20} {site.does}")
            return
        asyncio.run(_serve_until_told(sites))
    except (HeadwayError, OSError) as error:
        click.echo(str(error), err=True)
        sys.exit(1)


async def _serve_until_told(sites: dict[str, ChaosSite]) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    async with serve_chaos(sites) as served:
        stdin = sys.stdin.fileno()
        if stat.S_ISFIFO(os.fstat(stdin).st_mode):
            loop.add_reader(stdin, lambda: None if os.read(stdin, 4096) else told.set())
        click.echo(msgspec.json.encode(Ready(served.origins, served.authority_pem)))
        await told.wait()
        loop.remove_reader(stdin)


if __name__ == "__main__":
    main()
