"""The identity of a page: none is taken for another, and older crawls get keys with a secret."""

from __future__ import annotations

import os
import signal
import sqlite3
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support.hostile import HostileWeb
from xxhash import xxh3_64_intdigest

from headway.model.command import PageState, SaveFound, SaveSettled
from headway.model.page import Kind, Outcome, PageKey
from headway.pages.url import key_of, page_of
from headway.store.postgres.connection import Address
from headway.store.postgres.store import PostgresStore
from headway.store.reader import RunReader
from headway.store.rows import url_of
from headway.store.schema import KEYED_SINCE
from headway.store.sqlite import SqliteStore
from headway.view.summary import summarise

PAGES = 25

FEW_KEYS = """
import headway.pages.url as url
whole = url.key_of
url.key_of = lambda text, secret=b"": whole(text, secret) % 4
"""
"""Hardly any page has a key of its own."""


@pytest.fixture(scope="module")
def web() -> Iterator[HostileWeb]:
    with HostileWeb(1) as web:
        yield web


def crawl(web: HostileWeb, folder: Path, *options: str, until: int | None = None) -> None:
    """`until`: drained when that many pages have been fetched."""
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "headway", "crawl", web.url(0), "--allow-private", "-q"]
    command += ["--interval", "1ms" if until is None else "50ms", "--max-pages", str(PAGES)]
    command += ["-o", str(folder / "run"), *options]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE)
    try:
        log = folder / "run/crawl.log"
        for _ in range(600):
            lines = log.read_bytes().count(b"\n") if log.exists() else 0
            if until is None or lines >= until or process.poll() is not None:
                break
            time.sleep(0.05)
        if until is not None:
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == (0 if until is None else 11), said.decode()
    finally:
        process.kill()
        process.wait()


def fetched(folder: Path) -> Counter[str]:
    with RunReader(folder / "run") as reader:
        return Counter(page.url for page in reader.pages() if page.state == "done")


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["one process", "two"])
def test_pages_with_the_same_key_are_all_fetched_and_once(
    web: HostileWeb, tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FEW_KEYS)
    crawl(web, tmp_path, *options, until=8)
    assert len(fetched(tmp_path)) < PAGES
    crawl(web, tmp_path, *options)
    assert set(fetched(tmp_path).values()) == {1}
    assert len(fetched(tmp_path)) == PAGES


def keys_of(folder: Path) -> dict[str, int]:
    with RunReader(folder) as reader:
        return {page.url: page.key for page in reader.pages()}


def test_each_crawl_has_keys_of_its_own(web: HostileWeb, tmp_path: Path) -> None:
    """So that no site can make up a URL that has the key of another site's page."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        crawl(web, tmp_path / name)
    one, other = (keys_of(tmp_path / name / "run") for name in ("a", "b"))
    assert one.keys() == other.keys()
    assert not set(one.values()) & set(other.values())
    assert not set(one.values()) & {key_of(url) for url in one}


# -- crawls of earlier versions ---------------------------------------------------------------------------


def old_key(site: str, url: str) -> int:
    bits = xxh3_64_intdigest(site.encode()) >> 48
    bits = (bits - (1 << 16) if bits >= 1 << 15 else bits) << 48
    return bits | (xxh3_64_intdigest(url.encode()) & ((1 << 48) - 1))


def old_links(blob: bytes, old_of: dict[int, int]) -> bytes:
    keys = np.frombuffer(blob, dtype="<i8").tolist()
    return struct.pack(f"<{len(keys)}q", *[old_of[key] for key in keys])


def make_old(run: Path) -> None:
    """As the version before left it."""
    connection = sqlite3.connect(run / "crawl.sqlite")
    old_of = {
        key: old_key(site, url_of(path, site))
        for table in ("waiting", "page")
        for site, path, key in connection.execute(
            f"SELECT site, path, key FROM {table} JOIN site ON site.id = site_id"
        )
    }
    connection.create_function("old", 1, old_of.__getitem__)
    connection.create_function("old_links", 1, lambda blob: old_links(blob, old_of))
    for table in ("waiting", "page", "seen"):
        connection.execute(f"UPDATE {table} SET key = old(key)")
    connection.execute("UPDATE page SET links = old_links(links) WHERE links NOT NULL")
    connection.execute("ALTER TABLE crawl DROP COLUMN secret")
    connection.execute("ALTER TABLE seen DROP COLUMN check_bits")
    connection.execute(f"PRAGMA user_version = {KEYED_SINCE - 1}")
    connection.commit()
    connection.close()


def links_by_url(run: Path) -> dict[str, list[str]]:
    connection = sqlite3.connect(run / "crawl.sqlite")
    rows = connection.execute(
        "SELECT site, path, key, links FROM page JOIN site ON site.id = site_id"
    ).fetchall()
    connection.close()
    url = {key: url_of(path, site) for site, path, key, _ in rows}
    return {
        url[key]: [url[link] for link in np.frombuffer(links or b"", dtype="<i8").tolist() if link in url]
        for _, _, key, links in rows
    }


def test_a_folder_of_an_earlier_version_gets_a_secret_and_its_pages_stay_known(
    web: HostileWeb, tmp_path: Path
) -> None:
    crawl(web, tmp_path, until=8)
    links = links_by_url(tmp_path / "run")
    assert any(links.values())
    make_old(tmp_path / "run")
    with RunReader(tmp_path / "run") as reader:  # it can be read without being upgraded
        assert len(list(reader.pages())) >= 8
    store = SqliteStore(tmp_path / "run/crawl.sqlite")
    snapshot = store.load()
    assert snapshot is not None
    assert 0 not in list(snapshot.seen_checks)
    assert len(snapshot.seen) == len(links) + len(snapshot.waiting)
    assert all(record.page.key == key_of(record.page.url, store.secret) for record in snapshot.waiting)
    store.close()
    assert links_by_url(tmp_path / "run") == links
    crawl(web, tmp_path)
    assert set(fetched(tmp_path).values()) == {1}
    assert len(fetched(tmp_path)) == PAGES


def test_a_crawl_on_a_server_is_upgraded_alike(postgres_store: str) -> None:
    urls = [f"http://a{number % 3}.example/{number}" for number in range(30)]
    pages = [page for url in urls if (page := page_of(url)) is not None]
    store = PostgresStore(postgres_store)
    store.create(1.0, {})
    first = store.secret
    store.create(2.0, {})
    assert store.secret == first
    outcome = Outcome(Kind.FETCHED, 200)
    done = [SaveSettled(page, outcome, PageState.DONE, 0, 1.0, links=tuple(pages)) for page in pages[:10]]
    store.commit([SaveFound(tuple(pages)), *done], {})
    store.close()
    with Address.parse(postgres_store).connect() as connection:
        for page in pages:
            old = old_key(page.site, page.url)
            for table in ("seen", "waiting", "page"):
                connection.execute(f"UPDATE {table} SET key = %s WHERE key = %s", (old, page.key))
        blob = struct.pack("<30q", *[old_key(page.site, page.url) for page in pages])
        connection.execute("UPDATE page SET links = %s", (blob,))
        connection.execute("ALTER TABLE crawl DROP COLUMN secret")
        connection.execute("ALTER TABLE seen DROP COLUMN check_bits")
        connection.execute("DELETE FROM version")
        connection.execute("INSERT INTO version (version, made_by) VALUES (%s, '0.0.9')", (KEYED_SINCE - 1,))
    store = PostgresStore(postgres_store)
    try:
        snapshot = store.load()
        assert snapshot is not None
        new = [key_of(page.url, store.secret) for page in pages]
        assert sorted(snapshot.seen) == sorted(new)
        assert {record.page.key for record in snapshot.waiting} == set(new[10:])
        assert 0 not in list(snapshot.seen_checks)
        (links,) = store.asked(lambda run: run.execute("SELECT DISTINCT links FROM page").fetchall())
        assert np.frombuffer(links[0], dtype="<i8").tolist() == new
    finally:
        store.close()


def test_a_server_keeps_pages_with_one_key_apart(postgres_store: str) -> None:
    store = PostgresStore(postgres_store)
    store.create(1.0, {})
    urls = [f"http://a.example/{number}" for number in range(5)]
    pages = [page_of(url) for url in urls]
    for page in pages:
        assert page is not None
        same = type(page)(page.url, page.site, PageKey(7))
        for _ in range(2):
            store.commit([SaveFound((same,), is_elsewhere=True)], {})
    snapshot = store.load()
    store.close()
    assert snapshot is not None
    assert sorted(record.page.url for record in snapshot.waiting) == urls
    assert len({record.page.key for record in snapshot.waiting}) == 5
    assert summarise(postgres_store).waiting == 5
