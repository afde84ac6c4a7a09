"""A server that renegotiates TLS 1.2, or changes the keys of TLS 1.3, in the middle of an exchange."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess

import pytest
import trustme
from tests.support.clock import ManualClock

from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions, Timeouts
from headway.model.page import Kind, Site
from headway.ports import Request

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\nhello\n"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the server is openssl's")
@pytest.mark.parametrize(("version", "key"), [("-tls1_2", b"R\n"), ("-tls1_3", b"K\n"), ("-tls1_3", b"k\n")])
async def test_the_download_goes_on(tmp_path, version, key) -> None:
    pem = tmp_path / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    port = free_port()
    server = await asyncio.create_subprocess_exec(
        *("openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert", str(pem), version),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    fetcher = HttpFetcher(
        ManualClock(),
        ClientOptions(
            user_agent="test/1",
            allow_private=True,
            verify_tls=False,
            timeouts=Timeouts(first_byte_s=20.0, idle_s=20.0),
        ),
    )

    async def answer() -> None:
        await server.stdout.readuntil(b"User-Agent: test/1")
        for _ in range(3):
            server.stdin.write(key)
            await server.stdin.drain()
            if version == "-tls1_2":
                await server.stdout.readuntil(b"SSL_do_handshake")
            else:
                await asyncio.sleep(0.3)  # s_server takes a key for one only if nothing was read with it
        server.stdin.write(ANSWER)
        await server.stdin.drain()

    try:
        await server.stdout.readuntil(b"ACCEPT")
        site = Site(f"https://127.0.0.1:{port}")
        async with asyncio.timeout(30):
            _, response = await asyncio.gather(answer(), fetcher.fetch(Request(f"{site}/", site)))
        assert (response.kind, response.body) == (Kind.FETCHED, b"hello\n"), response.detail
    finally:
        await fetcher.aclose()
        server.kill()
        await server.wait()
