"""A crawl of many sites on loopback addresses with and without a client of its dashboard.

Both are measured in one crawl, in turns of a few seconds. A round is one, the other twice, and the first
again, so that whatever else the machine does, and whatever the crawl comes to, hits both alike. Pages are
those that the server has answered: what the crawl has committed moves in steps of a tenth of a second, which
is more than the difference to be seen.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

_FIRST_PAGES = 2000
"""Begun is a crawl, and a dashboard, only after some pages."""
_MOST_S = 120.0


class Turn(NamedTuple):
    pages_per_s: float
    cpu_ms_per_page: float
    """Of the crawl itself."""
    dashboard_cores: float
    """What its dashboard took meanwhile."""


class Round(NamedTuple):
    alone: Turn
    watched: Turn
    """Each the mean of two."""


class _Now(NamedTuple):
    at: float
    pages: float
    crawl_s: float
    dashboard_s: float


_SERVER = """
import asyncio, mmap, sys
with open(sys.argv[1], "r+b") as file:
    answered = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
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
            answered[0] += 1
async def main():
    server = await asyncio.get_running_loop().create_server(Site, "0.0.0.0", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


def measure_cost(folder: Path, sites: int, rounds: int, seconds: float) -> list[Round]:
    folder.mkdir(parents=True)
    counted = folder / "answered"
    counted.write_bytes(bytes(8))
    command = [sys.executable, "-c", _SERVER, os.fspath(counted)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        try:
            with counted.open("rb") as file, mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ) as answered:
                return _crawl(folder, _job(folder, sites, port), answered, rounds, seconds)
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


def _crawl(folder: Path, job: Path, answered: mmap.mmap, rounds: int, seconds: float) -> list[Round]:
    run = folder / "run"
    command = [sys.executable, "-m", "headway", "crawl", os.fspath(job), "-o", os.fspath(run), "--log-json"]
    command += ["--serve", "--serve-port", "0"]
    found = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        watcher = _Watcher(process)
        try:
            _reach(answered, process.pid, _FIRST_PAGES)
            for number in range(rounds):
                turns: dict[bool, list[Turn]] = {False: [], True: []}
                outer = bool(number % 2)
                for is_watched in (outer, not outer, not outer, outer):
                    turn = _turn(answered, process.pid, watcher, seconds, is_watched=is_watched)
                    turns[is_watched].append(turn)
                found.append(Round(_mean(turns[False]), _mean(turns[True])))
        finally:
            watcher.end()
            process.send_signal(signal.SIGINT)
            process.wait(60)
    return found


def _mean(turns: list[Turn]) -> Turn:
    return Turn(*(sum(column) / len(turns) for column in zip(*turns, strict=True)))


def _turn(answered: mmap.mmap, pid: int, watcher: _Watcher, seconds: float, *, is_watched: bool) -> Turn:
    watcher.looks = is_watched
    time.sleep(0.3)  # what was asked before is answered by now
    before = _progress(answered, pid)
    asked = watcher.answers
    time.sleep(seconds)
    after = _progress(answered, pid)
    assert is_watched == (watcher.answers > asked), "the dashboard did not answer"
    passed_s, pages = after.at - before.at, after.pages - before.pages
    return Turn(
        pages / passed_s,
        1000 * (after.crawl_s - before.crawl_s) / max(1.0, pages),
        (after.dashboard_s - before.dashboard_s) / passed_s,
    )


def _reach(answered: mmap.mmap, pid: int, pages: int) -> None:
    """Wait until so many pages were fetched."""
    until = time.monotonic() + _MOST_S
    while time.monotonic() < until:
        time.sleep(0.1)
        if _progress(answered, pid).pages >= pages:
            return
    raise RuntimeError(f"the crawl did not come to {pages} pages within {_MOST_S:g} s")


def _progress(answered: mmap.mmap, pid: int) -> _Now:
    (pages,) = struct.unpack("=Q", answered[:8])
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return _Now(time.monotonic(), float(pages), _cpu_s(str(pid)), sum(map(_cpu_s, children)))


def _cpu_s(pid: str) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _Watcher:
    """Asks as the page does, while it `looks`: one question a second, what happened every third."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.looks = False
        self.answers = 0
        self._over = threading.Event()
        self._process = process
        threading.Thread(target=self._run, daemon=True).start()

    def end(self) -> None:
        self._over.set()

    def _run(self) -> None:
        assert self._process.stderr is not None
        address = ""
        for line in self._process.stderr:
            if match := re.search(r'"address":"([^"#]+)', line):
                address = match[1]
                break
        threading.Thread(target=self._process.stderr.read, daemon=True).start()
        turn, after = 0, 0.0
        while address and not self._over.wait(1.0):
            if not self.looks:
                continue
            question = f"{address}api/v1/now?limit=25&after={after}"
            try:
                with urllib.request.urlopen(question, timeout=10) as answer:
                    link = json.load(answer)["link"]
                after = link[-1]["at"] if link else after
                if turn % 3 == 0:
                    urllib.request.urlopen(f"{address}api/v1/happenings?limit=30", timeout=10).close()
            except OSError:
                return
            turn += 1
            self.answers += 1
