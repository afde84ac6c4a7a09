"""Table 3: requests of a proxy's users replayed through a real Squid, with `headway listen-squid` beside it.

The shared data has no proxy log but the quantiles of one; requests are drawn from those, over local sites,
with the popularity of pages that logs show (Zipf). Where the shared data is absent, our own quantiles stand
in. What share is new, known or fresh is set by what was collected before, as in the paper: most pages a while
ago, some just now, a few never.
"""

from __future__ import annotations

import asyncio
import bisect
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from headway.testing.squid import SquidProcess, helper_command

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data" / "traces" / "distributions.json"
OWN_QUANTILES = {
    "0.01": 10,
    "0.25": 90,
    "0.5": 250,
    "0.75": 480,
    "0.9": 950,
    "0.95": 1600,
    "0.99": 18000,
    "1": 38000,
}
SITES = 10
PAGES = 400
KNOWN_SHARE = 0.93
"""Of the pages, collected before; the others are new to us."""
FRESH_SHARE = 0.06
"""Of the pages, collected so lately that they are left alone."""
_LONGEST_S = 5.0


def answer_times_ms() -> tuple[dict[str, float], str]:
    if SHARED.exists():
        return json.loads(SHARED.read_text())["squid_2020"]["elapsed_ms"], "the shared log's quantiles"
    return OWN_QUANTILES, "quantiles of our own (the shared data is absent)"


def replay(requests: int, seed: int = 8) -> dict[str, Any]:
    return asyncio.run(_replay(requests, seed))


async def _replay(requests: int, seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    quantiles, source = answer_times_ms()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        origin = _Origin(quantiles)
        server = await asyncio.start_server(origin.answer, "127.0.0.1", 0)
        await stack.enter_async_context(server)
        port = server.sockets[0].getsockname()[1]
        hosts = tuple(f"site{number}.test" for number in range(SITES))
        pages = [f"http://{draw.choice(hosts)}:{port}/{number}.html" for number in range(PAGES)]
        run, sock = folder / "run", folder / "squid" / "helper.sock"
        more = (
            f"access_log none\nurl_rewrite_program {helper_command(folder / 'squid', str(sock))}\n"
            "url_rewrite_children 2 startup=1 idle=1 concurrency=100\n"
            "acl headway_itself browser ^headway\nurl_rewrite_access deny headway_itself\n"
            "url_rewrite_access allow all\n"
        )
        squid = SquidProcess(folder / "squid", more=more, hosts=hosts)
        await asyncio.to_thread(squid.start)
        stack.push_async_callback(asyncio.to_thread, squid.stop)
        known = pages[: int(KNOWN_SHARE * PAGES)]
        fresh = known[-int(FRESH_SHARE * PAGES) :]
        await _collect(run, squid.url, hosts, port, known)
        refresh_after_s = 3600.0
        await asyncio.to_thread(_age, run, refresh_after_s, set(fresh))
        options = [
            "--proxy",
            squid.url,
            "--listen",
            f"unix:{sock}",
            "--delay",
            "1 s",
            "--interval",
            "0 s",
            "--json",
            "-q",
        ]
        options += ["--refresh-after", f"{refresh_after_s:.0f} s", "--max-connections", "64"]
        listening = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headway", "listen-squid", str(run), *options, stdout=subprocess.PIPE
        )
        while not sock.exists():
            await asyncio.sleep(0.05)
        origin.is_slow = True
        weights = [1 / (rank + 1) ** 0.8 for rank in range(PAGES)]
        asked = draw.sample(pages, PAGES)
        chosen = draw.choices(asked, weights, k=requests)
        began = time.perf_counter()
        await _browse(squid.port, chosen)
        took_s = time.perf_counter() - began
        await _until_settled(run)
        listening.send_signal(signal.SIGINT)
        out, _ = await listening.communicate()
        result: dict[str, Any] = json.loads(out)
        return {
            **result,
            "source": source,
            "requests": requests,
            "seconds": took_s,
            "origin_asked": origin.asked,
        }


class _Origin:
    """Every page of every site, after a time drawn from the log's."""

    def __init__(self, quantiles: dict[str, float]) -> None:
        self._steps = sorted((float(share), float(ms)) for share, ms in quantiles.items())
        self._draw = random.Random(1)
        self.is_slow = False
        self.asked = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                path = request.split(b" ")[1]
                self.asked += 1
                is_robots = path == b"/robots.txt"
                if self.is_slow and not is_robots:
                    await asyncio.sleep(self._time_s())
                body = (
                    b"User-agent: *\nDisallow:\n"
                    if is_robots
                    else b"<title>" + path + b"</title>" + b"x" * 6000
                )
                kind = b"text/plain" if is_robots else b"text/html"
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nCache-Control: max-age=600\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (kind, len(body), body)
                )
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _time_s(self) -> float:
        share = self._draw.random()
        place = bisect.bisect_left(self._steps, (share,))
        return min(_LONGEST_S, self._steps[min(place, len(self._steps) - 1)][1] / 1000)


async def _collect(run: Path, proxy: str, hosts: tuple[str, ...], port: int, known: list[str]) -> None:
    """An ordinary crawl of what is known; through the proxy, which alone knows the names."""
    job = run.with_suffix(".toml")
    lines = [
        "[crawl]",
        'interval = "0 s"',
        "allow_private = true",
        f'proxy = "{proxy}"',
        "[crawl.scope]",
        "max_depth = 0",
    ]
    for host in hosts:
        urls = [url for url in known if url.startswith(f"http://{host}:{port}/")] or [
            f"http://{host}:{port}/"
        ]
        lines += ["[[site]]", f"url = {json.dumps(urls[0])}", f"seeds = {json.dumps(urls[1:])}"]
    job.write_text("\n".join(lines))
    crawl = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headway", "crawl", str(job), "-o", str(run), "-q"
    )
    assert await crawl.wait() == 0


def _age(run: Path, by_s: float, fresh: set[str]) -> None:
    """Make all copies but these older than they are: a day has no place in an experiment."""
    import sqlite3

    with sqlite3.connect(run / "crawl.sqlite") as store:
        rows = store.execute(
            "SELECT page.id, site || path FROM page JOIN site ON site.id = page.site_id"
        ).fetchall()
        old = [(by_s + 60, number) for number, url in rows if url not in fresh]
        store.executemany("UPDATE page SET fetched_at = fetched_at - ? WHERE id = ?", old)
    store.close()


async def _browse(port: int, urls: list[str]) -> None:
    """Thirty users, each asking for one page after the other."""
    queue = iter(urls)

    async def user() -> None:
        for url in queue:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {url} HTTP/1.0\r\nHost: {url.split('/')[2]}\r\n\r\n".encode())
            await reader.read()
            writer.close()

    await asyncio.gather(*(user() for _ in range(30)))


async def _until_settled(run: Path) -> None:
    counts = run / "announced"
    for _ in range(600):
        await asyncio.sleep(0.2)
        listener = json.loads((counts / "listener.json").read_text())
        collector = (
            json.loads((counts / "collector.json").read_text())
            if (counts / "collector.json").exists()
            else {}
        )
        done = sum(collector.get(name, 0) for name in ("updates", "fresh", "new"))
        if done + sum(collector.get("errors", {}).values()) >= listener["accepted"] > 0:
            return
