"""Whether a good site notices that others misbehave: its time alone, and beside the chaos web, in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.soak.crawling import build, chaos_sites, crawl_until_done, write_authority
from tests.support.chaos.server import ServedChaos

from headway.store.reader import RunReader


class Turn(msgspec.Struct, frozen=True):
    """One crawl without and one with bad neighbours."""

    alone_s: float
    beside_s: float


def measure(good: Sequence[str], chaos: ServedChaos, turns: int, **options: Any) -> list[Turn]:
    """`good` are home pages; `options` go into the job's [crawl] table."""
    measured = []
    with tempfile.TemporaryDirectory(prefix="headway-soak-") as name:
        folder = Path(name)
        if chaos.authority_pem:
            options["ca_file"] = write_authority(chaos, folder)
        sites = [{"url": url} for url in good]
        origins = {url.rstrip("/") for url in good}
        for turn in range(turns):
            times = []
            for which, others in (("alone", []), ("beside", chaos_sites(chaos))):
                run = folder / f"{which}-{turn}"
                crawl_until_done(build(sites + others, **options), run, origins)
                times.append(seconds_of(run, good))
            measured.append(Turn(*times))
    return measured


def slowdown(turns: Sequence[Turn]) -> float:
    """Of the quickest of each kind: other programs on the machine only ever make a crawl slower."""
    return min(turn.beside_s for turn in turns) / min(turn.alone_s for turn in turns) - 1.0


def seconds_of(run: Path, good: Sequence[str]) -> float:
    """From the first answer of the good sites to their last."""
    origins = {url.rstrip("/") for url in good}
    with RunReader(run) as reader:
        rows = [row for row in reader.sites() if row.site in origins]
        first_at = min(row.started_at for row in rows if row.started_at is not None)
        last_at = max(page.settled_at for page in reader.pages() if page.site in origins)
    assert len(rows) == len(origins)
    return last_at - first_at
