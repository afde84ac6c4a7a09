"""The sites of table 3: pages that link to one another, of which new ones are published all the time.

How long they take to answer and how large they are follows the quantiles of a real proxy's log.
"""

from __future__ import annotations

import asyncio
import bisect
import json
import math
import random
import time
from pathlib import Path

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces" / "distributions.json"
OWN_LOG = {
    "elapsed_ms": {"0.01": 10, "0.25": 90, "0.5": 250, "0.75": 480, "0.9": 950, "0.95": 1600, "1": 38000},
    "bytes": {"0.01": 400, "0.25": 1400, "0.5": 4000, "0.75": 29000, "0.9": 100_000, "1": 5_000_000},
}
SITES = 10
PAGES_A_SITE = 40
LINKS_A_PAGE = 3
NEW_A_WEEK = 0.08
"""Of all pages ("What's new on the web?", Ntoulas, Cho and Olston 2004)."""
_LONGEST_S = 5.0
_LARGEST = 200_000


def proxy_log() -> tuple[dict[str, dict[str, float]], str]:
    """Quantiles of answer times and sizes, and where they are from. There is no log itself."""
    if SHARED.exists():
        return json.loads(SHARED.read_text())["squid_2020"], "quantiles of a real Squid log, shared/data"
    return OWN_LOG, "quantiles of our own (the shared data is absent)"


class Origin:
    """Use as a server of asyncio. Days are `day_s` long, and counted from when it is made."""

    def __init__(self, log: dict[str, dict[str, float]], day_s: float, days: float) -> None:
        self._times = _Quantiles(log["elapsed_ms"])
        self._sizes = _Quantiles(log["bytes"])
        self._draw = random.Random(1)
        self._began = time.monotonic()
        self._day_s = day_s
        self.hosts = tuple(f"site{number}.test" for number in range(SITES))
        self.is_slow = False
        count = SITES * PAGES_A_SITE
        new = math.ceil(count * NEW_A_WEEK * days / 7)
        self.pages = [(self.hosts[number % SITES], number // SITES) for number in range(count + new)]
        """Host and number, in the order in which they are published."""
        self._published_at = {
            page: max(0.0, (place - count + 1) / new * days * day_s) for place, page in enumerate(self.pages)
        }

    def is_published(self, page: tuple[str, int]) -> bool:
        return time.monotonic() - self._began >= self._published_at.get(page, math.inf)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                path = request.split(b" ")[1].decode().strip("/").removesuffix(".html")
                host = request.lower().partition(b"host: ")[2].partition(b":")[0].decode()
                if path == "robots.txt":
                    writer.write(_answer(404, ""))
                    continue
                page = (host, int(path or 0))
                if self.is_slow:
                    await asyncio.sleep(min(_LONGEST_S, self._times.at(self._draw.random()) / 1000))
                writer.write(_answer(200, self._body(page)) if self.is_published(page) else _answer(404, ""))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError, ValueError):
            pass
        finally:
            writer.close()

    def _body(self, page: tuple[str, int]) -> str:
        host, number = page
        following = [number * LINKS_A_PAGE + each for each in range(1, LINKS_A_PAGE + 1)]
        links = "".join(
            f'<a href="/{each}.html">{each}</a>' for each in following if self.is_published((host, each))
        )
        size = min(_LARGEST, self._sizes.at(random.Random(f"{host}{number}").random()))
        return f"<title>{host} {number}</title>{links}".ljust(int(size))


class _Quantiles:
    def __init__(self, quantiles: dict[str, float]) -> None:
        steps = sorted((float(share), math.log(value)) for share, value in quantiles.items())
        self._shares, self._logs = zip(*[(0.0, steps[0][1]), *steps], strict=True)

    def at(self, share: float) -> float:
        place = min(max(1, bisect.bisect_left(self._shares, share)), len(self._shares) - 1)
        low, high = self._shares[place - 1], self._shares[place]
        part = (share - low) / (high - low)
        return math.exp(self._logs[place - 1] + part * (self._logs[place] - self._logs[place - 1]))


def _answer(status: int, body: str) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: text/html\r\nCache-Control: max-age=600\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
