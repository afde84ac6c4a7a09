"""A crawl of many sites on loopback addresses, with or without somebody who looks on.

Pages a second move with whatever else the machine does; the crawl's own CPU time a page hardly does, and is
what looking on could add to.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

_FIRST_PAGES = 2000
"""Begun is a crawl, and a dashboard, only after some pages; and only the same pages cost the same."""
_MOST_S = 40.0


class Cost(NamedTuple):
    pages_per_s: float
    cpu_ms_per_page: float


_SERVER = """
import asyncio, sys
WORDS = b" word" * 300
class Site(asyncio.Protocol):
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data):
        for request in data.split(b"\\r\\n\\r\\n")[:-1]:
            path = request.split(b" ", 2)[1]
            number = int(path[2:] or b"0") if path.startswith(b"/p") else 0
            if path == b"/robots.txt":
                self.transport.write(b"HTTP/1.1 404 no\\r\\nContent-Length: 0\\r\\n\\r\\n"); continue
            links = b"".join(b'<a href="/p%d">x</a>' % (3 * number + each) for each in (1, 2, 3))
            body = b"<p>%s %d%s" % (links, number, WORDS)
            head = b"HTTP/1.1 200 ok\\r\\nContent-Type: text/html\\r\\nContent-Length: %d\\r\\n\\r\\n"
            self.transport.write(head % len(body) + body)
async def main():
    server = await asyncio.get_running_loop().create_server(Site, "0.0.0.0", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def measure_cost(folder: Path, sites: int, pages: int, *, is_watched: bool) -> Cost:
    folder.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        try:
            return _crawl(folder, _job(folder, sites, port), pages, is_watched=is_watched)
        finally:
            server.terminate()


def _job(folder: Path, sites: int, port: int) -> Path:
    head = '[crawl]\ninterval = "1 ms"\nallow_private = true\nmax_connections = 200\n'
    tables = [f'[[site]]\nurl = "http://{_loopback(number)}:{port}/"\n' for number in range(sites)]
    path = folder / "job.toml"
    path.write_text(head + "".join(tables))
    return path


def _loopback(number: int) -> str:
    return f"127.{1 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"


def _crawl(folder: Path, job: Path, pages: int, *, is_watched: bool) -> Cost:
    run = folder / "run"
    command = [sys.executable, "-m", "headway", "crawl", os.fspath(job), "-o", os.fspath(run), "--log-json"]
    command += ["--serve", "--serve-port", "0"] if is_watched else []
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        over = threading.Event()
        threading.Thread(target=_look_on, args=(process, over), daemon=True).start()
        try:
            begun = _reach(run, process.pid, _FIRST_PAGES)
            ended = _reach(run, process.pid, _FIRST_PAGES + pages)
        finally:
            over.set()
            process.send_signal(signal.SIGINT)
            process.wait(60)
    passed_s, count, cpu_s = (after - before for before, after in zip(begun, ended, strict=True))
    return Cost(count / passed_s, 1000 * cpu_s / max(1.0, count))


def _reach(run: Path, pid: int, pages: int) -> tuple[float, float, float]:
    """Wait until so many pages have settled, or for too long."""
    until = time.monotonic() + _MOST_S
    while True:
        time.sleep(0.05)
        try:
            progress = _progress(run, pid)
        except sqlite3.Error:
            continue  # there are no tables yet
        if progress[1] >= pages or time.monotonic() > until:
            return progress


def _progress(run: Path, pid: int) -> tuple[float, float, float]:
    """Seconds, pages, and seconds of CPU of the crawl itself, without its dashboard."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    connection = sqlite3.connect(f"file:{run / 'crawl.sqlite'}?mode=ro", uri=True, timeout=10)
    try:
        (pages,) = connection.execute("SELECT coalesce(max(id), 0) FROM page").fetchone()
    finally:
        connection.close()
    return time.monotonic(), float(pages), cpu_s


def _look_on(process: subprocess.Popen[str], over: threading.Event) -> None:
    """As the page does: one question a second, what happened every third."""
    assert process.stderr is not None
    address = ""
    for line in process.stderr:
        if match := re.search(r'"address":"([^"#]+)', line):
            address = match[1]
            break
    threading.Thread(target=process.stderr.read, daemon=True).start()
    turn, after = 0, 0.0
    while address and not over.wait(1.0):
        try:
            with urllib.request.urlopen(f"{address}api/v1/now?limit=25&after={after}", timeout=10) as answer:
                link = json.load(answer)["link"]
            after = link[-1]["at"] if link else after
            if turn % 3 == 0:
                urllib.request.urlopen(f"{address}api/v1/happenings?limit=30", timeout=10).close()
        except OSError:
            return
        turn += 1
