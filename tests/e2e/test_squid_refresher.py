"""The cache parasite with Debian's Squid: what a user asks for through the proxy is kept fresh through it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.squid import SquidProcess, find_squid, free_port, helper_command
from warcio.archiveiterator import ArchiveIterator

from headway.policy.scope import Scope
from headway.squid.listener import asked_each_time, asked_once_an_hour
from headway.squid.spool import LOG_FORMAT

pytestmark = pytest.mark.skipif(find_squid() is None, reason="squid is not installed")
HOST = "a.test"


class Site:
    """Pages with a number that can be raised, linked from nowhere but the first."""

    def __init__(self) -> None:
        self.version = 0
        self.asked: list[tuple[str, str]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append((self.path, self.headers.get("User-Agent", "")))
                body = (
                    b"User-agent: *\nDisallow: /secret\n"
                    if self.path == "/robots.txt"
                    else site.page(self.path)
                )
                self.send_response(404 if "missing" in self.path else 200)
                self.send_header("Content-Type", "text/plain" if self.path == "/robots.txt" else "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "max-age=60")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://{HOST}:{self.server.server_port}"

    def page(self, path: str) -> bytes:
        return f'<title>{path} {self.version}</title><a href="{path.rstrip("/")}/linked">more</a>'.encode()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, args=(0.05,))
    thread.start()
    yield site
    site.server.shutdown()
    thread.join()
    site.server.server_close()


def headway(*words: str) -> list[str]:
    return [sys.executable, "-m", "headway", *words]


def begin_run(folder: Path, site: Site, proxy: str) -> None:
    """A crawl of the first page alone, through the proxy, since only that knows the site's name."""
    job = folder.with_suffix(".toml")
    job.write_text(
        f'[crawl]\ninterval = "0 s"\nallow_private = true\nproxy = "{proxy}"\nmax_attempts = 1\n'
        f'[crawl.scope]\nmax_depth = 1\n[[site]]\nurl = "{site.url}/"\n'
    )
    subprocess.run(headway("crawl", str(job), "-o", str(folder), "-q"), check=True, timeout=60)


@contextmanager
def listening(run: Path, proxy: str, *words: str) -> Iterator[Callable[[], dict[str, Any]]]:
    """Yields a function that ends the listener and gives its counts."""
    options = ["--proxy", proxy, "--delay", "100 ms", "--interval", "0 s", "--json", "-q", *words]
    running = subprocess.Popen(headway("listen-squid", str(run), *options), stdout=subprocess.PIPE)

    def ended() -> dict[str, Any]:
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=30)
        result: dict[str, Any] = json.loads(out)
        return result

    try:
        yield ended
    finally:
        if running.poll() is None:
            running.kill()
            running.communicate()


def browse(proxy: str, *urls: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy}))
    for url in urls:
        try:
            opener.open(url, timeout=10).close()
        except urllib.error.HTTPError as problem:
            problem.close()


def wait_for(condition: Callable[[], bool], limit_s: float = 90.0) -> None:
    limit_at = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < limit_at, "it did not happen in time"
        time.sleep(0.05)


def collected(run: Path) -> dict[str, Any]:
    path = run / "announced" / "collector.json"
    return json.loads(path.read_text()) if path.exists() else {}


def settled(run: Path) -> int:
    counts = collected(run)
    return sum(counts.get(name, 0) for name in ("updates", "fresh", "new")) + sum(
        counts.get("errors", {}).values()
    )


def kept(run: Path) -> list[str]:
    return [
        json.loads(line)["url"].rpartition("/")[2] for line in (run / "pages.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize("channels", ["concurrency=200", "concurrency=0"])
@pytest.mark.parametrize("way", [asked_once_an_hour, asked_each_time])
def test_what_a_user_asks_for_is_fetched_through_the_proxy_and_kept(
    tmp_path: Path, site: Site, way: Callable[..., str], channels: str
) -> None:
    run, sock = tmp_path / "run", tmp_path / "squid" / "helper.sock"
    more = "access_log none\n" + way(helper_command(tmp_path / "squid", str(sock)))
    more = more.replace("concurrency=200", channels)
    with SquidProcess(tmp_path / "squid", more=more, hosts=(HOST,)) as squid:
        begin_run(run, site, squid.url)
        with listening(run, squid.url, "--listen", f"unix:{sock}", "--refresh-after", "0 s") as ended:
            wait_for(sock.exists)
            site.version = 1
            first = [f"{site.url}/new", f"{site.url}/missing", f"{site.url}/secret/x", f"{site.url}/new"]
            browse(squid.url, *first, f"{site.url}/q?user=alice", "http://a.test:1/elsewhere")
            wait_for(lambda: settled(run) >= 3)
            browse(squid.url, f"{site.url}/linked")
            wait_for(lambda: settled(run) >= 4)
            result = ended()
    assert result["new"] == 1
    assert result["updates"] == 1
    assert set(result["errors"]) == {"missing", "robots-denied"}
    assert result["refused"]["query"] == 1
    assert result["refused"]["out-of-scope: other-host"] == 1
    assert result["refused"].get("repeated", 0) == (way is asked_each_time)
    assert not result["lost"]
    assert result["answered_under_1_s"] == 1.0
    assert "new" in kept(run)
    everything = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert b"alice" not in everything, "a user's query is on the disk"
    ours = [path for path, agent in site.asked if path == "/new"]
    assert len(ours) == 1, "the second request for it was answered by the proxy"


def test_pages_brought_by_the_proxy_are_whole_records_and_their_links_are_followed(
    tmp_path: Path, site: Site
) -> None:
    port = free_port()
    log = f"{LOG_FORMAT}\naccess_log tcp://127.0.0.1:{port} logformat=headway on-error=drop\n"
    run = tmp_path / "run"
    with SquidProcess(tmp_path / "squid", hosts=(HOST,)) as quiet:
        begin_run(run, site, quiet.url)
    with listening(run, quiet.url, "--listen", f"tcp:127.0.0.1:{port}") as ended:
        wait_for(lambda: is_open(port))
        with SquidProcess(tmp_path / "squid", more=log, hosts=(HOST,), port=quiet.port) as squid:
            browse(squid.url, f"{site.url}/new")
            wait_for(lambda: settled(run) >= 1)
            wait_for(lambda: any(path == "/new/linked" for path, _ in site.asked))
            browse(squid.url, f"{site.url}/")
            wait_for(lambda: settled(run) >= 2)
            result = ended()
    assert result["new"] == 1
    assert result["fresh"] >= 1, "its copy is younger than a day"
    urls = list(archived(run))
    assert f"{site.url}/new" in urls
    assert len(urls) == len(set(urls))


def is_open(port: int) -> bool:
    import socket

    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_squid_survives_headway_and_headway_survives_squid(tmp_path: Path, site: Site) -> None:
    run, log = tmp_path / "run", tmp_path / "squid" / "access.log"
    sock = tmp_path / "squid" / "helper.sock"
    more = (
        f"access_log daemon:{log}\nurl_rewrite_program {helper_command(tmp_path / 'squid', str(sock))}\n"
        "url_rewrite_children 1 startup=1 idle=1 concurrency=20\n"
    )
    squid = SquidProcess(tmp_path / "squid", more=more, hosts=(HOST,))
    with squid:
        begin_run(run, site, squid.url)
        options = ["--proxy", squid.url, "--delay", "0 s", "--interval", "0 s", "-q"]
        places = ("--listen", f"unix:{sock}", "--listen", f"tail:{log}")
        killed = subprocess.Popen(headway("listen-squid", str(run), *options, *places))
        wait_for(sock.exists)
        browse(squid.url, f"{site.url}/one")
        wait_for(lambda: settled(run) >= 1)
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        browse(squid.url, f"{site.url}/two")  # nobody listens; the log has it
        with listening(run, squid.url, *places) as ended:
            wait_for(lambda: "two" in kept(run))
            squid.stop()
            squid.start()
            browse(squid.url, f"{site.url}/three")
            wait_for(lambda: "three" in kept(run))
            result = ended()
    assert {"one", "two", "three"} <= set(kept(run))
    assert result["announced"] >= 3


def test_beside_a_running_crawl_that_crawl_fetches_what_is_announced_and_the_listener_goes_on_after_it(
    tmp_path: Path, site: Site
) -> None:
    run, log = tmp_path / "run", tmp_path / "squid" / "access.log"
    more = f"acl headway_itself browser ^headway\naccess_log daemon:{log} !headway_itself"
    with SquidProcess(tmp_path / "squid", more=more, hosts=(HOST,)) as squid:
        job = tmp_path / "job.toml"
        job.write_text(
            f'[crawl]\ninterval = "700 ms"\nallow_private = true\nproxy = "{squid.url}"\n'
            f'[crawl.scope]\nmax_depth = 1000\ndeny = ["/*/linked/linked/linked/linked/linked/linked"]\n'
            f'[[site]]\nurl = "{site.url}/"\nseeds = ["{site.url}/a", "{site.url}/b"]\n'
        )
        crawl = subprocess.Popen(headway("crawl", str(job), "-o", str(run), "-q"))
        try:
            wait_for(lambda: any(path == "/a" for path, _ in site.asked))
            place = ("--listen", f"tail:{log}")
            with listening(run, squid.url, *place, "--refresh-after", "0 s") as ended:
                wait_for((run / "announced" / "listener.json").exists)
                browse(squid.url, f"{site.url}/meanwhile", f"{site.url}/a")
                wait_for(lambda: settled(run) >= 2)
                assert crawl.poll() is None, "the crawl ended before there was anything to see"
                while_crawling = collected(run)
                assert crawl.wait(60) == 0
                assert "meanwhile" in kept(run)
                browse(squid.url, f"{site.url}/afterwards")
                wait_for(lambda: "afterwards" in kept(run))
                result = ended()
        finally:
            crawl.kill()
            crawl.wait()
    assert (while_crawling["new"], while_crawling["updates"]) == (1, 1)
    assert "meanwhile/linked" in {path.strip("/") for path, _ in site.asked}, "its links were not followed"
    assert result["announced"] == result["accepted"] + sum(result["refused"].values())
    assert not result["lost"]
    assert not result["errors"]
    urls = list(archived(run))
    assert urls.count(f"{site.url}/meanwhile") == 1


def archived(run: Path) -> Iterator[str]:
    """The URL of every response in the archive, all of whose digests are right."""
    for path in (run / "archive").iterdir():
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                record.content_stream().read()
                if record.rec_type == "response":
                    yield record.rec_headers.get_header("WARC-Target-URI")


@pytest.mark.parametrize("way", [asked_once_an_hour, asked_each_time])
def test_squid_answers_its_users_though_the_helper_cannot_be_started(
    tmp_path: Path, site: Site, way: Callable[..., str]
) -> None:
    """As when headway was taken off the machine and squid.conf was not."""
    with SquidProcess(tmp_path / "squid", more=way("/bin/false"), hosts=(HOST,)) as squid:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": squid.url}))
        with opener.open(f"{site.url}/x", timeout=10) as answer:
            assert answer.status == 200


def test_squid_does_not_ask_about_hosts_that_are_not_in_scope(tmp_path: Path, site: Site) -> None:
    import socket

    sock = tmp_path / "squid" / "helper.sock"
    scope = Scope(hosts=frozenset({"b.test:81", "c.d.test"}), suffixes=("d.test", "x.d.test"))
    more = asked_once_an_hour(helper_command(tmp_path / "squid", str(sock)), scope)
    with (
        SquidProcess(tmp_path / "squid", more=more, hosts=(HOST, "b.test", "y.d.test")) as squid,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours,
    ):
        ours.settimeout(10)
        ours.bind(str(sock))
        sock.chmod(0o666)
        port = site.server.server_port
        browse(squid.url, *(f"http://{host}:{port}/" for host in (HOST, "b.test", "y.d.test", "b.test")))
        heard: list[bytes] = []
        while len(heard) < 2:
            heard += ours.recv(65536).split(b"\n")[1:]
        assert heard == [b"GET http://%s:%d/" % (host, port) for host in (b"b.test", b"y.d.test")]
        words = (tmp_path / "squid" / "cache.log").read_text()
    assert "ERROR" not in words
