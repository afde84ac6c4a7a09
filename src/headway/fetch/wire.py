"""What the socket knows: bytes and segments that have really crossed the link.

Linux tells them in TCP_INFO; elsewhere they are reckoned from the payload.
"""

from __future__ import annotations

import math
import socket
import struct

import msgspec

ETHERNET_BYTES = 14
TCP_BYTES = 20 + 12  # with the timestamp option, which everybody uses
SEGMENT_OVERHEAD_V4 = ETHERNET_BYTES + 20 + TCP_BYTES
SEGMENT_OVERHEAD_V6 = ETHERNET_BYTES + 40 + TCP_BYTES
SEGMENT_PAYLOAD_BYTES = 1448

_TCP_INFO = getattr(socket, "TCP_INFO", None)
_RTT_AT = 68
_RECEIVED_AT = 128
_SEGMENTS_IN_AT = 140
_TCP_INFO_BYTES = 144
_RECEIVED_AND_SEGMENTS = struct.Struct("@QII")  # bytes_received, segs_out, segs_in
_U32 = struct.Struct("@I")


class Crossed(msgspec.Struct, frozen=True, gc=False):
    """Totals of a connection since it was opened."""

    received_bytes: int
    """Wire bytes towards us: payload, TLS and headers of all layers."""
    sent_segments: int


class WireCounter:
    """Reads one socket's counters."""

    __slots__ = ("_overhead_bytes", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._overhead_bytes = SEGMENT_OVERHEAD_V6 if sock.family == socket.AF_INET6 else SEGMENT_OVERHEAD_V4

    def read(self) -> int | None:
        """Wire bytes received so far, or None where the system does not tell (or the socket is gone)."""
        if _TCP_INFO is None:
            return None
        try:
            info = self._sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _TCP_INFO_BYTES)
        except OSError:
            return None
        if len(info) < _TCP_INFO_BYTES:
            return None
        received, _sent_segments, segments = _RECEIVED_AND_SEGMENTS.unpack_from(info, _RECEIVED_AT)
        return int(received) + self._overhead_bytes * int(segments)

    def round_trip_s(self) -> float | None:
        if _TCP_INFO is None:
            return None
        try:
            info = self._sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _TCP_INFO_BYTES)
        except OSError:
            return None
        return float(_U32.unpack_from(info, _RTT_AT)[0]) / 1e6 if len(info) >= _TCP_INFO_BYTES else None


def estimated_wire_bytes(payload_bytes: int, overhead_bytes: int = SEGMENT_OVERHEAD_V4) -> int:
    return payload_bytes + overhead_bytes * math.ceil(payload_bytes / SEGMENT_PAYLOAD_BYTES)
