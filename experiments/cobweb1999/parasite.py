"""Table 3: requests of a proxy's users through a real Squid, with `headway listen-squid` beside it.

Time is short here: a day lasts some seconds. The sites are collected by an ordinary crawl that takes five
days, as in the paper's table 2, while new pages are published all the time. Then users ask for pages for a
day, by the popularity that proxy logs show (Zipf), and each answer takes as long as a real log says. What is
an update, fresh or new follows from that; nothing of it is set.
"""

from __future__ import annotations

import asyncio
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

from experiments.cobweb1999.origin import PAGES_A_SITE, Origin, proxy_log
from tests.support.squid import SquidProcess, helper_command

from headway.squid.listener import asked_each_time

CRAWL_DAYS = 5
_USERS = 120
_REQUESTS_A_SECOND = 250
"""About what so many users make of the log's answer times."""
_ZIPF = 0.8


def replay(requests: int, seed: int = 8) -> dict[str, Any]:
    return asyncio.run(_replay(requests, seed))


async def _replay(requests: int, seed: int) -> dict[str, Any]:
    log, source = proxy_log()
    day_s = requests / _REQUESTS_A_SECOND
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        origin = Origin(log, day_s, CRAWL_DAYS + 1)
        server = await asyncio.start_server(origin.answer, "127.0.0.1", 0)
        await stack.enter_async_context(server)
        port = server.sockets[0].getsockname()[1]
        run, sock = folder / "run", folder / "squid" / "helper.sock"
        more = "access_log none\n" + asked_each_time(helper_command(folder / "squid", str(sock)))
        squid = SquidProcess(folder / "squid", more=more, hosts=origin.hosts)
        await asyncio.to_thread(squid.start)
        stack.push_async_callback(asyncio.to_thread, squid.stop)
        crawled = await _collect(run, squid.url, origin, port, interval_s=CRAWL_DAYS * day_s / PAGES_A_SITE)
        options = ["--proxy", squid.url, "--listen", f"unix:{sock}", "--delay", "1 s", "--interval", "0 s"]
        options += ["--refresh-after", f"{day_s} s", "--max-connections", "64", "--json", "-q"]
        listening = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headway", "listen-squid", str(run), *options, stdout=subprocess.PIPE
        )
        while not sock.exists():
            await asyncio.sleep(0.05)
        origin.is_slow = True
        began = time.perf_counter()
        await _browse(squid.port, port, origin, requests, random.Random(seed))
        took_s = time.perf_counter() - began
        await _until_settled(run)
        listening.send_signal(signal.SIGINT)
        out, _ = await listening.communicate()
        result: dict[str, Any] = json.loads(out)
        return {**result, "source": source, "seconds": took_s, "crawled": crawled, "day_s": day_s}


async def _collect(run: Path, proxy: str, origin: Origin, port: int, *, interval_s: float) -> int:
    """An ordinary crawl, through the proxy, which alone knows the names; returns its pages."""
    job = run.with_suffix(".toml")
    lines = ["[crawl]", f'interval = "{interval_s} s"', "allow_private = true", f'proxy = "{proxy}"']
    for host in origin.hosts:
        lines += ["[[site]]", f'url = "http://{host}:{port}/0.html"']
    job.write_text("\n".join(lines))
    crawl = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headway", "crawl", str(job), "-o", str(run), "-q"
    )
    assert await crawl.wait() == 0
    return len((run / "pages.jsonl").read_text().splitlines())


async def _browse(proxy_port: int, port: int, origin: Origin, requests: int, draw: random.Random) -> None:
    """Users, each asking for one page after the other, of those that there are by then."""
    by_popularity = draw.sample(origin.pages, len(origin.pages))
    weights = [1 / (rank + 1) ** _ZIPF for rank in range(len(by_popularity))]
    turns = iter(range(requests))

    async def user() -> None:
        for _ in turns:
            page = draw.choices(by_popularity, weights)[0]
            while not origin.is_published(page):
                page = draw.choices(by_popularity, weights)[0]
            host, number = page
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy_port)
            url = f"http://{host}:{port}/{number}.html"
            writer.write(f"GET {url} HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
            await reader.read()
            writer.close()

    await asyncio.gather(*(user() for _ in range(_USERS)))


async def _until_settled(run: Path) -> None:
    counts = run / "announced"
    for _ in range(600):
        await asyncio.sleep(0.2)
        listener = json.loads((counts / "listener.json").read_text())
        path = counts / "collector.json"
        collector = json.loads(path.read_text()) if path.exists() else {}
        done = sum(collector.get(name, 0) for name in ("updates", "fresh", "new"))
        if done + sum(collector.get("errors", {}).values()) >= listener["accepted"] > 0:
            return
