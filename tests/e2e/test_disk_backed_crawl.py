"""A crawl that holds few of its waiting pages in memory finds them all, also when it was killed midway."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

LEAVES = 600


class Wide(BaseHTTPRequestHandler):
    """One page that links to hundreds, each of which links back."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        links = [f"/leaf/{number}" for number in range(LEAVES)] if self.path == "/" else ["/"]
        known = self.path == "/" or self.path.startswith("/leaf/")
        body = "".join(f'<a href="{link}">{link}</a>' for link in links).encode() + self.path.encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Wide)
    thread = Thread(target=server.serve_forever)
    thread.start()
    path = tmp_path / "job.toml"
    path.write_text(
        '[crawl]\ninterval = "2 ms"\nallow_private = true\nwaiting_in_memory = 1\n'
        f'[[site]]\nurl = "http://127.0.0.1:{server.server_port}/"\n'
    )
    yield path
    server.shutdown()
    server.server_close()
    thread.join()


def fetched(run: Path) -> Counter[str]:
    """By the whole lines of a file that may be growing."""
    path = run / "pages.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return Counter(json.loads(line)["url"] for line in lines)


def test_every_page_is_fetched_once_across_a_kill(job: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "headway", "crawl", str(job), "-o", str(run), "-q"]
    first = subprocess.Popen(command)
    give_up_at = time.monotonic() + 60
    while len(fetched(run)) < LEAVES // 4 and first.poll() is None and time.monotonic() < give_up_at:
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert LEAVES // 4 <= len(fetched(run)) < LEAVES
    done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    urls = fetched(run)
    assert len(urls) == LEAVES + 1
    assert set(urls.values()) == {1}
