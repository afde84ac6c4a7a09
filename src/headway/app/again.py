"""A finished crawl begun once more: its pages are queued again, and asked for only if they have changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.config.checks import pause
from headway.errors import UnitError
from headway.store.again import begin_round
from headway.store.reader import open_reader
from headway.units import Instant, Seconds


def job_tables(run: Path | str) -> dict[str, Any]:
    """The job as the run folder remembers it, or the server."""
    with open_reader(run) as reader:
        return reader.job


def begin_again(run: Path | str, now: Instant, older_than: str | None = None) -> int | None:
    """Queue all pages whose copy is older; returns how many, or None when pages still wait from before, which
    come first."""
    try:
        age_s = pause(older_than) if older_than is not None else Seconds(0.0)
    except UnitError as problem:
        raise UnitError(f"--older-than: {problem}") from None
    if isinstance(run, str):
        from headway.app.collecting import begin_again as begin_on_server  # which needs another package
        from headway.store.postgres.address import Address

        return begin_on_server(Address.parse(run), now, age_s)
    return begin_round(run, now, age_s)
