"""What an answer spent its time on is measured by the client, and kept with its page."""

from __future__ import annotations

import asyncio
import sqlite3
import ssl

import pytest
import trustme
from tests.support.clock import ManualClock
from tests.support.rawserver import RawServer, page

from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions, Timeouts
from headway.http.resolve import Address
from headway.model.command import NOT_COUNTED, PageState, SaveSettled
from headway.model.page import Kind, Outcome, Page, Site, Timing
from headway.ports import Request
from headway.store import rows, schema
from headway.store.reader import RunReader, open_live_reader
from headway.store.sqlite import SqliteStore
from headway.units import Instant

SITE = Site("http://a.test")
WAIT_S = 0.05


def slowly(first: bytes, second: bytes):
    async def answer(reader, writer):
        await asyncio.sleep(WAIT_S)
        writer.write(first)
        await writer.drain()
        await asyncio.sleep(WAIT_S)
        writer.write(second)

    return answer


@pytest.fixture
async def make():
    made = []

    def build(capacity=float("inf"), **options):
        async def loopback(host):
            return [Address(2, "127.0.0.1")]

        timeouts = Timeouts(connect_s=5.0, first_byte_s=5.0, idle_s=5.0)
        settings = ClientOptions(user_agent="test/1", timeouts=timeouts, allow_private=True, **options)
        fetcher = HttpFetcher(ManualClock(), settings, capacity_bytes_per_s=capacity, lookup=loopback)
        made.append(fetcher)
        return fetcher

    yield build
    for fetcher in made:
        await fetcher.aclose()


async def test_the_parts_of_an_answer_add_up_to_its_duration(make):
    whole = page(b"x" * 2000)
    async with RawServer({"/": slowly(whole[:500], whole[500:])}) as server:
        response = await make().fetch(server.request("/"))
    timing = response.timing
    assert timing is not None
    assert not timing.is_kept
    assert timing.connect_s > 0
    assert timing.tls_s == timing.held_s == 0
    assert timing.first_byte_s >= 0.9 * WAIT_S
    assert timing.transfer_s >= 0.9 * WAIT_S
    parts_s = timing.connect_s + timing.first_byte_s + timing.transfer_s
    assert parts_s == pytest.approx(response.duration_s, abs=1e-6)
    assert not timing.is_limited


async def test_a_kept_connection_costs_no_handshake(make):
    async with RawServer({"/": page(b"x")}) as server:
        fetcher = make()
        first = (await fetcher.fetch(server.request("/"))).timing
        second = (await fetcher.fetch(server.request("/"))).timing
    assert first is not None
    assert second is not None
    assert (first.is_kept, second.is_kept) == (False, True)
    assert second.connect_s == 0


async def test_the_handshake_of_tls_is_measured_apart(make, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("www.example.org").configure_cert(context)
    async with RawServer({"/": page(b"x" * 3000)}, tls=context) as server:
        site = server.site_named("www.example.org")
        fetcher = make(ca_file=tmp_path / "ca.pem")
        first = (await fetcher.fetch(Request(site + "/", site))).timing
        second = (await fetcher.fetch(Request(site + "/", site))).timing
    assert first is not None
    assert second is not None
    assert first.connect_s > 0
    assert first.tls_s > 0
    assert (second.connect_s, second.tls_s, second.is_kept) == (0, 0, True)
    assert first.first_byte_s > 0


async def test_what_the_bound_held_back_says_that_the_server_may_be_faster(make):
    async with RawServer({"/": page(b"x" * 300_000), "/small": page(b"x")}) as server:
        fetcher = make(1_000_000.0)
        await fetcher.fetch(server.request("/small"))
        timing = (await fetcher.fetch(server.request("/"))).timing
    assert timing is not None
    assert timing.held_s > 0
    assert timing.is_limited


async def test_an_answer_that_never_came_has_no_timing(make):
    fetcher = make()
    response = await fetcher.fetch(Request("http://127.0.0.1:1/", Site("http://127.0.0.1:1")))
    assert response.kind is Kind.CONNECT
    assert response.timing is None


def settled(timing: Timing | None, **changes) -> SaveSettled:
    outcome = Outcome(Kind.FETCHED, 200, 5000, timing=timing)
    return SaveSettled(Page(f"{SITE}/", SITE, 1), outcome, PageState.DONE, 0, Instant(9.0), **changes)


TIMING = Timing(Instant(1.0), Instant(2.0), 0.1, 0.2, 0.3, 0.4, 0.5, is_kept=True)


def test_the_store_keeps_the_timing_of_an_answer():
    links = tuple(Page(f"{SITE}/{number}", SITE, number) for number in range(7))
    packed = rows.pack_timing(settled(TIMING, turnaround_s=0.01, found=3, links=links), TIMING)
    assert len(packed) <= 26
    read = rows.unpack_timing(packed)
    assert read is not None
    assert read[:6] == pytest.approx((0.1, 0.2, 0.3, 0.4, 0.5, 0.01), rel=1e-3)
    assert read[6:] == (7, 3, True, True)


def test_no_measured_time_is_too_long_to_be_kept():
    endless = Timing(Instant(0.0), Instant(1e9), 1e9, 1e9, 1e9, 1e9, 1e9)
    links = (Page(f"{SITE}/", SITE, 1),) * 70_000
    read = rows.unpack_timing(
        rows.pack_timing(settled(endless, turnaround_s=1e9, links=links, found=NOT_COUNTED), endless)
    )
    assert read is not None
    assert (read.links, read.found) == (0xFFFF, NOT_COUNTED)


@pytest.mark.parametrize("packed", [None, b"", b"short", b"\xff" * 21], ids=["none", "empty", "short", "nan"])
def test_bytes_that_are_no_timing_are_read_as_none(packed):
    assert rows.unpack_timing(packed) is None


def make_older(path):
    """As a version of headway before the timing of answers left it."""
    SqliteStore(path).close()
    with sqlite3.connect(path) as connection:
        for tables in schema.ADDED.values():
            for table, columns in tables.items():
                for column in columns:
                    connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("INSERT INTO crawl VALUES (1, 5.0, '{}', '')")
        connection.execute("PRAGMA user_version = 2")
    connection.close()


def test_an_older_run_folder_is_upgraded_when_its_crawl_continues(tmp_path):
    path = tmp_path / "crawl.sqlite"
    make_older(path)
    store = SqliteStore(path)
    store.load()
    store.commit([settled(TIMING)], {})
    store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
        (packed,) = connection.execute("SELECT timing FROM page").fetchone()
    connection.close()
    assert rows.unpack_timing(packed) is not None


def test_an_older_run_folder_can_be_read_as_it_is(tmp_path):
    path = tmp_path / "crawl.sqlite"
    make_older(path)
    with RunReader(path) as reader:
        assert reader.started_at == 5.0
        assert reader.sites() == []
    reader = open_live_reader(tmp_path)
    assert (list(reader.samples()), reader.sites()) == ([], [])
    reader.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()
