"""The lab's delay: a TUN device that every packet from the crawler passes, and leaves after the round-trip
time of the server it goes to. Runs as its own process in the router's namespace until its input ends."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import sys
import time
from collections import deque

import msgspec

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
AT_ONCE_S = 0.0002
MOST_AT_A_TIME = 256


def open_tun(name: str) -> int:
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return tun


def carry(tun: int, delay_s_by_address: dict[bytes, float]) -> None:
    """Hold every packet for its destination's time; those of one destination keep their order."""
    held: dict[bytes, deque[tuple[float, bytes]]] = {address: deque() for address in delay_s_by_address}
    while True:
        dues = [line[0][0] for line in held.values() if line]
        wait_s = None if not dues else max(0.0, min(dues) - time.monotonic())
        readable, _, _ = select.select([tun, sys.stdin], [], [], wait_s)
        if sys.stdin in readable:
            return
        now = time.monotonic()
        if tun in readable:
            for packet in read_waiting(tun):
                destination = packet[16:20]
                if destination in held:
                    held[destination].append((now + delay_s_by_address[destination], packet))
        for line in held.values():
            while line and line[0][0] <= now + AT_ONCE_S:
                send(tun, line.popleft()[1])


def read_waiting(tun: int) -> list[bytes]:
    packets = []
    for _ in range(MOST_AT_A_TIME):
        try:
            packets.append(os.read(tun, 2048))
        except BlockingIOError:
            break
    return packets


def send(tun: int, packet: bytes) -> None:
    try:
        os.write(tun, packet)
    except OSError as error:
        # A packet that the kernel will not take is a lost packet, as on any network.
        print(f"delay: {error}", file=sys.stderr)


def main() -> None:
    tun = open_tun("delay")
    print("up", flush=True)
    delays = msgspec.json.decode(sys.stdin.readline(), type=dict[str, float])
    os.set_blocking(tun, False)
    carry(tun, {socket.inet_aton(address): delay_s for address, delay_s in delays.items()})


if __name__ == "__main__":
    main()
