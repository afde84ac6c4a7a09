"""What faults have cost a crawl: by what the servers wrote down, the wire, the database and the archive."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.lab.wire import Recording
from tests.support.fleetweb import Asked, FleetWeb

from headway.store.postgres.reader import PostgresReader

OVER = 1.05
"""Of the bound, in any second: what a pacer alone may be over, on links as small as the lab's."""
_COMMITTED_S = 1.0
"""A page that has settled so long ago is committed, or will never be."""
_SLACK_S = 0.02
"""Between the arrival of a request and the kernel's count of milliseconds since."""


def judge(
    web: FleetWeb,
    store: str,
    folders: Sequence[Path],
    interval_s: float,
    wire: Recording,
    bound_bytes_per_s: float,
    span: tuple[float, float],
) -> dict[str, float]:
    """`span`: from when to when, on the monotonic clock."""
    verdict = web.judge(interval_s, slack_s=_SLACK_S)
    with PostgresReader(store) as reader:
        done = [page for page in reader.pages() if page.state == "done"]
        waiting = reader.totals().waiting
    wanted = verdict.pages + verdict.lost
    settled_at = {page.url: page.settled_at for page in done}
    places = {_place(folder): folder for folder in folders if (folder / "collector.json").exists()}
    unreadable = sum(
        not _is_there(places, page.warc_file, page.warc_offset, page.url) for page in done if page.warc_file
    )
    seconds = wire.rates(*span) / bound_bytes_per_s
    return {
        "pages": wanted,
        "lost": wanted - len(settled_at) + waiting,
        "not_in_archive": unreadable,
        "under_way": verdict.doubled,
        "doubled": len(done) - len(settled_at) + _asked_after_all(web.asked, settled_at),
        "too_soon": verdict.too_soon,
        "shortest_pause_s": verdict.worst_pause_s,
        "over": int((seconds > OVER).sum()),
        "worst_second": float(seconds.max()),
        "use": float(seconds.mean()),
        "tracebacks": 0,
    }


def _asked_after_all(asked: Sequence[Asked], settled_at: Mapping[str, float]) -> int:
    """Fetches of pages that had been settled. Those of pages that were under way, or fetched and not yet
    committed when a fault came, are not among them: nobody could know of them."""
    since_epoch_s = time.time() - time.monotonic()
    return sum(
        each.began_at + since_epoch_s > settled_at[each.site + each.path] + _COMMITTED_S
        for each in asked
        if each.site + each.path in settled_at
    )


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
