"""A page that names very many sites: the crawl ends, and says what was left out in log, status and report."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

LINKS = 3000


class _Directory(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = "".join(
            f'<a href="http://127.0.0.1:{port}/">site</a>' for port in range(1, LINKS + 1)
        ).encode()
        found = self.path == "/"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body) if found else 0))
        self.end_headers()
        self.wfile.write(body if found else b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def directory() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Directory) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def test_links_beyond_the_limits_on_sites_are_counted_and_reported(directory: str, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        '[crawl]\nallow_private = true\ninterval = "0 s"\nmax_attempts = 1\nbackoff = "10 ms"\n'
        "respect_robots = false\n"
        f'[crawl.scope]\nhosts = ["127.0.0.1"]\nmax_sites_per_page = 4\n[[site]]\nurl = "{directory}"\n'
    )
    command = [sys.executable, "-m", "headway"]
    run = str(tmp_path / "run")
    crawled = subprocess.run(
        [*command, "crawl", str(job), "-o", run], capture_output=True, text=True, check=False, timeout=60
    )
    assert crawled.returncode == 3  # sites that nobody serves joined
    assert "limit on sites reached: new sites of one page: at most 4; links of " in crawled.stderr
    assert "limits on sites reached: new sites of one page (at most 4)" in crawled.stdout
    shown = subprocess.run([*command, "status", run, "--json"], capture_output=True, check=True)
    status = json.loads(shown.stdout)
    assert status["noticed"]["left_out"] == {"site limit: new sites of one page": LINKS - 4}
    assert len(status["sites"]) == 5
