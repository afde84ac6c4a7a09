"""The round trip as the kernel has it: how `background` notices that others are waiting behind us."""

from __future__ import annotations

import socket
import struct

_TCP_INFO = getattr(socket, "TCP_INFO", None)
_RTT_AT = 68  # tcpi_rtt, microseconds, in the kernel's struct tcp_info


def round_trip_s(sock: socket.socket) -> float | None:
    """Smoothed over the last requests; None where the system does not tell, or the socket is gone."""
    if _TCP_INFO is None:
        return None
    try:
        (microseconds,) = struct.unpack_from(
            "@I", sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 104), _RTT_AT
        )
    except (OSError, struct.error):
        return None
    return microseconds / 1e6 or None
