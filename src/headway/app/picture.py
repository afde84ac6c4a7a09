"""The picture of a run, from what its folder holds."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from headway.report.run_figure import LinkSecond, SiteBar, draw_run
from headway.store.reader import open_reader

_SHORTEST_SAMPLE_S = 0.5


def draw_picture(folder: Path | str, path: Path, names: Mapping[str, str] | None = None) -> None:
    """`names`: what sites are called in it."""
    with open_reader(folder) as reader:
        began = reader.started_at
        link = [
            LinkSecond(
                after.at - began,
                (after.wire_bytes - before.wire_bytes) / (after.at - before.at),
                after.capacity_bytes_per_s,
            )
            for before, after in pairwise(reader.samples())
            if after.wire_bytes >= before.wire_bytes and after.at - before.at >= _SHORTEST_SAMPLE_S
        ]
        rows = [row for row in reader.sites() if row.started_at is not None]
    last_s = max([second.at_s for second in link], default=0.0)
    sites = []
    for row in rows:
        assert row.started_at is not None
        end_s = row.ended_at - began if row.ended_at is not None and not row.waiting else last_s
        deadline_s = None if row.deadline_at is None else row.deadline_at - began
        is_late = deadline_s is not None and end_s > deadline_s
        name = (names or {}).get(row.site, row.site)
        sites.append(SiteBar(name, max(0.0, row.started_at - began), end_s, deadline_s, is_late))
    draw_run(link, sites, path)
