"""Politeness on the wire: many names of one address, many ports of one host, and worker processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

import headway.api as hw
import headway.http.resolve
from headway.http.resolve import Address


class Server:
    """Answers on some ports, and notes when each request came and when its answer was sent."""

    def __init__(self, body: Callable[[str, int], str]) -> None:
        self.body = body
        self.requests: list[tuple[float, float, str]] = []
        self._servers: list[asyncio.Server] = []

    @property
    def ports(self) -> list[int]:
        return [server.sockets[0].getsockname()[1] for server in self._servers]

    @contextlib.asynccontextmanager
    async def on(self, ports: int = 1) -> AsyncIterator[Server]:
        for _ in range(ports):
            self._servers.append(await asyncio.start_server(self._serve, "127.0.0.1", 0))
        try:
            yield self
        finally:
            for server in self._servers:
                server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            came_at = asyncio.get_running_loop().time()
            path = head.split(" ", 2)[1]
            host = next(line for line in head.split("\r\n") if line.lower().startswith("host:"))[5:].strip()
            is_page = path != "/robots.txt"
            body = self.body(host, writer.get_extra_info("sockname")[1]) if is_page else ""
            # Noted before the answer is sent, as the interval begins when it has arrived.
            self.requests.append((came_at, asyncio.get_running_loop().time(), host))
            writer.write(
                f"HTTP/1.1 {'200 OK' if is_page else '404 Not Found'}\r\nContent-Type: text/html\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
            )
            await writer.drain()
        writer.close()

    def shortest_pause_s(self) -> float:
        requests = sorted(self.requests)
        return min(then[0] - first[1] for first, then in itertools.pairwise(requests))


async def _all_on_loopback(host: str) -> Sequence[Address]:
    return [Address(socket.AF_INET, "127.0.0.1")]


def page_of(host: str, port: int) -> str:
    return f"<title>{host}</title><p>This is the page of {host}, port {port}."


def test_sixty_names_of_one_address_are_asked_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lookup(host: str, *, threads: object = None) -> Sequence[Address]:
        return await _all_on_loopback(host)

    monkeypatch.setattr(headway.http.resolve, "system_lookup", lookup)

    async def main() -> Server:
        async with Server(page_of).on() as server:
            tasks = [hw.Task(f"http://n{number}-lab.example:{server.ports[0]}/") for number in range(60)]
            plan = hw.Plan(tasks=tasks, interval="20 ms", allow_private=True)
            async with hw.open(plan, out=tmp_path / "run") as run:
                async for _ in run:
                    pass
            return server

    server = asyncio.run(main())
    assert len(server.requests) == 120
    assert len({host for _, _, host in server.requests}) == 60
    assert server.shortest_pause_s() >= 0.020


def test_the_ports_of_a_host_that_a_page_names_are_asked_one_after_the_other(tmp_path: Path) -> None:
    ports: list[int] = []

    def body(host: str, port: int) -> str:
        links = "".join(f'<a href="http://127.0.0.1:{other}/">{other}</a>' for other in ports[1:])
        return page_of(host, port) + (links if port == ports[0] else "")

    async def main() -> Server:
        async with Server(body).on(40) as server:
            ports.extend(server.ports)
            plan = hw.Plan(
                tasks=[hw.Task(f"http://127.0.0.1:{ports[0]}/")],
                interval="20 ms",
                allow_private=True,
                scope={"hosts": ["127.0.0.1"]},
            )
            async with hw.open(plan, out=tmp_path / "run") as run:
                async for _ in run:
                    pass
            return server

    server = asyncio.run(main())
    found = [request for request in server.requests if not request[2].endswith(f":{ports[0]}")]
    assert len(found) == 78
    server.requests = found
    assert server.shortest_pause_s() >= 0.020


def test_worker_processes_share_the_interval_of_a_server(tmp_path: Path) -> None:
    ports: list[int] = []

    def body(host: str, port: int) -> str:
        links = "".join(f'<a href="http://127.0.0.1:{other}/">{other}</a>' for other in ports[1:])
        return page_of(host, port) + (links if port == ports[0] else "")

    async def main() -> tuple[Server, bytes]:
        async with Server(body).on(10) as server:
            ports.extend(server.ports)
            job = tmp_path / "job.toml"
            job.write_text(
                '[crawl]\ninterval = "30 ms"\nallow_private = true\nscope = { hosts = ["127.0.0.1"] }\n'
                f'[[site]]\nurl = "http://127.0.0.1:{ports[0]}/"\n'
            )
            command = [sys.executable, "-m", "headway", "crawl", str(job), "-o", str(tmp_path / "run")]
            process = await asyncio.create_subprocess_exec(
                *command, "--processes", "3", stderr=asyncio.subprocess.PIPE
            )
            _, problems = await process.communicate()
            assert process.returncode == 0, problems
            return server, problems

    server, _ = asyncio.run(main())
    found = [request for request in server.requests if not request[2].endswith(f":{ports[0]}")]
    assert len(found) == 18
    server.requests = found
    assert server.shortest_pause_s() >= 0.030
