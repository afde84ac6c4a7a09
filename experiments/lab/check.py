"""Does the lab give what was asked for? `python -m experiments.lab.check` downloads from each server with
plain sockets, and compares rates and round trips with those wanted, and the counters with the bytes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from experiments.lab import Lab, Link, run, why_not

LINKS = [
    Link(50_000, 0.150),
    Link(100_000, 0.100),
    Link(200_000, 0.060),
    Link(500_000, 0.030),
    Link(1_000_000, 0.010),
    Link(2_000_000, 0.005),
]


async def download(host: str, port: int, size: int) -> tuple[float, float, int]:
    """Seconds to connect, seconds from the request to the end, bytes read."""
    begun = time.monotonic()
    reader, writer = await asyncio.open_connection(host, port)
    connected = time.monotonic()
    writer.write(b"GET /%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % size)
    received = 0
    while part := await reader.read(65536):
        received += len(part)
    ended = time.monotonic()
    writer.close()
    await writer.wait_closed()
    return connected - begun, ended - connected, received


async def measure(lab: Lab, argument: dict[str, float]) -> list[dict[str, Any]]:
    """Each server alone for about the asked-for time."""
    rows = []
    for server in lab.servers:
        with lab.recording() as wire:
            begun = time.monotonic()
            size = round(server.link.rate_bytes_per_s * argument["seconds"])
            connect_s, transfer_s, payload = await download(server.host, server.port, size)
            await asyncio.sleep(0.05)
        received = wire.received.total_bytes
        rows.append(
            {
                "rtt_s": server.link.rtt_s,
                "measured_rtt_s": connect_s,
                "rate_bytes_per_s": server.link.rate_bytes_per_s,
                "measured_bytes_per_s": (received[-1] - received[0]) / transfer_s,
                "payload_bytes": payload,
                "wire_bytes": received[-1] - received[0],
                "seconds": time.monotonic() - begun,
            }
        )
    return rows


def main() -> None:
    reason = why_not()
    print("in namespaces" if reason is None else f"on loopback, without round-trip times: {reason}")
    print(f"{'rate wanted':>12} {'measured':>9} {'rtt wanted':>11} {'measured':>9} {'overhead':>9}")
    for row in run("experiments.lab.check:measure", LINKS, {"seconds": 3.0}):
        print(
            f"{row['rate_bytes_per_s'] / 1000:9.0f} KB/s {row['measured_bytes_per_s'] / 1000:9.1f}"
            f" {row['rtt_s'] * 1000:8.0f} ms {row['measured_rtt_s'] * 1000:9.1f}"
            f" {row['wire_bytes'] / row['payload_bytes'] - 1:9.2%}"
        )


if __name__ == "__main__":
    main()
