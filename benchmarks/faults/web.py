"""A web that can go away and come back on the same ports, and remembers every request in between."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec

from headway.demoweb import ServedProcess, WebDesign, design_web, read_access_log

_PAGES_A_SITE = 60  # of a plain site at scale 1


class Asked(msgspec.Struct, frozen=True, gc=False):
    at: float
    """On the monotonic clock, which all processes of a machine share."""
    url: str


class FaultyWeb:
    def __init__(self, folder: Path, sites: int, pages: int, seed: int) -> None:
        scale = pages / sites / _PAGES_A_SITE
        self.design: WebDesign = design_web(seed, scale, roster=("plain",) * sites)
        self._folder = folder
        self._port_base = _free_ports(sites, random.Random(seed))
        self._logs: list[Path] = []
        self._running = ExitStack()
        self.served = self._start()

    def go_away(self, seconds: float) -> None:
        self._running.close()
        time.sleep(seconds)
        self.served = self._start()

    def close(self) -> None:
        self._running.close()

    @property
    def urls(self) -> tuple[str, ...]:
        return self.served.urls

    def expected_bytes(self) -> dict[str, int]:
        """Every page that a crawl must find, and how large its content is."""
        return {url: page.content_bytes for url, page in self.served.expected().items()}

    def asked(self) -> Iterator[Asked]:
        for path in self._logs:
            for request in read_access_log(path).requests():
                yield Asked(request.received_at, self.served.url(request.site, request.path))

    def _start(self) -> ServedProcess:
        log = self._folder / f"access-{len(self._logs)}.jsonl"
        self._logs.append(log)
        return self._running.enter_context(ServedProcess(self.design, self._port_base, access_log=log))


def _free_ports(count: int, dice: random.Random) -> int:
    """The first of so many ports in a row without a listener."""
    for _ in range(100):
        base = dice.randrange(20_000, 32_000 - count)
        if all(_is_free(port) for port in range(base, base + count)):
            return base
    raise RuntimeError(f"no {count} free ports in a row between 20000 and 32000")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
