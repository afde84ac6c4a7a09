"""What faults have cost a crawl: by what the servers wrote down, the wire, the database and the archive."""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from experiments.lab.wire import Recording

from headway.store.postgres.reader import PostgresReader
from headway.testing.fleetweb import Asked, FleetWeb

OVER = 1.05
"""Of the bound, in any second: what a pacer alone may be over, on links as small as the lab's."""
_COMMITTED_S = 1.0
"""What was fetched so long before a fault is committed. The rest is under way, and may come again."""
_SLACK_S = 0.02
"""Between the server's reading of the clock and the arrival of what it read it for."""


class Struck(NamedTuple):
    """A fault that may cost what was under way: of one collector, or of all."""

    began_at: float
    ended_at: float
    by: str | None


def judge(
    web: FleetWeb,
    store: str,
    folders: Sequence[Path],
    struck: Sequence[Struck],
    interval_s: float,
    wire: Recording,
    bound_bytes_per_s: float,
    began_at: float,
    ended_at: float,
) -> dict[str, float]:
    verdict = web.judge(interval_s, slack_s=_SLACK_S)
    with PostgresReader(store) as reader:
        done = [page for page in reader.pages() if page.state == "done"]
        waiting = reader.totals().waiting
        (rows,) = reader.ask("SELECT count(*), count(DISTINCT key) FROM page WHERE state = 'done'")
    wanted = verdict.pages + verdict.lost
    urls = {page.url for page in done}
    places = {_place(folder): folder for folder in folders if (folder / "collector.json").exists()}
    unreadable = sum(
        not _is_there(places, page.warc_file, page.warc_offset, page.url) for page in done if page.warc_file
    )
    twice = _fetched_twice(web.asked)
    excused = sum(any(_explains(fault, each) for fault in struck) for each in twice)
    _tell(web.asked, twice, struck, interval_s)
    seconds = wire.rates(began_at, ended_at) / bound_bytes_per_s
    return {
        "pages": wanted,
        "lost": wanted - len(urls) + waiting,
        "rows_doubled": rows[0] - rows[1],
        "not_in_archive": unreadable,
        "under_way": excused,
        "doubled": len(twice) - excused,
        "too_soon": verdict.too_soon,
        "shortest_pause_s": verdict.worst_pause_s,
        "over": int((seconds > OVER).sum()),
        "worst_second": float(seconds.max()),
        "tracebacks": 0,
    }


def _tell(
    asked: Sequence[Asked], twice: Sequence[Asked], struck: Sequence[Struck], interval_s: float
) -> None:
    """For whoever looks for the reason: each violation, with the faults around it."""
    for each in twice:
        if not any(_explains(fault, each) for fault in struck):
            _tell_one("doubled", each, each, struck)
    by_site: dict[str, list[Asked]] = defaultdict(list)
    for each in sorted(asked, key=lambda each: each.began_at):
        by_site[each.site].append(each)
    for requests in by_site.values():
        for before, after in pairwise(requests):
            if after.began_at - before.ended_at < interval_s - _SLACK_S:
                _tell_one("too soon", before, after, struck)


def _tell_one(what: str, before: Asked, after: Asked, struck: Sequence[Struck]) -> None:
    at = after.began_at
    near = [
        f"[{fault.began_at - at:+.2f} {fault.ended_at - at:+.2f} {fault.by or 'database'}]"
        for fault in struck
        if fault.began_at - 1 < at < fault.ended_at + 12
    ]
    print(
        f"{what}: {before.site}{before.path} {before.began_at - at:+.2f} to {before.ended_at - at:+.2f} by "
        f"{before.by} whole {before.is_whole}, then {after.path} by {after.by}; faults {' '.join(near)}",
        file=sys.stderr,
    )


def _fetched_twice(asked: Sequence[Asked]) -> list[Asked]:
    """The fetches of each page but for the last, which is the one that counts."""
    by_page: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for each in asked:
        if each.is_whole and each.path != "/robots.txt":
            by_page[each.site, each.path].append(each)
    return [
        before
        for fetches in by_page.values()
        for before, _ in pairwise(sorted(fetches, key=lambda each: each.ended_at))
    ]


def _explains(fault: Struck, fetch: Asked) -> bool:
    is_its_own = fault.by is None or fault.by == fetch.by
    # TCP tries again after as long as it was cut off: until then nothing is committed, and another fault may
    # find more under way.
    over_at = fault.ended_at + (fault.ended_at - fault.began_at) + _COMMITTED_S
    return is_its_own and fault.began_at - _COMMITTED_S < fetch.ended_at and fetch.began_at < over_at


def _place(folder: Path) -> str:
    mark = json.loads((folder / "collector.json").read_text())
    return f"{mark['name']}-{mark['token']}"


def _is_there(places: dict[str, Path], file: str | None, offset: int | None, url: str) -> bool:
    """Whether the archive has, where the row says, a record of this page."""
    place, _, name = (file or "").partition("/")
    if place not in places or offset is None:
        return False
    try:
        with (places[place] / name).open("rb") as archive:
            archive.seek(offset)
            with gzip.open(archive) as record:
                head = record.read(2000)
    except (OSError, EOFError):
        return False
    return head.startswith(b"WARC/1.1") and f"WARC-Target-URI: {url}\r\n".encode() in head
