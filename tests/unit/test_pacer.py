"""The bound in real time, over real sockets: it holds whatever the servers do, and nobody is left waiting."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from types import SimpleNamespace

import pytest
from tests.support.clock import ManualClock
from tests.support.rawserver import RawServer, page, then_silence

from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions, Timeouts
from headway.model.page import Kind
from headway.pacing.pacer import Pacer
from headway.pacing.wire import (
    SMALLEST_BUFFER_BYTES,
    UNSCALED_BUFFER_BYTES,
    held_unread_bytes,
    new_socket,
    set_buffer,
)
from headway.ports import Request

PATIENT = Timeouts(connect_s=20.0, first_byte_s=20.0, idle_s=20.0, total_s=60.0)


@pytest.fixture
async def make():
    made = []

    def build(capacity, timeouts=PATIENT, clock=None, *, charge_uploads=False, **options):
        fetcher = HttpFetcher(
            clock or ManualClock(),
            ClientOptions(user_agent="test/1", timeouts=timeouts, allow_private=True, **options),
            capacity_bytes_per_s=capacity,
            charge_uploads=charge_uploads,
        )
        made.append(fetcher)
        return fetcher

    yield build
    for fetcher in made:
        await fetcher.aclose()


class Flood:
    """Servers that send as fast as TCP lets them; what the other side's kernel has taken in is counted."""

    def __init__(self, number, segment_bytes=None):
        self.sockets = []
        self.segment_bytes = segment_bytes
        self.servers = [RawServer({"/": self.pour}, host=f"127.0.3.{n}") for n in range(1, number + 1)]

    async def pour(self, reader, writer):
        self.sockets.append(writer.transport.get_extra_info("socket"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 65536)
            await writer.drain()

    def taken_in(self):
        return sum(self.taken_in_by_each())

    def taken_in_by_each(self):
        """tcpi_bytes_acked: payload that has arrived, read or not."""
        infos = [
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
            for sock in self.sockets
            if sock.fileno() >= 0
        ]
        return [struct.unpack_from("@Q", info, 120)[0] for info in infos]

    async def __aenter__(self):
        for server in self.servers:
            await server.__aenter__()
            if self.segment_bytes:
                for listening in server._server.sockets:
                    listening._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, self.segment_bytes)
        return self

    async def __aexit__(self, *failure):
        for server in self.servers:
            await server.__aexit__(*failure)


async def sample(flood, seconds, every_s=0.05):
    loop = asyncio.get_running_loop()
    samples = [(loop.time(), flood.taken_in())]
    while samples[-1][0] < samples[0][0] + seconds:
        await asyncio.sleep(every_s)
        samples.append((loop.time(), flood.taken_in()))
    return samples


def highest_rate(samples, over_s=1.0):
    """Bytes a second in the busiest stretch of at least that length."""
    rates = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in itertools.combinations(samples, 2)
        if later[0] - earlier[0] >= over_s
    ]
    return max(rates)


def arrived(samples):
    """Bytes a second over all of the samples."""
    (first_at, first), (last_at, last) = samples[0], samples[-1]
    return (last - first) / (last_at - first_at)


async def test_the_kernel_takes_in_no_more_than_the_bound(make):
    """This fails when pacing is taken out: loopback would bring a thousand times as much."""
    capacity = 300_000.0
    async with Flood(6) as flood:
        fetcher = make(capacity)
        fetching = [asyncio.ensure_future(fetcher.fetch(server.request("/"))) for server in flood.servers]
        samples = await sample(flood, 3.0)
        await fetcher.aclose()
        responses = await asyncio.gather(*fetching)
    assert {response.kind for response in responses} == {Kind.CANCELLED}
    assert highest_rate(samples) <= 1.1 * capacity
    assert samples[-1][1] >= 0.4 * capacity * (samples[-1][0] - samples[0][0])


async def test_a_lower_bound_counts_at_once_even_for_open_connections(make):
    async with Flood(3) as flood:
        fetcher = make(3_000_000.0)
        fetching = [asyncio.ensure_future(fetcher.fetch(server.request("/"))) for server in flood.servers]
        await sample(flood, 0.5)
        fetcher.set_capacity(200_000.0)
        await sample(flood, 0.5)
        samples = await sample(flood, 1.5)
        await fetcher.aclose()
        await asyncio.gather(*fetching)
    assert highest_rate(samples) <= 1.15 * 200_000
    assert arrived(samples) >= 0.4 * 200_000, "it goes on, more slowly"


async def test_a_bound_put_on_an_unbounded_transfer_takes_hold(make):
    # Packets as on Ethernet: those of loopback do not fit into the window that a buffer made small leaves.
    async with Flood(2, segment_bytes=1448) as flood:
        fetcher = make(float("inf"))
        fetching = [asyncio.ensure_future(fetcher.fetch(server.request("/"))) for server in flood.servers]
        while flood.taken_in() < 1_000_000:
            await asyncio.sleep(0)
        fetcher.set_capacity(500_000.0)
        await sample(flood, 0.5)
        # What the kernel holds was not granted: until it is read, nothing more may come.
        held = flood.taken_in()
        while flood.taken_in() < held + 200_000:
            await asyncio.sleep(0.02)
        samples = await sample(flood, 1.5)
        await fetcher.aclose()
        await asyncio.gather(*fetching)
    assert highest_rate(samples) <= 1.15 * 500_000
    assert arrived(samples) >= 0.4 * 500_000, "it goes on, more slowly"


async def test_a_trickle_does_not_keep_the_others_from_their_bytes(make):
    """A site that sends a byte now and then holds little of the link, and nobody waits for it."""

    async def trickle(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0.02)

    capacity = 300_000.0
    async with RawServer({"/": trickle}) as slow, Flood(2) as flood:
        fetcher = make(capacity)
        asked = [slow.request("/"), *(server.request("/") for server in flood.servers)]
        fetching = [asyncio.ensure_future(fetcher.fetch(request)) for request in asked]
        await sample(flood, 0.7)
        samples = await sample(flood, 2.0)
        await fetcher.aclose()
        await asyncio.gather(*fetching)
    assert highest_rate(samples) <= 1.1 * capacity
    assert samples[-1][1] - samples[0][1] >= 0.75 * capacity * (samples[-1][0] - samples[0][0])


async def test_at_a_kilobyte_a_second_there_is_no_burst_and_everybody_gets_some(make):
    async with Flood(2) as flood:
        fetcher = make(1_000.0)
        fetching = [asyncio.ensure_future(fetcher.fetch(server.request("/"))) for server in flood.servers]
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while len(flood.sockets) < 2 or min(flood.taken_in_by_each()) == 0:
            assert loop.time() < begun + 20, "one of them starves"
            await asyncio.sleep(0.02)
        took_s = loop.time() - begun
        taken_in = flood.taken_in()
        await fetcher.aclose()
        await asyncio.gather(*fetching)
    windows = 2 * held_unread_bytes(SMALLEST_BUFFER_BYTES)
    assert taken_in <= 1_000.0 * took_s + windows


async def test_a_wall_clock_that_jumps_changes_nothing(make):
    capacity = 300_000.0
    wall = SimpleNamespace(at=1e9)
    wall.now = lambda: wall.at
    async with Flood(3) as flood:
        fetcher = make(capacity, clock=wall)
        fetching = [asyncio.ensure_future(fetcher.fetch(server.request("/"))) for server in flood.servers]
        samples = await sample(flood, 0.6)
        for jump_s in (86_400.0, -2 * 86_400.0):
            wall.at += jump_s
            samples += await sample(flood, 0.7)
        await fetcher.aclose()
        await asyncio.gather(*fetching)
    assert highest_rate(samples) <= 1.1 * capacity
    assert samples[-1][1] >= 0.6 * capacity * (samples[-1][0] - samples[0][0])


async def test_there_is_no_burst_after_the_machine_has_slept(make, monkeypatch):
    """As after suspend and resume: the loop's clock has moved on by an hour, in which nothing was granted."""
    capacity = 300_000.0
    endless = Timeouts(connect_s=1e6, first_byte_s=1e6, idle_s=1e6, total_s=1e6, keep_idle_s=1e6)
    loop = asyncio.get_running_loop()
    awake, slept_s = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: awake() + slept_s[0])
    async with Flood(3) as flood:
        fetcher = make(capacity, endless)
        fetching = [asyncio.ensure_future(fetcher.fetch(server.request("/"))) for server in flood.servers]
        samples = [(awake(), flood.taken_in())]
        for _ in range(6):
            until = awake() + 0.5
            while awake() < until:
                await asyncio.sleep(0.05)
                samples.append((awake(), flood.taken_in()))
            slept_s[0] += 3600.0
        assert {response.done() for response in fetching} == {False}
        await fetcher.aclose()
        await asyncio.gather(*fetching)
    assert highest_rate(samples) <= 1.1 * capacity
    assert samples[-1][1] >= 0.5 * capacity * (samples[-1][0] - samples[0][0])


async def test_a_tiny_bound_only_takes_time(make):
    async with RawServer({"/": page(b"x" * 100)}) as one, RawServer({"/": page(b"y" * 100)}) as two:
        fetcher = make(2_000.0)
        responses = await asyncio.gather(fetcher.fetch(one.request("/")), fetcher.fetch(two.request("/")))
    assert [response.body for response in responses] == [b"x" * 100, b"y" * 100]


async def test_a_bound_far_above_the_link_changes_nothing(make):
    async with RawServer({"/": page(b"x" * 2_000_000)}) as server:
        response = await make(1e12).fetch(server.request("/"))
    assert (response.kind, len(response.body)) == (Kind.FETCHED, 2_000_000)


async def test_a_stalled_site_does_not_keep_the_others_from_their_bytes(make):
    stalled = then_silence(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhello")
    good = {"/": page(b"x" * 20_000)}
    async with RawServer({"/": stalled}) as bad, RawServer(good, host="127.0.3.1") as server:
        fetcher = make(400_000.0)
        stuck = asyncio.ensure_future(fetcher.fetch(bad.request("/")))
        while not bad.requests:
            await asyncio.sleep(0)
        for _ in range(10):
            assert (await fetcher.fetch(server.request("/"))).kind is Kind.FETCHED
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)


async def test_our_own_pauses_are_not_the_servers_idleness(make):
    """At this bound the page takes many times as long as any time-out, all of it our doing."""
    hasty = Timeouts(connect_s=5.0, first_byte_s=0.3, idle_s=0.3, total_s=1.0)
    async with RawServer({"/": page(b"x" * 60_000)}) as server:
        response = await make(30_000.0, hasty).fetch(server.request("/"))
    assert (response.kind, len(response.body)) == (Kind.FETCHED, 60_000)
    assert response.duration_s > hasty.total_s


async def test_shares_follow_the_claims(make):
    async with Flood(2) as flood:
        light, heavy = flood.servers
        fetcher = make(400_000.0)
        fetcher.set_rates({light.site: 40_000.0, heavy.site: 360_000.0})
        fetching = [asyncio.ensure_future(fetcher.fetch(server.request("/"))) for server in flood.servers]
        await sample(flood, 2.0)
        connections = fetcher._connections.open
        read = {connection.origin.host: connection._meter._read for connection in connections}
        await fetcher.aclose()
        await asyncio.gather(*fetching)
    assert read[heavy._host] >= 3 * read[light._host] > 0


async def test_closing_ends_those_who_wait_for_a_grant(make):
    async with RawServer({"/": page(b"x" * 100_000)}) as one, RawServer({"/": page(b"x")}) as two:
        fetcher = make(1_000.0)
        fetching = [asyncio.ensure_future(fetcher.fetch(server.request("/"))) for server in (one, two)]
        while not one.requests:
            await asyncio.sleep(0)
        await fetcher.aclose()
        assert {response.kind for response in await asyncio.gather(*fetching)} == {Kind.CANCELLED}


async def test_cancelling_one_who_waits_lets_the_next_go(make):
    async with RawServer({"/": page(b"x" * 100_000)}) as one, RawServer({"/": page(b"x")}) as two:
        fetcher = make(5_000.0)
        first = asyncio.ensure_future(fetcher.fetch(one.request("/")))
        while not one.requests:
            await asyncio.sleep(0)
        second = asyncio.ensure_future(fetcher.fetch(two.request("/")))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).kind is Kind.FETCHED
        assert first.cancelled()


async def test_a_link_that_is_shut_opens_again(make):
    async with RawServer({"/": page(b"x")}) as server:
        fetcher = make(0.0)
        fetching = asyncio.ensure_future(fetcher.fetch(server.request("/")))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not fetching.done()
        fetcher.set_capacity(1e6)
        assert (await fetching).kind is Kind.FETCHED


async def test_what_is_counted_is_what_crossed(make):
    async with RawServer({"/": page(b"x" * 30_000)}) as server:
        fetcher = make(1e6)
        responses = [await fetcher.fetch(server.request("/")) for _ in range(5)]
        assert fetcher.bytes_received() == sum(response.wire_bytes for response in responses)
    for response in responses:
        assert 30_000 < response.wire_bytes < 1.1 * 30_000 + 500


async def test_uploads_are_counted_and_charged_where_asked(make):
    async with RawServer({"/": page(b"x")}) as server:
        both = [make(1e6, charge_uploads=charge) for charge in (False, True)]
        arrived_bytes = []
        for fetcher in both:
            await fetcher.fetch(server.request("/"))
            assert fetcher.bytes_sent() > 200
            arrived_bytes.append(fetcher._pacer.arrived_bytes)
    sent_bytes = both[1].bytes_sent()
    assert arrived_bytes[1] - arrived_bytes[0] == pytest.approx(sent_bytes, abs=200)


async def test_a_link_that_counts_both_ways_is_busy_with_what_is_sent():
    for charge_uploads in (False, True):
        pacer = Pacer(100_000.0, charge_uploads=charge_uploads)
        pacer.note_sent("a", 1_500)
        is_granted_at_once = pacer.ask("a", 1_000, lambda: None) is None
        assert is_granted_at_once is not charge_uploads
        pacer.close()


async def test_grants_are_called_in_the_order_of_their_turn():
    pacer = Pacer(100_000.0)
    called = []
    done = asyncio.Event()
    assert pacer.ask("a", 2_000, lambda: called.append("first")) is None
    for name in ("second", "third"):
        assert pacer.ask("a", 1_000, lambda name=name: called.append(name)) is not None
    assert pacer.ask("a", 1_000, done.set) is not None
    await done.wait()
    assert called == ["second", "third"]
    pacer.close()


async def test_a_withdrawn_ask_is_never_called():
    pacer = Pacer(100_000.0)
    called = []
    done = asyncio.Event()
    pacer.ask("a", 2_000, lambda: None)
    wish = pacer.ask("a", 1_000, lambda: called.append("withdrawn"))
    pacer.ask("a", 1_000, done.set)
    pacer.withdraw(wish)
    await done.wait()
    assert called == []
    pacer.close()


async def test_the_share_of_a_site_shapes_its_buffer():
    pacer = Pacer(1e6)
    pacer.set_rates({"near": 5e5, "far": 5e5})
    pacer.readings("near").round_trip_s = 0.001
    pacer.readings("far").round_trip_s = 0.15
    assert pacer.buffer_bytes("far") > 5 * pacer.buffer_bytes("near")
    before = pacer.buffer_bytes("far")
    pacer.set_rates({"near": 9e5, "far": 1e5})
    assert pacer.buffer_bytes("far") < before
    pacer.close()


async def test_an_idle_link_lends_a_small_share_more_than_a_packet():
    """Through a window of a packet a page waits for a delayed acknowledgement after each, so that the rate it
    had shows nothing of what the link could carry."""
    pacer = Pacer(600_000.0)
    pacer.set_rates({"whole": 600_000.0, "small": 2_000.0})
    scheduler = pacer._get_scheduler()
    for site in ("whole", "small", "a", "b", "c"):
        scheduler.enter(site)
    scheduler.observe_active(1.0)
    pacer.readings("small").rate_bytes_per_s, pacer.readings("small").prompt = 7_000.0, 1.0
    assert pacer.buffer_bytes("small") == SMALLEST_BUFFER_BYTES
    pacer._contention = 0.0  # nobody has waited for a while
    assert pacer.buffer_bytes("small") >= 2 * SMALLEST_BUFFER_BYTES
    pacer.close()


async def test_requests_over_tls_are_held_to_the_bound_too(make, tmp_path):
    import ssl

    import trustme

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    taken = []

    async def pour(reader, writer):
        sock = writer.transport.get_extra_info("socket")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            taken.append(sock)
            writer.write(b"x" * 16384)
            await writer.drain()

    async with RawServer({"/": pour}, tls=context) as server:
        flood = Flood(0)
        flood.sockets = taken
        fetcher = make(200_000.0, verify_tls=False)
        fetching = asyncio.ensure_future(fetcher.fetch(Request(server.site + "/", server.site)))
        while not taken:
            await asyncio.sleep(0)
        flood.sockets = taken[:1]
        samples = await sample(flood, 2.0)
        await fetcher.aclose()
        assert (await fetching).kind is Kind.CANCELLED
    assert highest_rate(samples) <= 1.15 * 200_000
    assert arrived(samples) >= 0.4 * 200_000


@pytest.mark.parametrize("buffer_bytes", [2304, 3072, 4096, 8192, 20480, 65_000, 100_000, 300_000])
async def test_the_kernel_holds_no_more_unread_than_expected(buffer_bytes):
    """Grants cover what the kernel takes in by itself; if it took in more, the bound would not hold."""
    loop = asyncio.get_running_loop()
    async with Flood(1) as flood:
        (server,) = flood.servers
        with new_socket(socket.AF_INET, buffer_bytes) as sock:
            await loop.sock_connect(sock, (server._host, int(server.site.rpartition(":")[2])))
            if buffer_bytes >= UNSCALED_BUFFER_BYTES:
                set_buffer(sock, buffer_bytes)
            await loop.sock_sendall(sock, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            before = -1
            while (taken_in := flood.taken_in()) > before or not taken_in:
                before = taken_in
                await asyncio.sleep(0.05)
    # Loopback packs its packets a little tighter than Ethernet, where the figures come from.
    assert 0.5 * buffer_bytes < taken_in <= 1.1 * held_unread_bytes(buffer_bytes)


async def test_a_large_buffer_does_not_grow_by_itself(make):
    """One that is not set is the kernel's, which makes megabytes of it: a burst that nobody granted."""
    async with Flood(1) as flood:
        fetcher = make(40_000_000.0)
        fetching = asyncio.ensure_future(fetcher.fetch(flood.servers[0].request("/")))
        await sample(flood, 0.3)
        (connection,) = fetcher._connections.open
        sock, meter = connection._transport.get_extra_info("socket"), connection._meter
        assert meter._scaled
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * meter._buffer_bytes
        await fetcher.aclose()
        await fetching


async def test_after_a_lower_bound_the_next_request_has_a_smaller_window(make):
    async with RawServer({"/": page(b"x" * 30_000)}) as server:
        fetcher = make(20_000_000.0)
        for _ in range(3):
            await fetcher.fetch(server.request("/"))
        (wide,) = fetcher._connections.open
        fetcher.set_capacity(100_000.0)
        await fetcher.fetch(server.request("/"))
        await wide.closed
        (narrow,) = fetcher._connections.open
        assert narrow._meter._window_bytes < 0.6 * wide._meter._window_bytes
        assert server.connections == 2


async def test_what_is_sent_has_a_bound_of_its_own():
    pacer = Pacer(up_bytes_per_s=1000.0)
    assert pacer.bounded, "a download without a bound would not wait"
    pacer.readings("a")
    granted = []
    assert pacer.ask("a", 1000.0, lambda: granted.append(1)) is None, "nothing was sent yet"
    pacer.note_sent("a", 500)
    request = pacer.ask("a", 1000.0, lambda: granted.append(1))
    assert request is not None
    now = asyncio.get_running_loop().time()
    assert 0.3 < pacer._get_scheduler().next_at(now) - now < 0.55
    assert not pacer.try_at_once(now, "a", pacer.readings("a"), 1000.0)
    pacer.close()
