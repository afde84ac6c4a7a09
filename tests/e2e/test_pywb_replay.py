"""A run folder is a pywb collection as it stands: pages, compressed ones, copies and redirects replay.

Needs a Python that has pywb, named by HEADWAY_PYWB_PYTHON; pywb wants old libraries of its own, so it never
shares our environment. `python3 -m venv DIR && DIR/bin/pip install pywb` makes one.
"""

from __future__ import annotations

import gzip
import http.client
import http.server
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest

from headway.model.command import PageState, SaveSettled
from headway.model.page import Kind, Outcome, Page
from headway.ports import Response
from headway.store.run_folder import RunFolder

from docpages import followed

PYWB_PYTHON = os.environ.get("HEADWAY_PYWB_PYTHON", "")
SITE = "http://www.example.org"
NOW = 1_763_251_446.5
TEXT = b"<html><body>" + b"the same words again and again " * 40 + b"</body></html>"

pytestmark = pytest.mark.skipif(
    not PYWB_PYTHON, reason="set HEADWAY_PYWB_PYTHON to a Python that has pywb to replay what we archived"
)


@pytest.fixture(scope="module")
def replay_port(tmp_path_factory):
    """As the how-to says it, but for where pywb is installed and which port is free."""
    root = tmp_path_factory.mktemp("pywb")
    _make_run(root / "run")
    port = _free_port()
    with followed("docs/how-to/replay-with-pywb.md") as page:
        _install, prepare, serve = page.take("sh").splitlines()
    subprocess.run(["/bin/sh", "-ec", prepare], cwd=root, check=True)
    serve = serve.replace("replay/bin/wayback", shlex.quote(str(Path(PYWB_PYTHON).with_name("wayback"))))
    with (root / "pywb.log").open("wb") as log:
        process = subprocess.Popen(
            ["/bin/sh", "-ec", "exec " + serve.replace("8080", str(port))], cwd=root, stdout=log, stderr=log
        )
    try:
        _wait_for(port, process, root / "pywb.log")
        yield port
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/plain", b"a plain page"),
        ("/chunked", b"a page in chunks"),
        ("/compressed", b"the same words again and again"),
        ("/copy?b=2&a=1", b"the same words again and again"),
        ("/same-but-not-compressed", b"the same words again and again"),
    ],
)
def test_what_was_archived_is_replayed(replay_port, path, words):
    status, _, body = _ask(replay_port, path)
    assert status == 200
    assert words in body


def test_a_redirect_is_replayed_as_one(replay_port):
    status, headers, _ = _ask(replay_port, "/moved")
    assert status == 302
    assert headers["location"].endswith(SITE + "/plain")


def test_what_was_not_archived_is_not_found(replay_port):
    assert _ask(replay_port, "/never-seen")[0] == 404


@pytest.fixture(scope="module")
def wacz_run(tmp_path_factory):
    """Two rounds of a page that has not changed (its newest capture is a 304) and of one that has."""
    run = tmp_path_factory.mktemp("wacz") / "run"
    not_modified = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        version = 1

        def do_GET(self):
            body = {
                "/": b"<title>Start</title><a href=/same>s</a> <a href=/other>o</a>",
                "/same": b"<title>Same</title><p>the same words as before",
                "/other": b"<title>Other</title><p>version %d of the page" % Handler.version,
            }.get(self.path)
            tag = f'"{zlib.crc32(body or b"")}"'
            unchanged = self.headers.get("If-None-Match") == tag
            if unchanged:
                not_modified.append(self.path)
            self.send_response(404 if body is None else 304 if unchanged else 200)
            if body is not None:
                self.send_header("ETag", tag)
            if not unchanged:
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if not unchanged:
                self.wfile.write(body or b"")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://127.0.0.1:{server.server_port}"
    crawl = ["crawl", f"{site}/", "--allow-private", "--interval", "0s", "-q", "-o", str(run)]
    for Handler.version in (1, 2):
        subprocess.run([sys.executable, "-m", "headway", *crawl], check=True, timeout=60)
    server.shutdown()
    server.server_close()
    assert "/same" in not_modified
    package = run.parent / "run.wacz"
    subprocess.run([sys.executable, "-m", "headway", "export", run, "-o", package], check=True, timeout=60)
    return site, package


def test_a_wacz_is_valid_by_the_tool_of_its_makers(wacz_run):
    tool = Path(PYWB_PYTHON).with_name("wacz")
    if not tool.exists():
        pytest.skip("the environment of pywb has no package wacz; scripts/install-test-tools installs it")
    done = subprocess.run(
        [tool, "validate", "-f", wacz_run[1]], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "invalid" not in (done.stdout + done.stderr).lower()


def test_a_wacz_replays_with_pywb_also_a_page_whose_newest_capture_is_a_304(wacz_run, tmp_path):
    site, package = wacz_run
    manager = Path(PYWB_PYTHON).with_name("wb-manager")
    subprocess.run([manager, "init", "run"], cwd=tmp_path, check=True, timeout=60, capture_output=True)
    subprocess.run(
        [manager, "add", "--unpack-wacz", "run", package],
        cwd=tmp_path,
        check=True,
        timeout=60,
        capture_output=True,
    )
    port = _free_port()
    with (tmp_path / "pywb.log").open("wb") as log:
        process = subprocess.Popen(
            [Path(PYWB_PYTHON).with_name("wayback"), "-p", str(port)], cwd=tmp_path, stdout=log, stderr=log
        )
    try:
        _wait_for(port, process, tmp_path / "pywb.log")
        for path, words in (("/same", b"the same words as before"), ("/other", b"version 2 of the page")):
            status, _, body = _ask(port, path, site)
            assert status == 200, path
            assert words in body
    finally:
        process.terminate()
        process.wait(timeout=10)


def _make_run(path):
    with RunFolder.open(path, {}, NOW) as folder:
        _capture(folder, 0, "/plain", b"<html><body>a plain page</body></html>")
        _capture(folder, 1, "/chunked", b"<html><body>a page in chunks</body></html>", chunked=True)
        _capture(folder, 2, "/compressed", TEXT, compressed=True, chunked=True)
        _capture(folder, 3, "/copy?b=2&a=1", TEXT, compressed=True)
        _capture(folder, 4, "/same-but-not-compressed", TEXT)
        _capture(folder, 5, "/moved", b"", status=b"302 Found", extra=b"Location: /plain\r\n")
        index = folder.write_index().read_text()
    assert index.count("warc/revisit") == 1, "the copy is meant to be a revisit, the other one not"


def _capture(folder, number, path, body, *, compressed=False, chunked=False, status=b"200 OK", extra=b""):
    payload = gzip.compress(body, mtime=0) if compressed else body
    head = b"HTTP/1.1 " + status + b"\r\nContent-Type: text/html\r\n" + extra
    head += b"Content-Encoding: gzip\r\n" if compressed else b""
    head += b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: %d\r\n" % len(payload)
    url, digest, code = SITE + path, f"x:{hash(body)}", int(status[:3])
    response = Response(
        Kind.FETCHED,
        url,
        NOW + number,
        0.1,
        code,
        request_head=b"GET %s HTTP/1.1\r\nHost: www.example.org\r\n\r\n" % path.encode(),
        head=head + b"\r\n",
        payload=payload,
    )
    where = folder.archive.write(response, digest=digest, revisit_of=folder.store.find_digest(digest))
    outcome = Outcome(Kind.FETCHED, code, len(payload), 0.1, "text/html", len(body), digest)
    page = Page(url, SITE, number)
    folder.save([SaveSettled(page, outcome, PageState.DONE, 0, NOW + number, capture=where)])


def _ask(port, path, site=SITE):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", f"/run/mp_/{site}{path}")
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers, answer.read()
    finally:
        connection.close()


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(port, process, log):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    sys.stderr.write(log.read_text()[-2000:])
    pytest.fail("pywb did not start")
