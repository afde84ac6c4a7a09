"""A client of a proxy that asks for pages over kept connections: `python -m benchmarks.squid.load`.

It prints requests a second, and the median and 99th percentile of the time to an answer, as JSON. `hits` are
pages that the proxy has; `browsing` is what users do: every second page must be had from its site, which
takes its time, as long as a real proxy's log says.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from itertools import cycle
from selectors import EVENT_READ, DefaultSelector

PAGES = 200
ANSWERS_MS = (11, 38, 46, 69, 92, 170, 255, 365, 475, 700, 942)
"""The middle of what shared data has of a Squid log (`squid_2020`), from 1% to 90%; rarer ones take longer
than a round of this benchmark can wait for."""
_SCRIPT = 20_000


def script(kind: str, url: str, seed: int) -> list[str]:
    """The URLs to ask for, the same for the same seed."""
    draw = random.Random(seed)
    pages = [f"{url}/{number}" for number in range(PAGES)]
    if kind == "hits":
        return pages
    return [
        draw.choice(pages) if number % 2 else f"{url}/slow/{draw.choice(ANSWERS_MS)}/{seed}-{number}"
        for number in range(_SCRIPT)
    ]


def load(port: int, urls: list[str], connections: int, seconds: float, rate: float) -> dict[str, float]:
    """As fast as it goes, or at most `rate` requests a second in all when that is not 0."""
    host = urls[0].split("/")[2]
    heads = cycle([f"GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() for url in urls])
    selector = DefaultSelector()
    sent_at: dict[socket.socket, float] = {}
    idle = []
    for _ in range(connections):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(sock, EVENT_READ, [0, b""])
        idle.append(sock)
    times: list[float] = []
    began = time.perf_counter()
    next_at = began
    while (now := time.perf_counter()) < began + seconds:
        while idle and now >= next_at:
            sock = idle.pop()
            sock.sendall(next(heads))
            sent_at[sock] = time.perf_counter()
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
    times.sort()
    return {
        "requests": len(times),
        "requests_per_s": len(times) / took_s,
        "median_ms": 1000 * times[len(times) // 2],
        "p99_ms": 1000 * times[int(len(times) * 0.99)],
    }


if __name__ == "__main__":
    port, url, kind, seed, connections, seconds, rate = sys.argv[1:]
    urls = script(kind, url, int(seed))
    print(json.dumps(load(int(port), urls, int(connections), float(seconds), float(rate))))
