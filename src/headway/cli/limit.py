"""`headway limit`: another bound for a crawl, running or not."""

from __future__ import annotations

from pathlib import Path

import click

from headway.app.limit import write_limit
from headway.cli.frame import stderr


@click.command("limit")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("bandwidth", required=False)
@click.option("--clear", is_flag=True, help="Back to what the job says.")
def limit_command(run: Path, bandwidth: str | None, *, clear: bool) -> int:
    """Set the bound of a crawl, such as 2Mbit/s. A running crawl follows within a second."""
    if clear == (bandwidth is not None):
        raise click.UsageError("give a bandwidth such as 2Mbit/s, or --clear")
    write_limit(run, bandwidth)
    stderr().print(f"{run}: " + ("as its job says" if clear else f"at most {bandwidth} from now on"))
    return 0
