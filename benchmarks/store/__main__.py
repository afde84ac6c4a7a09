"""`make bench NAME=store`: CPU time a page of the archive and of the commit path, side by side in one run.

Options: --urls 400000,1200000 (how many known URLs the store starts with), --batches, --rounds.
The quick figure is the tenth percentile of short rounds: near what a core gives that nobody else uses.
"""

from __future__ import annotations

import argparse
import gc
import io
import random
import statistics
import time
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from isal import igzip_lib
from rich.console import Console
from rich.table import Table
from tests.support.memory_store import MemoryStore
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from headway.archive.warc import WarcArchive
from headway.model.command import Saving
from headway.model.page import Capture
from headway.ports import Response
from headway.store.sqlite import SqliteStore

from .workload import Web, html, response

BODY_BYTES = 12_000
BATCH_PAGES = 200
COLUMNS = ("CPU us/page, quick", "mean", "worst batch", "pages/s on a core")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.store", description="archive and commit path")
    parser.add_argument("--urls", default="400000,1200000")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    console = Console(width=110)
    console.print(archive_table(options.rounds))
    console.print(store_table([int(each) for each in options.urls.split(",")], options.batches))


def archive_table(rounds: int) -> Table:
    """Request and response of one page, the writers taken in turns."""
    responses = [response(number, html(random.Random(number), BODY_BYTES)) for number in range(20)]
    with TemporaryDirectory() as name:
        ways: dict[str, Callable[[Response], object]] = {
            "headway": _headway_writer(Path(name)),
            "warcio": _warcio_writer(),
            "isal alone, level 1": lambda each: igzip_lib.compress(each.payload, 1, igzip_lib.COMP_GZIP),
            "zlib alone, level 1": lambda each: zlib.compress(each.payload, 1, 31),
        }
        costs: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, write in ways.items():
                began = time.process_time()
                for each in responses:
                    write(each)
                costs[way].append((time.process_time() - began) / len(responses) * 1e6)
    return _table("archive: a 12 KB page with its request", costs)


def _headway_writer(folder: Path) -> Callable[[Response], object]:
    """With a flush every 200 pages, as a crawl has it."""
    (folder / "archive").mkdir()
    archive = WarcArchive(folder)
    captures: list[Capture] = []

    def write(each: Response) -> None:
        captures.append(archive.write(each, digest="x"))
        if len(captures) == BATCH_PAGES:
            archive.flush()
            archive.forget_notes(archive.notes_of(captures))
            captures.clear()

    return write


def _warcio_writer() -> Callable[[Response], object]:
    """The same fields; the heads are parsed beforehand, in its favour."""
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=True, warc_version="1.1")
    answered = StatusAndHeaders(
        "200 OK", [("Content-Type", "text/html"), ("Content-Length", str(BODY_BYTES))], protocol="HTTP/1.1"
    )
    asked = StatusAndHeaders("GET / HTTP/1.1", [("Host", "www.example.org")], is_http_request=True)

    def write(each: Response) -> None:
        out.seek(0)
        headers = {"WARC-IP-Address": each.peer}
        body = io.BytesIO(each.payload)
        first = writer.create_warc_record(
            each.url, "response", body, BODY_BYTES, http_headers=answered, warc_headers_dict=dict(headers)
        )
        second = writer.create_warc_record(each.url, "request", http_headers=asked, warc_headers_dict=headers)
        writer.write_request_response_pair(second, first)

    return write


def store_table(sizes: list[int], batches: int) -> Table:
    costs = {f"headway, {urls:,} URLs known": _sqlite_costs(urls, batches) for urls in sizes}
    memory = MemoryStore()
    costs[f"memory (the limit), {sizes[0]:,}"] = _costs(
        sizes[0], batches, lambda batch: memory.commit(batch, {})
    )
    return _table(f"store: 22 links a page, 5 of them new, commits of {BATCH_PAGES} pages", costs)


def _sqlite_costs(urls: int, batches: int) -> list[float]:
    with TemporaryDirectory() as folder, closing(SqliteStore(Path(folder) / "crawl.sqlite")) as store:
        return _costs(urls, batches, lambda batch: store.commit(batch, {"archive/a.warc.gz": 1}))


def _costs(urls: int, batches: int, commit: Callable[[list[Saving]], object]) -> list[float]:
    web = Web(urls)
    found: list[Saving] = list(web.find_many(urls))
    for place in range(0, len(found), BATCH_PAGES):
        commit(found[place : place + BATCH_PAGES])
    gc.collect()
    costs = []
    for _ in range(batches):
        batch: list[Saving] = [saving for _ in range(BATCH_PAGES) for saving in web.fetch()]
        began = time.process_time()
        commit(batch)
        costs.append((time.process_time() - began) / BATCH_PAGES * 1e6)
    return costs


def _table(title: str, costs: dict[str, list[float]]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("", *COLUMNS, "first = 1"):
        table.add_column(heading, justify="right" if heading else "left")
    first: float | None = None
    for name, values in costs.items():
        quick, mean = statistics.quantiles(values, n=10)[0], statistics.mean(values)
        first = first or quick
        cells = (f"{quick:.0f}", f"{mean:.0f}", f"{max(values):.0f}", f"{1e6 / quick:,.0f}")
        table.add_row(name, *cells, f"{quick / first:.2f}")
    return table


if __name__ == "__main__":
    main()
