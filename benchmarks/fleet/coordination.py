"""How many pages a second one core of PostgreSQL coordinates: collectors commit, without fetching.

Each of some processes holds sites of its own and commits batches of pages with 22 links, of which 75% are
known: leases, fences, seen set, queue, results and sums, as a collector does. The server's CPU time is read
from the system, since the committing processes need a core as well.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg
from tests.support.postgres import TemporaryPostgres

from headway.cluster.coordinator import CommitBatch, Report
from headway.cluster.postgres import PostgresCoordinator
from headway.model.command import PageState, SaveFound, SaveSettled, SaveSite
from headway.model.page import Capture, Kind, Outcome, Page
from headway.store.postgres.connection import Address
from headway.store.postgres.store import PostgresStore

_LINKS, _NEW = 22, 5.5
_BATCH = 100
_LOOKED_UP = 10
"""Whether others have a content is asked for so many pages at once, by who has hundreds a second."""
_SITES_EACH = 50
_TABLES = ("seen", "waiting", "page")


def measure(writers: int = 4, seconds: float = 10.0) -> dict[str, float]:
    with TemporaryPostgres(fsync="on", synchronous_commit="off", shared_buffers="512MB") as server:
        address = server.address("coordination")
        store = PostgresStore(address)
        store.create(time.time(), {})
        queue: multiprocessing.Queue[tuple[int, float, float]] = multiprocessing.Queue()
        workers = [
            multiprocessing.Process(target=_write, args=(address, number, seconds, queue))
            for number in range(writers)
        ]
        cpu_before = _cpu_s(server.pid)
        began = time.monotonic()
        for worker in workers:
            worker.start()
        found = [queue.get() for _ in workers]
        whole_s = time.monotonic() - began
        cpu_s = _cpu_s(server.pid) - cpu_before
        for worker in workers:
            worker.join()
        sizes = {name: store.asked(lambda run, name=name: _bytes_a_row(run, name)) for name in _TABLES}
        store.close()
    pages = sum(count for count, _, _ in found)
    return {
        "writers": writers,
        "pages_per_s": pages / whole_s,
        "pages_per_core_s": pages / cpu_s,
        "latency_ms": 1000 * sum(spent for _, spent, _ in found) / pages,
        "beat_ms": 1000 * sum(beat_s for _, _, beat_s in found) / writers,
        **{f"{name}_bytes": size for name, size in sizes.items()},
    }


def _bytes_a_row(run: psycopg.Connection[Any], table: str) -> float:
    """With its indexes; what vacuuming would give back included."""
    row = run.execute(
        f"SELECT pg_total_relation_size('{table}')::float / count(*) FROM {table}".encode()
    ).fetchone()
    return float(row[0]) if row is not None else 0.0


def _write(
    address: str, number: int, seconds: float, queue: multiprocessing.Queue[tuple[int, float, float]]
) -> None:
    coordinator = PostgresCoordinator(Address.parse(address), name=f"w{number}", label="", place=f"w{number}")
    coordinator.join()
    sites = [f"http://site{number}-{each}.example" for each in range(_SITES_EACH)]
    known: dict[str, list[Page]] = {site: [_page(site, 0)] for site in sites}
    todo: dict[str, int] = dict.fromkeys(sites, 0)
    coordinator.commit(1, CommitBatch([SaveFound(tuple(pages[0] for pages in known.values()))]))
    end, parcels, pages, spent, turn = time.monotonic() + seconds, 1, 0, 0.0, 0
    beats, beat_s = 0, 0.0
    while time.monotonic() < end:
        batch: list[object] = []
        for _ in range(_BATCH):
            site = sites[turn % _SITES_EACH]
            turn += 1
            mine = known[site]
            page = mine[todo[site]]
            todo[site] += 1
            fresh = [_page(site, len(mine) + step) for step in range(5 + turn % 2)]
            links = (*mine[: _LINKS - len(fresh)], *fresh)
            mine += fresh
            outcome = Outcome(Kind.FETCHED, 200, 12_000, 0.1, "text/html", 11_000, f"sha1:{page.key:x}")
            capture = Capture("archive/a.warc.gz", turn * 4000, 4000)
            now = time.time()
            batch += [
                SaveSettled(page, outcome, PageState.DONE, 0, now, None, capture, links),
                SaveFound(tuple(fresh)),
                SaveSite(site, now + 15, 0),
            ]
        parcels += 1
        before = time.monotonic()
        digests = [each.outcome.digest for each in batch if isinstance(each, SaveSettled)]
        for begin in range(0, _BATCH, _LOOKED_UP):
            coordinator.find_originals(digests[begin : begin + _LOOKED_UP])
        coordinator.commit(parcels, CommitBatch(batch, {"archive/a.warc.gz": turn * 4000}))
        if parcels % 10 == 0:
            asked_at = time.monotonic()
            coordinator.beat(Report())
            beats, beat_s = beats + 1, beat_s + time.monotonic() - asked_at
        spent += time.monotonic() - before
        pages += _BATCH
    coordinator.close()
    queue.put((pages, spent, beat_s / max(1, beats)))


def _page(site: str, number: int) -> Page:
    return Page(f"{site}/a/path/of/usual/length/{number}.html", site, hash((site, number)), number % 7)


def _cpu_s(postmaster: int) -> float:
    """Of the server and its processes, those that have ended included."""
    children = subprocess.run(["pgrep", "-P", str(postmaster)], capture_output=True, text=True, check=False)
    ticks = 0
    for pid in (postmaster, *map(int, children.stdout.split())):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        ticks += sum(map(int, fields[11:15] if pid == postmaster else fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")
