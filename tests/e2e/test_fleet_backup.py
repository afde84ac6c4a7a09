"""A dump of a crawl, restored, goes on from there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.fleetweb import FleetWeb
from tests.support.postgres import find_postgres

from headway.store.postgres.connection import Address
from headway.view.summary import summarise

HEADWAY = Path(sys.executable).with_name("headway")


def start(web, store, out):
    options = ["--allow-private", "--interval", "0.1s", "--store", store, "-o", out, "-q"]
    return subprocess.Popen([HEADWAY, "crawl", *web.seeds, *options])


def test_a_dump_taken_while_it_runs_is_a_crawl_to_go_on_with(postgres_store, tmp_path):
    programs = find_postgres()
    if not (programs / "pg_dump").exists() or not (programs / "psql").exists():
        pytest.skip("pg_dump and psql are not installed")
    address = Address.parse(postgres_store)
    with FleetWeb(sites=4, pages=15) as web:
        crawl = start(web, postgres_store, tmp_path / "c")
        while len(web.asked) < 20:
            assert crawl.poll() is None
            time.sleep(0.02)
        dump = [programs / "pg_dump", "-n", address.schema, address.url]
        copy = subprocess.run(dump, capture_output=True, check=True).stdout
        crawl.kill()
        crawl.wait()
        with address.connect() as connection:
            connection.execute(f"DROP SCHEMA {address.schema} CASCADE")
        restore = [programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", address.url]
        subprocess.run(restore, input=copy, check=True, capture_output=True, env=dict(os.environ))
        assert start(web, postgres_store, tmp_path / "c").wait(60) == 0
        assert web.judge(0.1).lost == 0
    summary = summarise(postgres_store)
    assert (summary.done, summary.waiting) == (60, 0)
    index = (tmp_path / "c" / "indexes" / "index.cdxj").read_text().splitlines()
    assert len(index) == 60
