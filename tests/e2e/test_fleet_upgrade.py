"""A crawl whose tables an older headway made is brought up by `headway crawl`, and goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.fleetweb import FleetWeb

from headway.errors import StoreError
from headway.model.page import Page
from headway.pages.url import page_of
from headway.store.postgres.connection import Address
from headway.store.postgres.reader import PostgresReader
from headway.store.postgres.store import PostgresStore

HEADWAY = Path(sys.executable).with_name("headway")
OLD_TABLES = Path(__file__).with_name("fleet_tables_v1.sql")
OPTIONS = ("--allow-private", "--interval", "0.02s", "--max-depth", "0", "-q")
LAYOUT = """
    SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default IS NULL
    FROM information_schema.columns WHERE table_schema = %s ORDER BY table_name, ordinal_position"""
INDEXES = "SELECT tablename, indexname FROM pg_indexes WHERE schemaname = %s ORDER BY 1, 2"


def layout(address):
    with address.connect() as connection:
        columns = connection.execute(LAYOUT, (address.schema,)).fetchall()
        # `crawl` has a column of the fleet's that is older than one of the store's; nobody goes by its place.
        columns = sorted(row[:2] + row[3:] if row[0] == "crawl" else row for row in columns)
        return columns, connection.execute(INDEXES, (address.schema,)).fetchall()


@pytest.fixture
def old(postgres_store):
    """An empty crawl as an older headway left it."""
    address = Address.parse(postgres_store)
    with address.connect() as connection:
        connection.execute(f"CREATE SCHEMA {address.schema}")
        connection.execute(OLD_TABLES.read_bytes())
        connection.execute("INSERT INTO version (version, made_by) VALUES (1, '0.0.9')")
    return address


def test_old_tables_become_what_new_ones_are(old, postgres_server):
    PostgresStore(old).close()
    new = Address.parse(postgres_server.address("quite_new"))
    PostgresStore(new).close()
    assert layout(old) == layout(new)


def test_a_collector_does_not_bring_tables_up_and_says_who_does(old):
    with pytest.raises(StoreError, match=r"version 1, .* open it once with this version's `headway crawl"):
        PostgresStore(old, make=False)


def test_what_waited_in_old_tables_is_fetched(old, tmp_path):
    with FleetWeb(sites=1, pages=6) as web:
        page: Page = page_of(f"{web.sites[0]}/5")
        with old.connect() as connection:
            connection.execute("INSERT INTO crawl VALUES (1, 1000.0, '{}')")
            connection.execute("INSERT INTO site (site) VALUES (%s)", (web.sites[0],))
            connection.execute("INSERT INTO seen VALUES (1, %s, 1, NULL)", (page.key,))
            connection.execute(
                "INSERT INTO waiting (site_id, place, key, path, depth) VALUES (1, 1, %s, '/5', 1)",
                (page.key,),
            )
            connection.execute("INSERT INTO holding (site_id) VALUES (1)")
        done = subprocess.run(
            [HEADWAY, "crawl", *web.seeds, *OPTIONS, "--store", old.whole, "-o", tmp_path / "c"],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        asked = {each.path for each in web.asked}
    assert {"/0", "/5"} <= asked
    with PostgresReader(old) as reader:
        assert reader.totals().waiting == 0
