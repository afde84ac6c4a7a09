"""A fleet of two collectors on a hostile web: each poison page settles, and no collector loses its lease."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psycopg
from tests.support.hostile import HostileWeb

from headway.cluster.collecting import begin
from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.store.postgres.connection import Address
from headway.view.summary import summarise

POISON = ("open-tags", "empty-members", "two-byte-chunks", "bomb")
GOOD_PAGES = 30
# Nested quantifiers: on thousands of digits without an x it would take longer than the universe has been.
REGEX = r"^(\d+)+x$"


def test_poison_pages_settle_and_no_lease_is_lost(postgres_store: str, tmp_path: Path) -> None:
    with HostileWeb(len(POISON) + 1) as web:
        rule = {"fields": {"endless": {"xpath": "//h1", "regex": REGEX}}}
        urls = [web.url(number + 1, name) for number, name in enumerate(POISON)]
        sites = [{"url": url} for url in urls]
        sites.append({"url": web.url(len(POISON) + 1, "number"), "extract": [rule]})  # type: ignore[dict-item]
        sites.append({"url": web.url(0), "max_pages": GOOD_PAGES})  # type: ignore[dict-item]
        crawl = {"allow_private": True, "interval": "10 ms", "limits": {"extraction": "1 s"}}
        source = Source("test")
        job = build_job(convert({"crawl": crawl, "site": sites}, source), source)
        begin(job, Address.parse(postgres_store), time.time())
        headway = [sys.executable, "-m", "headway", "collect", "--store", postgres_store, "-q"]
        collectors = [
            subprocess.Popen([*headway, "--name", name, "-o", str(tmp_path / name)]) for name in ("a", "b")
        ]
        try:
            assert [collector.wait(90) for collector in collectors] == [0, 0]
        finally:
            for collector in collectors:
                collector.kill()
                collector.wait()
        asked = {url: web.asked(url) for url in [*urls, web.url(len(POISON) + 1, "number")]}
    assert set(asked.values()) == {1}, asked
    address = Address.parse(postgres_store)
    with psycopg.connect(postgres_store.partition("#")[0]) as connection:
        joined = connection.execute(f"SELECT name FROM {address.schema}.collector").fetchall()
    # A collector whose lease has run out joins again, with another row.
    assert Counter(name for (name,) in joined) == {"a": 1, "b": 1}
    assert summarise(postgres_store).done == len(POISON) + GOOD_PAGES  # all but the bomb
    log = "".join((tmp_path / name / "crawl.log").read_text() for name in ("a", "b"))
    assert "done fetched quarantined, without items: extraction took longer than 1 s, twice" in log
