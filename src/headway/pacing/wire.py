"""The kernel's view of a connection (TCP_INFO, receive buffer), and the measurements of each site.

Bytes on the link come from TCP_INFO on Linux; on other systems they are estimated from the payload. The
receive buffer limits how many bytes can be on their way: the kernel lets a server fill it whether or not
anybody reads.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
from typing import NamedTuple

ETHERNET_BYTES = 14
TCP_BYTES = 20 + 12  # with the timestamp option, which nearly all systems use
SEGMENT_PAYLOAD_BYTES = 1448
SEGMENT_OVERHEAD_V4 = ETHERNET_BYTES + 20 + TCP_BYTES
SEGMENT_OVERHEAD_V6 = ETHERNET_BYTES + 40 + TCP_BYTES
SMALLEST_BUFFER_BYTES = 2304
LARGEST_BUFFER_BYTES = 4 * 1024 * 1024
DEFAULT_BUFFER_BYTES = 128 * 1024
UNSCALED_BUFFER_BYTES = 80 * 1024
"""A socket connected with a smaller buffer has no window scaling: never more than 64 KB on its way."""
OVERHEAD_FACTOR = (SEGMENT_PAYLOAD_BYTES + SEGMENT_OVERHEAD_V4) / SEGMENT_PAYLOAD_BYTES

_TCP_INFO = getattr(socket, "TCP_INFO", None)
_TCP_WINDOW_CLAMP = getattr(socket, "TCP_WINDOW_CLAMP", None)
_TCP_MAXSEG = getattr(socket, "TCP_MAXSEG", None)
_LINGER_ZERO = struct.pack("ii", 1, 0)
# Offsets in the kernel's struct tcp_info.
_RTT_AT = 68  # tcpi_rtt, microseconds
# bytes_acked, bytes_received, segs_out, segs_in, notsent_bytes, min_rtt
_COUNTERS = struct.Struct("@QQIIII")
_COUNTERS_AT = 120
_U32, _U64 = struct.Struct("@I"), struct.Struct("@Q")
_WINDOW = _U32
_WINDOW_AT = 232  # tcpi_rcv_wnd, since Linux 6.2
_RECEIVER_RTT_AT = 92  # tcpi_rcv_rtt, microseconds
_RECEIVED_AT = 128  # tcpi_bytes_received
_OUT_OF_ORDER_AT = 224  # tcpi_rcv_ooopack, since Linux 5.4
_ARRIVALS_BYTES = _OUT_OF_ORDER_AT + 4
_TCP_INFO_BYTES = _WINDOW_AT + _WINDOW.size
# Measured with packets of 1,514 bytes: the SO_RCVBUF that was set, and the bytes that the kernel accepts
# unread. When that is full, all must be read before the server may send again; then all arrives at once.
_HELD_UNREAD = ((2304, 2896), (3072, 4412), (8192, 15_319))
_HELD_OF_LARGE = 1.87
# The part of the buffer that is on its way, in whole segments, while everything is read at once.
_FLOWS = 0.87
_FLOWS_IN_SMALLEST = 2190
_NEVER_MEASURED_US = 0xFFFFFFFF
_LARGEST_PACKET_BYTES = 64 * 1024


class WireTotals(NamedTuple):
    """Bytes of a connection since it was opened."""

    stream_bytes: int
    """TCP payload towards us: HTTP or TLS records."""
    received_bytes: int
    """The same with TCP, IP and Ethernet headers."""
    sent_bytes: int
    round_trip_s: float | None
    offered_bytes: int | None = None
    """The advertised window: no more can arrive before something is read. None if unknown."""


class Arrivals(NamedTuple):
    """What the kernel knows of the bytes that arrive on a connection."""

    stream_bytes: int
    round_trip_s: float
    """From a window update to the bytes that it made the server send, as smoothed by the kernel; 0 if it was
    never measured."""
    out_of_order: int
    """Segments that arrived after a gap: an earlier one was lost or late."""


class Wire:
    """A connected socket."""

    __slots__ = ("_overhead_bytes", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        v6 = sock.family == socket.AF_INET6
        self._overhead_bytes = SEGMENT_OVERHEAD_V6 if v6 else SEGMENT_OVERHEAD_V4

    def totals(self) -> WireTotals | None:
        """The kernel's counts; None if it has none, or the socket is closed."""
        if _TCP_INFO is None:
            return None
        try:
            info = self._sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _TCP_INFO_BYTES)
            counters = _COUNTERS.unpack_from(info, _COUNTERS_AT)
            offered = _WINDOW.unpack_from(info, _WINDOW_AT)[0] if len(info) >= _TCP_INFO_BYTES else None
        except (OSError, struct.error):
            return None
        acked, received, segments_out, segments_in, _, min_rtt_us = counters
        overhead = self._overhead_bytes
        round_trip_s = min_rtt_us / 1e6 if 0 < min_rtt_us < _NEVER_MEASURED_US else None
        return WireTotals(
            received,
            received + overhead * segments_in,
            acked + overhead * segments_out,
            round_trip_s,
            offered,
        )

    def arrivals(self) -> Arrivals | None:
        """None if the kernel does not say, or the socket is closed."""
        if _TCP_INFO is None:
            return None
        try:
            info = self._sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _ARRIVALS_BYTES)
            (round_trip_us,) = _U32.unpack_from(info, _RECEIVER_RTT_AT)
            (received,) = _U64.unpack_from(info, _RECEIVED_AT)
            (out_of_order,) = _U32.unpack_from(info, _OUT_OF_ORDER_AT)
        except (OSError, struct.error):
            return None
        return Arrivals(received, round_trip_us / 1e6, out_of_order)

    def peer(self) -> str:
        """The address of the other side; empty if it has gone."""
        try:
            return str(self._sock.getpeername()[0])
        except (OSError, IndexError):
            return ""

    def set_buffer(self, buffer_bytes: int) -> None:
        set_buffer(self._sock, buffer_bytes)

    def is_shut(self) -> bool:
        """Whether the advertised window is smaller than a packet, so that none can be on its way."""
        totals = self.totals()
        if totals is None or totals.offered_bytes is None:
            return False
        return totals.offered_bytes < SEGMENT_PAYLOAD_BYTES


def round_trip_s(sock: socket.socket) -> float | None:
    """The kernel's smoothed round-trip time; None if it has none, or the socket is closed."""
    if _TCP_INFO is None:
        return None
    try:
        (microseconds,) = struct.unpack_from(
            "@I", sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 104), _RTT_AT
        )
    except (OSError, struct.error):
        return None
    return microseconds / 1e6 or None


def buffer_for(flowing_bytes: float) -> int:
    """The SO_RCVBUF that lets this many bytes be on their way at any time, in whole segments."""
    if flowing_bytes <= _FLOWS_IN_SMALLEST:
        return SMALLEST_BUFFER_BYTES
    segments = math.ceil(flowing_bytes / SEGMENT_PAYLOAD_BYTES - 0.25)
    return int(min(segments * SEGMENT_PAYLOAD_BYTES / _FLOWS + 1, LARGEST_BUFFER_BYTES))


def held_unread_bytes(buffer_bytes: int) -> int:
    """How many bytes of the stream may arrive while nothing is read."""
    below_buffer, below_held = _HELD_UNREAD[0]
    if buffer_bytes <= below_buffer:
        return below_held
    for upper_buffer, upper_held in _HELD_UNREAD[1:]:
        if buffer_bytes <= upper_buffer:
            part = (buffer_bytes - below_buffer) / (upper_buffer - below_buffer)
            return int(below_held + part * (upper_held - below_held))
        below_buffer, below_held = upper_buffer, upper_held
    return int(_HELD_OF_LARGE * buffer_bytes)


def new_socket(family: socket.AddressFamily, buffer_bytes: int | None) -> socket.socket:
    """A socket to connect with. A small buffer is set before connecting: a window that was advertised cannot
    be taken back."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if buffer_bytes is not None and buffer_bytes < UNSCALED_BUFFER_BYTES:
        set_buffer(sock, buffer_bytes)
        if _TCP_MAXSEG is not None and buffer_bytes < _LARGEST_PACKET_BYTES:
            # On a link of large packets a small window would be less than a packet, and TCP would wait for
            # timers.
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, _TCP_MAXSEG, SEGMENT_PAYLOAD_BYTES + 12)
    return sock


def drop_unsent_when_closed(sock: socket.socket) -> None:
    """Let `close` discard what was not sent, and send RST instead of FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)


def set_buffer(sock: socket.socket, buffer_bytes: int) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        if _TCP_WINDOW_CLAMP is not None:
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_WINDOW_CLAMP, buffer_bytes)


def estimated_wire_bytes(stream_bytes: int) -> int:
    """Bytes on the link for a TCP stream in full segments."""
    return stream_bytes + SEGMENT_OVERHEAD_V4 * math.ceil(stream_bytes / SEGMENT_PAYLOAD_BYTES)


_UNKNOWN_PAGE_BYTES = 16 * 1024
_UNKNOWN_ROUND_TRIP_S = 0.02
_RATE_OVER_S = 1.0
"""The period of the moving averages of the rate and of the delay."""
_DELAY_OVER_S = 0.5
_MAX_DELAY_S = 0.5


class SiteReadings:
    """The measurements of a site. Its meters report them; the pacer uses them."""

    __slots__ = (
        "_bytes",
        "_flowing",
        "_outstanding",
        "_since",
        "active",
        "delay_s",
        "idle_since",
        "is_sharing",
        "overhead_factor",
        "page_bytes",
        "prompt",
        "rate_bytes_per_s",
        "round_trip_s",
        "smoothed_share",
    )

    def __init__(self) -> None:
        self.page_bytes = float(_UNKNOWN_PAGE_BYTES)
        """Bytes of the TCP stream for a response: a moving average."""
        self.round_trip_s = _UNKNOWN_ROUND_TRIP_S
        self.delay_s = _UNKNOWN_ROUND_TRIP_S
        """From a grant to the arrival of its bytes: a round trip, and the time of the server and its link."""
        self._flowing = self._outstanding = 0.0
        self.overhead_factor = OVERHEAD_FACTOR
        """Bytes on the link for one byte of the TCP stream."""
        self.rate_bytes_per_s = 0.0
        """What the site sent over the last second or so."""
        self._since = 0.0
        self._bytes = 0
        self.prompt = 0.0
        """The part of its recent requests that were granted at once or nearly so: a moving average."""
        self.active = 0
        """Connections with an exchange in progress."""
        self.is_sharing = False
        """Whether the site counts as sharing the link. It does for a while after its last
        exchange."""
        self.idle_since = 0.0
        self.smoothed_share = 0.0
        """The site's part of the link. A moving average, since other sites become active and idle with each
        page."""

    def observe(self, lasted_s: float, arrived_bytes: float, outstanding_bytes: float) -> float:
        """Update the delay by Little's law: bytes on their way, divided by bytes that arrive per second.

        Returns how many of the outstanding bytes can arrive soon: a slow server sends them one by one.
        """
        part = min(1.0, lasted_s / _DELAY_OVER_S)
        self._flowing += part * (arrived_bytes / lasted_s - self._flowing)
        self._outstanding += part * (outstanding_bytes - self._outstanding)
        if self._flowing > 0.0:
            delay_s = self._outstanding / self._flowing
            most_s = self.round_trip_s + _MAX_DELAY_S
            self.delay_s = min(max(delay_s, self.round_trip_s), most_s)
            if delay_s > most_s:
                return outstanding_bytes * most_s / delay_s
        return outstanding_bytes

    def learn(self, now: float, stream_bytes: int, wire_bytes: int, round_trip_s: float | None) -> None:
        """Update overhead, rate and round-trip time with what arrived since the last call."""
        if stream_bytes > 0:
            factor = min(max(wire_bytes / stream_bytes, 1.0), 3.0)
            self.overhead_factor += 0.25 * (factor - self.overhead_factor)
            self._bytes += stream_bytes
            if (lasted_s := now - self._since) >= _RATE_OVER_S:
                self.rate_bytes_per_s = self._bytes / lasted_s
                self._since, self._bytes = now, 0
        if round_trip_s is not None:
            self.round_trip_s = round_trip_s
