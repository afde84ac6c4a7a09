"""What a meter foresees: which bytes a read makes arrive, by the state of the kernel's buffer."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from headway.model.page import Site
from headway.pacing.meter import Meter
from headway.pacing.pacer import Pacer
from headway.pacing.wire import SEGMENT_PAYLOAD_BYTES as SEGMENT
from headway.pacing.wire import SMALLEST_BUFFER_BYTES


class ToldSocket(socket.socket):
    """Says in TCP_INFO what the test told it."""

    received_bytes = 0
    offered_bytes = SMALLEST_BUFFER_BYTES

    def getsockopt(self, level, option, size=0):
        info = bytearray(236)
        segments = self.received_bytes // SEGMENT
        struct.pack_into("@QQIIII", info, 120, 0, self.received_bytes, 0, segments, 0, 5_000)
        struct.pack_into("@I", info, 232, self.offered_bytes)
        return bytes(info)


@pytest.fixture
def sock():
    with ToldSocket() as told:
        yield told


@pytest.fixture
async def waiting(sock):
    """A meter that has read a packet, with an empty buffer, and waits for the grant of another."""
    pacer = Pacer(100_000.0)
    meter = Meter(pacer, "site", sock, buffer_bytes=SMALLEST_BUFFER_BYTES)
    now = asyncio.get_running_loop().time()
    granted = meter.begin(now)
    assert meter.ask(now, granted, lambda: None)
    sock.received_bytes = SEGMENT
    meter.poll(now, 0.01)
    meter.add_read(SEGMENT)
    wanted = meter.lacking_bytes(now, None)
    assert not meter.ask(now, wanted, lambda: None)
    assert meter._request.expected_bytes == meter._request.cost_bytes
    yield meter, now, granted + wanted
    pacer.close()


async def test_a_read_from_a_buffer_that_filled_meanwhile_brings_nothing(waiting, sock):
    """The kernel opens its window again only when all is read, which one grant is not enough for."""
    meter, now, _ = waiting
    sock.received_bytes, sock.offered_bytes = 3 * SEGMENT, 0
    meter.poll(now + 0.1, 0.1)
    assert meter._request.expected_bytes == 0.0


async def test_a_read_that_empties_a_buffer_that_filled_meanwhile_brings_all_that_was_granted(waiting, sock):
    meter, now, granted = waiting
    sock.received_bytes, sock.offered_bytes = 2 * SEGMENT, 0
    meter.poll(now + 0.1, 0.1)
    factor = meter._request.cost_bytes / SEGMENT
    assert meter._request.expected_bytes == pytest.approx((granted - 2 * SEGMENT) * factor)
    assert meter._request.expected_bytes > meter._request.cost_bytes


async def test_while_the_window_is_open_a_read_brings_what_it_is_granted(waiting, sock):
    meter, now, _ = waiting
    sock.received_bytes, sock.offered_bytes = 2 * SEGMENT, SEGMENT
    meter.poll(now + 0.1, 0.1)
    assert meter._request.expected_bytes == meter._request.cost_bytes


async def test_a_stalled_download_is_noticed_and_its_buffer_grows() -> None:
    """A server sends a few bytes a second through a small window, although all was granted."""
    pacer = Pacer(100_000.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    with near, far:
        meter = Meter(pacer, Site("http://a.example"), near, buffer_bytes=4608)
        now = asyncio.get_running_loop().time()
        meter.begin(now)
        assert meter.ask(now, 50_000, lambda: None)
        for _ in range(40):
            now += 0.1
            far.send(b"5 bytes and some more")
            near.recv(100)
            meter.poll(now, 0.1)
        assert "0 packets out of order" in meter.note
        assert "receive buffer 4608 to 9216 bytes" in meter.note
        meter.settle(now)
    pacer.close()


@pytest.fixture
async def small(sock):
    """A transfer with the window of a small share, and what it takes to give it the whole link."""
    pacer, site = Pacer(400_000.0), Site("http://a.example")
    pacer.set_rates({site: 4_000.0})
    meter = Meter(pacer, site, sock, buffer_bytes=SMALLEST_BUFFER_BYTES)
    now = asyncio.get_running_loop().time()
    meter.begin(now)
    assert meter.ask(now, 20_000, lambda: None)
    sock.received_bytes = SEGMENT
    meter.poll(now, 0.01)
    meter.add_read(SEGMENT)
    yield meter, now, lambda: pacer.set_rates({site: 400_000.0})
    pacer.close()


async def test_a_higher_rate_widens_a_window_whose_bytes_are_granted_already(small):
    """Through the window of a packet the rest would take a round trip for each packet."""
    meter, now, raise_rate = small
    assert meter.lacking_bytes(now, 20_000 - SEGMENT) == 0
    assert meter._buffer_bytes == SMALLEST_BUFFER_BYTES
    raise_rate()
    assert meter.lacking_bytes(now, 20_000 - SEGMENT) == 0
    assert meter._buffer_bytes > 4 * SMALLEST_BUFFER_BYTES


async def test_a_rate_that_rises_at_the_end_of_a_response_widens_the_window_of_the_next(small):
    meter, now, raise_rate = small
    raise_rate()
    meter.lacking_bytes(now, None)
    meter.settle(now)
    meter.begin(now)
    assert meter._buffer_bytes > 4 * SMALLEST_BUFFER_BYTES


async def test_the_rest_of_a_response_is_read_at_once_when_it_is_granted(small):
    """A packet for each turn of the event loop would take seconds on a busy machine."""
    meter, now, _ = small
    limit = 1 << 20
    assert meter.read_limit(limit) < limit
    assert meter.lacking_bytes(now, 20_000 - SEGMENT) == 0
    assert meter.read_limit(limit) == limit
    meter.add_read(20_000 - SEGMENT)
    meter.settle(now)
    meter.begin(now)
    assert meter.read_limit(limit) < limit
