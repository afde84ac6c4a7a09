"""Pages per second on one core, side by side: our fetcher with and without a bound, and others if installed.

    python -m benchmarks.fetch [--seconds 4] [--sites 128] [--size 12000]

The server runs on the last core and each client on the first. aiohttp and pycurl take part where they can be
imported; what counts are the ratios of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trustme

HERE = Path(__file__).parent
PORT = 8801


class WallClock:
    def now(self) -> float:
        return time.time()


async def fetch_with_headway(
    urls: list[tuple[str, str]], until: float, capacity: float, *, kept: bool = True, resumed: bool = True
) -> int:
    """`kept`: a connection is used for all pages of a site. `resumed`: a new one resumes the TLS session."""
    from headway.http.client import HttpFetcher
    from headway.http.models import ClientOptions
    from headway.http.tls import TlsSessions
    from headway.ports import Request

    if not resumed:
        TlsSessions.take = lambda self, host, port: None  # type: ignore[method-assign]
    fetcher = HttpFetcher(
        WallClock(),
        ClientOptions(user_agent="bench/1", allow_private=True, verify_tls=False),
        capacity_bytes_per_s=capacity,
    )
    pages = 0

    async def worker(url: str, site: str) -> None:
        nonlocal pages
        request = Request(url, site, close_after=not kept)
        while time.monotonic() < until:
            response = await fetcher.fetch(request)
            if response.kind != "fetched":
                raise RuntimeError(f"{response.kind}: {response.detail}")
            pages += 1

    await asyncio.gather(*(worker(url, site) for url, site in urls))
    await fetcher.aclose()
    return pages


async def fetch_with_aiohttp(urls: list[tuple[str, str]], until: float, capacity: float) -> int:
    import aiohttp

    pages = 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def worker(url: str) -> None:
            nonlocal pages
            while time.monotonic() < until:
                async with session.get(url) as response:
                    await response.read()
                pages += 1

        await asyncio.gather(*(worker(url) for url, _site in urls))
    return pages


async def fetch_with_pycurl(urls: list[tuple[str, str]], until: float, capacity: float) -> int:
    from io import BytesIO

    import pycurl

    multi = pycurl.CurlMulti()
    pages, easies = 0, []
    for url, _site in urls:
        easy = pycurl.Curl()
        easy.body = BytesIO()
        easy.setopt(pycurl.URL, url)
        easy.setopt(pycurl.WRITEDATA, easy.body)
        multi.add_handle(easy)
        easies.append(easy)
    while time.monotonic() < until:
        multi.perform()
        _queued, done, failed = multi.info_read()
        for easy in done + [entry[0] for entry in failed]:
            pages += 1
            easy.body.seek(0)
            easy.body.truncate()
            multi.remove_handle(easy)
            multi.add_handle(easy)
        if not done:
            multi.select(0.1)
    return pages


Client = Callable[[list[tuple[str, str]], float, float], Awaitable[int]]
VARIANTS: dict[str, tuple[Client, bool, float]] = {
    "headway, asyncio, no bound": (fetch_with_headway, False, float("inf")),
    "headway, uvloop, no bound": (fetch_with_headway, True, float("inf")),
    "headway, uvloop, bound far above": (fetch_with_headway, True, 5e9),
    "headway, https, connections kept": (fetch_with_headway, False, float("inf")),
    "headway, https, resumed for each page": (
        partial(fetch_with_headway, kept=False),
        False,
        float("inf"),
    ),
    "headway, https, full handshake for each": (
        partial(fetch_with_headway, kept=False, resumed=False),
        False,
        float("inf"),
    ),
    "aiohttp, uvloop": (fetch_with_aiohttp, True, 0),
    "pycurl multi": (fetch_with_pycurl, False, 0),
}


def run_variant(name: str, args: argparse.Namespace) -> None:
    client, with_uvloop, capacity = VARIANTS[name]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    scheme, port = ("https", PORT + 1) if "https" in name else ("http", PORT)
    sites = [f"{scheme}://127.0.2.{n}:{port}" for n in range(1, args.sites + 1)]
    urls = [(f"{site}/{args.size}", site) for site in sites]
    try:
        if with_uvloop:
            import uvloop

            runner = uvloop.run
        else:
            runner = asyncio.run
        fetch_nothing = client([], 0.0, capacity)
        runner(fetch_nothing)  # so that imports are not counted
        before = resource.getrusage(resource.RUSAGE_SELF)
        started = time.monotonic()
        pages = runner(client(urls, started + args.seconds, capacity))
    except ImportError as missing:
        print(json.dumps({"missing": str(missing)}))
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    elapsed = time.monotonic() - started
    cpu_s = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"pages_per_s": pages / elapsed, "cpu_ms": 1000 * cpu_s / pages}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--sites", type=int, default=128)
    parser.add_argument("--size", type=int, default=12000)
    parser.add_argument("--variant")
    args = parser.parse_args()
    if args.variant:
        run_variant(args.variant, args)
        return
    hosts = [f"127.0.2.{n}" for n in range(1, args.sites + 1)]
    with tempfile.TemporaryDirectory() as folder:
        _compare(args, hosts, Path(folder) / "server.pem")


def _compare(args: argparse.Namespace, hosts: list[str], certificate: Path) -> None:
    issued = trustme.CA().issue_cert(*hosts, key_type=trustme.KeyType.RSA)
    issued.private_key_and_cert_chain_pem.write_to_path(certificate)
    server = subprocess.Popen(
        [
            sys.executable,
            str(HERE / "server.py"),
            "--port",
            str(PORT),
            "--certificate",
            str(certificate),
            *hosts,
        ],
        stdout=subprocess.PIPE,
    )
    os.sched_setaffinity(server.pid, {max(os.sched_getaffinity(0))})
    try:
        assert server.stdout is not None
        server.stdout.readline()
        baseline = 0.0
        print(f"{args.sites} sites, {args.size} bytes a page")
        print(f"{'client':36}{'pages/s':>10}{'CPU ms/page':>13}{'ratio':>8}")
        for name in VARIANTS:
            command = [sys.executable, __file__, "--variant", name, "--seconds", str(args.seconds)]
            command += ["--sites", str(args.sites), "--size", str(args.size)]
            result = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
            if "missing" in result:
                print(f"{name:36}{'not installed':>10}")
                continue
            baseline = baseline or result["pages_per_s"]
            ratio = result["pages_per_s"] / baseline
            print(f"{name:36}{result['pages_per_s']:10.0f}{result['cpu_ms']:13.4f}{ratio:8.2f}")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
