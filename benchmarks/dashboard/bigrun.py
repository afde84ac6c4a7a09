"""A run folder as a large crawl leaves it, made without crawling: for those who have to read it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from headway.store.reader import DATABASE
from headway.store.run_folder import DECISIONS
from headway.store.sqlite import SqliteStore

LINKS_A_PAGE = 22
RUN_S = 24 * 3600.0
BOUND = 2_500_000.0
_KINDS = (
    ("missing", 404),
    ("server-error", 500),
    ("timeout-idle", 0),
    ("connect-failed", 0),
    ("refused", 403),
)
_TYPES = ("text/html", "application/pdf", "text/plain", "application/xhtml+xml", "application/postscript")
_ROWS = 50_000


def make_run(folder: Path, *, sites: int, pages: int, seed: int = 7, now: float | None = None) -> None:
    """`pages` are settled, twice as many are known. Sites differ in size as on the web, by a power law."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    started_at = (now if now is not None else time.time()) - RUN_S
    store = SqliteStore(folder / DATABASE)
    store.create(started_at, {"crawl": {"interval": "1 s", "bandwidth": "20 Mbit/s"}})  # type: ignore[arg-type]
    store.close()
    weights = 1.0 / np.arange(1, sites + 1) ** 0.7
    site_of = np.sort(random.choice(sites, size=2 * pages, p=weights / weights.sum()))
    keys = np.unique(random.integers(-(1 << 62), 1 << 62, size=2 * pages + pages // 10))[: 2 * pages]
    random.shuffle(keys)
    is_settled = np.zeros(2 * pages, dtype=np.bool_)
    is_settled[random.permutation(2 * pages)[:pages]] = True
    connection = sqlite3.connect(folder / DATABASE, isolation_level=None)
    connection.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; BEGIN;")
    _write_pages(connection, random, started_at, site_of, keys, is_settled)
    _write_sites(connection, random, started_at, sites, site_of[~is_settled])
    _write_samples(connection, random, started_at, pages)
    connection.execute("COMMIT")
    connection.close()
    _write_decisions(folder, started_at, pages)


def _write_pages(
    connection: sqlite3.Connection,
    random: np.random.Generator,
    started_at: float,
    site_of: np.ndarray,
    keys: np.ndarray,
    is_settled: np.ndarray,
) -> None:
    settled = random.permutation(np.flatnonzero(is_settled))
    at = started_at + np.sort(random.uniform(0, RUN_S, len(settled)))
    insert = """INSERT INTO page (id, site_id, key, path, depth, state, attempt, kind, status, wire_bytes,
        content_bytes, content_type, digest, settled_at, fetched_at, duration_s, detail, links)
        VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', ?)"""
    for begin in range(0, len(settled), _ROWS):
        part = settled[begin : begin + _ROWS]
        connection.executemany(insert, _page_rows(random, begin, part, site_of, keys, at))
    page_id = np.zeros(len(keys), dtype=np.int64)
    page_id[settled] = np.arange(1, len(settled) + 1)
    seen = sorted(
        (int(site) + 1, int(key), None if number else place + 1, int(number) or None)
        for place, (site, key, number) in enumerate(zip(site_of, keys, page_id, strict=True))
    )
    connection.executemany("INSERT INTO seen VALUES (?, ?, ?, ?, NULL)", seen)
    connection.executemany(
        "INSERT INTO waiting (site_id, place, key, path, depth, score, attempt, rank) "
        "VALUES (?, ?, ?, ?, 4, 0.0, 0, 4.0)",
        (
            (site, place, key, f"/articles/{key & 0xFFFFFFFF:08x}.html")
            for site, key, place, _ in seen
            if place
        ),
    )


def _page_rows(
    random: np.random.Generator,
    begin: int,
    part: np.ndarray,
    site_of: np.ndarray,
    keys: np.ndarray,
    at: np.ndarray,
) -> Iterator[tuple[object, ...]]:
    sizes = np.exp(random.normal(9.3, 0.9, len(part))).astype(int)
    depths = np.minimum(random.poisson(3.0, len(part)), 12)
    fails = random.random(len(part)) < 0.03
    # A few pages are linked to from everywhere, as front pages are.
    targets = (len(keys) * random.random((len(part), LINKS_A_PAGE)) ** 3).astype(int)
    for place, page in enumerate(part):
        kind, status = _KINDS[int(page) % len(_KINDS)] if fails[place] else ("fetched", 200)
        done_at = float(at[begin + place])
        duration_s = 0.05 + sizes[place] / 200_000
        yield (
            begin + place + 1,
            int(site_of[page]) + 1,
            int(keys[page]),
            f"/articles/{int(keys[page]) & 0xFFFFFFFF:08x}.html",
            int(depths[place]),
            "failed" if fails[place] else "done",
            kind,
            status,
            int(sizes[place]) + 400,
            0 if fails[place] else int(sizes[place]) * 3,
            _TYPES[min(int(random.exponential(0.4)), len(_TYPES) - 1)],
            f"sha256:{int(keys[page]) & 0xFFFFFFFFFFFF:064x}",
            done_at,
            done_at - duration_s,
            duration_s,
            None if fails[place] else keys[targets[place]].astype("<i8").tobytes(),
        )


def _write_sites(
    connection: sqlite3.Connection,
    random: np.random.Generator,
    started_at: float,
    sites: int,
    waiting_sites: np.ndarray,
) -> None:
    waiting = np.bincount(waiting_sites, minlength=sites)
    sums = {
        number: row
        for number, *row in connection.execute(
            "SELECT site_id, sum(state = 'done'), sum(state = 'failed'), sum(wire_bytes), "
            "sum(content_bytes), min(settled_at), max(settled_at) FROM page GROUP BY site_id"
        )
    }
    for number in range(1, sites + 1):
        done, failed, wire, content, first, last = sums.get(number, (0, 0, 0, 0, None, None))
        is_over = number % 3 == 0 and first is not None
        deadline_at = started_at + float(random.uniform(0.3, 1.4)) * RUN_S if number % 2 else None
        ends = (started_at + RUN_S * 1.02, started_at + RUN_S * 1.3)
        connection.execute(
            "INSERT INTO site (id, site, free_at, ended_at, started_at, done, failed, wire_bytes, "
            "content_bytes, looked_at, waiting, left_bytes, share_bytes_per_s, forecast_from_at, "
            "forecast_to_at) VALUES (?, ?, 0.0, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (number, f"https://www{number}.example.org", last if is_over else None, first, done, failed, wire,
             content, started_at + RUN_S, 0 if is_over else int(waiting[number - 1]),
             0.0 if is_over else 14_000.0 * waiting[number - 1], BOUND / sites, *ends),
        )  # fmt: skip
        connection.execute(
            "INSERT INTO task (site_id, position, seeds, deadline_at, weight) VALUES (?, ?, '[]', ?, 1.0)",
            (number, number, deadline_at),
        )
        course = [
            (number, started_at + part * RUN_S, int(part * wire), int(waiting[number - 1]),
             (1.2 - part) * wire, BOUND / sites, started_at + RUN_S * (0.6 + 0.4 * part),
             started_at + RUN_S * (1.4 - 0.4 * part))
            for part in np.linspace(0.02, 0.98, 40)
        ]  # fmt: skip
        connection.executemany("INSERT INTO course VALUES (?, ?, ?, ?, ?, ?, ?, ?)", course)
        for kind, _ in _KINDS:
            connection.execute(
                "INSERT INTO outcome VALUES (?, 'failed', ?, '', ?)", (number, kind, failed // 5)
            )
        connection.execute("INSERT INTO outcome VALUES (?, 'done', 'fetched', '', ?)", (number, done))


def _write_samples(
    connection: sqlite3.Connection, random: np.random.Generator, started_at: float, pages: int
) -> None:
    rates = BOUND * np.clip(random.normal(0.95, 0.05, int(RUN_S)), 0, 1.02)
    sums = np.cumsum(rates)
    connection.executemany(
        "INSERT INTO sample (at, wire_bytes, capacity_bytes_per_s, predicted_bytes_per_s, in_flight, "
        "waiting, done, failed, is_paused) VALUES (?, ?, ?, ?, 900, ?, ?, 0, 0)",
        (
            (started_at + second, int(sums[second]), BOUND, 0.97 * BOUND, pages, int(second / RUN_S * pages))
            for second in range(int(RUN_S))
        ),
    )


def _write_decisions(folder: Path, started_at: float, pages: int) -> None:
    with (folder / DECISIONS).open("w", encoding="utf-8") as file:
        file.write(
            json.dumps({"at": started_at, "decision": "set-capacity", "capacity_bytes_per_s": BOUND}) + "\n"
        )
        for number in range(pages):
            at = started_at + number / pages * RUN_S
            site = f"https://www{number % 9973}.example.org"
            url = f"{site}/articles/{number:08x}.html"
            file.write(f'{{"at":{at},"decision":"fetch","site":"{site}","url":"{url}"}}\n')
