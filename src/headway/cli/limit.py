"""`headway limit`: another bound for a crawl, running or not."""

from __future__ import annotations

from pathlib import Path

import click

from headway.app.limit import write_limit
from headway.cli.frame import stderr
from headway.cli.runs import RunType
from headway.store.onlooker import Onlooker


@click.command("limit")
@click.argument("run", type=RunType())
@click.argument("bandwidth", required=False)
@click.option("--clear", is_flag=True, help="Back to what the job says.")
def limit_command(run: Path | str, bandwidth: str | None, *, clear: bool) -> int:
    """Set the bound of a crawl, such as 2Mbit/s. A running crawl follows within a second."""
    if clear == (bandwidth is not None):
        raise click.UsageError("give a bandwidth such as 2Mbit/s, or --clear")
    if not isinstance(run, Path):
        raise click.UsageError("a bound is set on a run folder; a crawl on a server has the one of its job")
    write_limit(run, bandwidth)
    bound = "as its job says" if clear else f"at most {bandwidth}"
    since = "from now on" if _is_running(run) else "when it is started again; nobody crawls into it now"
    stderr().print(f"{run}: {bound}, {since}", markup=False)
    return 0


def _is_running(run: Path) -> bool:
    with Onlooker(run) as onlooker:
        return bool(onlooker.collectors())
