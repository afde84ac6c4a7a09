"""What a socket knows and can be told: bytes that crossed the link, and how many may be on their way.

Linux tells the first in TCP_INFO; elsewhere they are reckoned from the payload. The second is the receive
buffer: the kernel lets a server fill it whether or not anybody reads.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
from typing import NamedTuple

ETHERNET_BYTES = 14
TCP_BYTES = 20 + 12  # with the timestamp option, which nearly everybody uses
SEGMENT_PAYLOAD_BYTES = 1448
SEGMENT_OVERHEAD_V4 = ETHERNET_BYTES + 20 + TCP_BYTES
SEGMENT_OVERHEAD_V6 = ETHERNET_BYTES + 40 + TCP_BYTES
SMALLEST_BUFFER_BYTES = 2304
LARGEST_BUFFER_BYTES = 4 * 1024 * 1024
DEFAULT_BUFFER_BYTES = 128 * 1024
UNSCALED_BUFFER_BYTES = 80 * 1024
"""A socket that was connected with less than this can never have more than 64 KB on its way."""
OVERHEAD_FACTOR = (SEGMENT_PAYLOAD_BYTES + SEGMENT_OVERHEAD_V4) / SEGMENT_PAYLOAD_BYTES

_TCP_INFO = getattr(socket, "TCP_INFO", None)
_TCP_WINDOW_CLAMP = getattr(socket, "TCP_WINDOW_CLAMP", None)
_TCP_MAXSEG = getattr(socket, "TCP_MAXSEG", None)
_NO_LINGERING = struct.pack("ii", 1, 0)
# bytes_acked, bytes_received, segs_out, segs_in, notsent_bytes, min_rtt of the kernel's struct tcp_info
_COUNTERS = struct.Struct("@QQIIII")
_COUNTERS_AT = 120
_WINDOW = struct.Struct("@I")
_WINDOW_AT = 232  # tcpi_rcv_wnd, in kernels since 6.2
_TCP_INFO_BYTES = _WINDOW_AT + _WINDOW.size
# Measured with packets of 1,514 bytes: the receive buffer asked for, and what the kernel takes in unread.
# When that is full, all must be read before the server may send again, and then all of it comes at once.
_HELD_UNREAD = ((2304, 2896), (3072, 4412), (8192, 15_319))
_HELD_OF_LARGE = 1.87
# And the part of it that is on its way while all that comes is read at once, in whole segments.
_FLOWS = 0.87
_FLOWS_IN_SMALLEST = 2190
_NEVER_MEASURED_US = 0xFFFFFFFF
_LARGEST_PACKET_BYTES = 64 * 1024


class Crossed(NamedTuple):
    """Totals of a connection since it was opened."""

    stream_bytes: int
    """TCP payload towards us: HTTP, or TLS records."""
    received_bytes: int
    """The same with the headers of TCP, IP and Ethernet."""
    sent_bytes: int
    round_trip_s: float | None
    offered_bytes: int | None = None
    """The window last offered: more cannot come before something is read. None where it is not told."""


class Wire:
    """One connected socket."""

    __slots__ = ("_overhead_bytes", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        v6 = sock.family == socket.AF_INET6
        self._overhead_bytes = SEGMENT_OVERHEAD_V6 if v6 else SEGMENT_OVERHEAD_V4

    def crossed(self) -> Crossed | None:
        """None where the system does not tell, or the socket is gone."""
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
        return Crossed(
            received,
            received + overhead * segments_in,
            acked + overhead * segments_out,
            round_trip_s,
            offered,
        )

    def set_buffer(self, buffer_bytes: int) -> None:
        set_buffer(self._sock, buffer_bytes)

    def is_shut(self) -> bool:
        """Whether the window last offered has no room for a packet, so that none can be on its way."""
        crossed = self.crossed()
        if crossed is None or crossed.offered_bytes is None:
            return False
        return crossed.offered_bytes < SEGMENT_PAYLOAD_BYTES


def buffer_for(flowing_bytes: float) -> int:
    """The SO_RCVBUF with which so much can be on its way at any time, in whole segments."""
    if flowing_bytes <= _FLOWS_IN_SMALLEST:
        return SMALLEST_BUFFER_BYTES
    segments = math.ceil(flowing_bytes / SEGMENT_PAYLOAD_BYTES - 0.25)
    return int(min(segments * SEGMENT_PAYLOAD_BYTES / _FLOWS + 1, LARGEST_BUFFER_BYTES))


def held_unread_bytes(buffer_bytes: int) -> int:
    """How much may arrive while nobody reads."""
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
    """A socket to connect with. A small buffer is set now: what was once offered cannot be taken back."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if buffer_bytes is not None and buffer_bytes < UNSCALED_BUFFER_BYTES:
        set_buffer(sock, buffer_bytes)
        if _TCP_MAXSEG is not None and buffer_bytes < _LARGEST_PACKET_BYTES:
            # On a link of large packets a small window would hold less than one, and wait for timers.
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, _TCP_MAXSEG, SEGMENT_PAYLOAD_BYTES + 12)
    return sock


def drop_unsent_when_closed(sock: socket.socket) -> None:
    """Let go of, it takes with it what was not sent, and says so with a reset instead of a farewell."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)


def set_buffer(sock: socket.socket, buffer_bytes: int) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        if _TCP_WINDOW_CLAMP is not None:
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_WINDOW_CLAMP, buffer_bytes)


def estimated_wire_bytes(stream_bytes: int) -> int:
    return stream_bytes + SEGMENT_OVERHEAD_V4 * math.ceil(stream_bytes / SEGMENT_PAYLOAD_BYTES)
