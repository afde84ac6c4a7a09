"""The lab's delay: a TUN device that every packet from the crawler passes, and leaves after the round-trip
time of the server it goes to; and a second one, for packets to the crawler, that serves connections in turn
at the rate of the link. Runs as its own process in the router's namespace until its input ends."""

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
from experiments.lab.network import Bottleneck, DelayOrders

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
AT_ONCE_S = 0.0002
MOST_AT_A_TIME = 256
QUANTUM_BYTES = 1514
ETHERNET_BYTES = 14


class FairQueue:
    """Deficit round robin by connection. A packet too many is dropped from the longest queue."""

    def __init__(self, rate_bytes_per_s: float, buffer_s: float) -> None:
        self._rate = rate_bytes_per_s
        self._most_bytes = max(16 * QUANTUM_BYTES, rate_bytes_per_s * buffer_s)
        self._queues: dict[bytes, deque[bytes]] = {}
        self._sizes: dict[bytes, int] = {}
        self._turns: deque[tuple[bytes, int]] = deque()
        self._held_bytes = 0
        self.free_at = 0.0

    def put(self, packet: bytes) -> None:
        flow = packet[9:10] + packet[12:24]
        queue = self._queues.get(flow)
        if queue is None:
            queue = self._queues[flow] = deque()
            self._sizes[flow] = 0
            self._turns.append((flow, QUANTUM_BYTES))
        queue.append(packet)
        self._sizes[flow] += len(packet)
        self._held_bytes += len(packet)
        while self._held_bytes > self._most_bytes:
            longest = max(self._sizes, key=self._sizes.__getitem__)
            dropped = self._queues[longest].popleft()
            self._sizes[longest] -= len(dropped)
            self._held_bytes -= len(dropped)

    def due_at(self) -> float | None:
        return self.free_at if self._turns else None

    def take(self, now: float) -> bytes | None:
        """The next packet, if the link is free for it."""
        while self._turns and self.free_at <= now:
            flow, credit = self._turns[0]
            queue = self._queues[flow]
            if not queue:
                self._turns.popleft()
                del self._queues[flow], self._sizes[flow]
                continue
            size = len(queue[0]) + ETHERNET_BYTES
            if size > credit:
                self._turns.rotate(-1)
                self._turns[-1] = (flow, credit + QUANTUM_BYTES)
                continue
            self._turns[0] = (flow, credit - size)
            packet = queue.popleft()
            self._sizes[flow] -= len(packet)
            self._held_bytes -= len(packet)
            self.free_at = max(self.free_at, now - 0.002) + size / self._rate
            return packet
        return None


def open_tun(name: str) -> int:
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return tun


def carry(tun: int, delay_s_by_address: dict[bytes, float], fair: int, shared: FairQueue) -> None:
    """Hold every packet for its destination's time; those of one destination keep their order."""
    held: dict[bytes, deque[tuple[float, bytes]]] = {address: deque() for address in delay_s_by_address}
    while True:
        dues = [line[0][0] for line in held.values() if line]
        dues += [] if (due_at := shared.due_at()) is None else [due_at]
        wait_s = None if not dues else max(0.0, min(dues) - time.monotonic())
        readable, _, _ = select.select([tun, fair, sys.stdin], [], [], wait_s)
        if sys.stdin in readable:
            return
        now = time.monotonic()
        if tun in readable:
            for packet in read_waiting(tun):
                destination = packet[16:20]
                if destination in held:
                    held[destination].append((now + delay_s_by_address[destination], packet))
        if fair in readable:
            for packet in read_waiting(fair):
                shared.put(packet)
        while (packet_due := shared.take(now)) is not None:
            send(fair, packet_due)
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
    tun, fair = open_tun("delay"), open_tun("fair")
    print("up", flush=True)
    orders = msgspec.json.decode(sys.stdin.readline(), type=DelayOrders)
    os.set_blocking(tun, False)
    os.set_blocking(fair, False)
    delays = {socket.inet_aton(address): delay_s for address, delay_s in orders.delay_s.items()}
    shape = orders.bottleneck or Bottleneck(1e9)
    carry(tun, delays, fair, FairQueue(shape.rate_bytes_per_s, shape.buffer_s))


if __name__ == "__main__":
    main()
