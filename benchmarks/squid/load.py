"""A client of a proxy that asks for pages over a few kept connections: `python -m benchmarks.squid.load`.

It prints requests a second, and the median and 99th percentile of the time to an answer, as JSON.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from selectors import EVENT_READ, DefaultSelector

WARM_UP = 200


def load(port: int, url: str, pages: int, connections: int, seconds: float, rate: float) -> dict[str, float]:
    """As fast as it goes, or at most `rate` requests a second in all when that is not 0."""
    host = url.split("/")[2]
    heads = [f"GET {url}/{page} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() for page in range(pages)]
    selector = DefaultSelector()
    sent_at: dict[socket.socket, float] = {}
    idle = []
    for _ in range(connections):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(sock, EVENT_READ, [0, b""])
        idle.append(sock)
    times: list[float] = []
    number = 0
    began = time.perf_counter()
    next_at = began
    while (now := time.perf_counter()) < began + seconds:
        while idle and now >= next_at:
            sock = idle.pop()
            sock.sendall(heads[number % pages])
            sent_at[sock] = time.perf_counter()
            number += 1
            next_at = next_at + 1 / rate if rate else now
        wait_s = max(0.0, next_at - time.perf_counter()) if idle else 0.2
        for key, _ in selector.select(wait_s):
            sock = key.fileobj  # type: ignore[assignment]
            state = key.data
            state[1] += sock.recv(65536)
            head, blank, body = state[1].partition(b"\r\n\r\n")
            if not blank:
                continue
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            if len(body) < length:
                continue
            state[1] = b""
            times.append(time.perf_counter() - sent_at.pop(sock))
            idle.append(sock)
    took_s = time.perf_counter() - began
    for key in list(selector.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    times = sorted(times[WARM_UP:] or times)
    return {
        "requests_per_s": len(times) / took_s,
        "median_ms": 1000 * times[len(times) // 2],
        "p99_ms": 1000 * times[int(len(times) * 0.99)],
    }


if __name__ == "__main__":
    port, url, pages, connections, seconds, rate = sys.argv[1:]
    result = load(int(port), url, int(pages), int(connections), float(seconds), float(rate))
    print(json.dumps(result))
