"""Scrapy spiders with the add-on: nothing changes but how fast the network is read."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.support.rawserver import RawServer, page

from headway.demoweb import QUICK, ServedProcess, design_web

pytest.importorskip("scrapy")

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "scrapy"
SPIDER = """
import json, sys
import scrapy
from scrapy.crawler import AsyncCrawlerProcess


class Spider(scrapy.Spider):
    name = "spider"

    async def start(self):
        for request in json.loads(sys.argv[1]):
            yield scrapy.Request(dont_filter=True, errback=self.failed, **request)

    def parse(self, response):
        yield {"url": response.url, "status": response.status, "body": response.text,
               "method": response.request.method, "type": type(response).__name__}

    def failed(self, failure):
        yield {"url": failure.request.url, "error": type(failure.value).__name__}


process = AsyncCrawlerProcess({"LOG_LEVEL": "INFO", "TELNETCONSOLE_ENABLED": False, "LOG_STDOUT": False,
    "REMOTE_CONTROL_ENABLED": False, "ADDONS": {"headway.scrapy.Addon": 500}, "HEADWAY_DIR": sys.argv[3],
    "FEEDS": {sys.argv[3] + "/out.jsonl": {"format": "jsonlines"}}, **json.loads(sys.argv[2])})
crawler = process.create_crawler(Spider)
process.crawl(crawler)
process.start()
print(json.dumps(crawler.stats.get_stats(), default=str))
"""


@pytest.fixture(scope="module")
def served():
    with ServedProcess(design_web(7, scale=1.0, tempo=QUICK, roster=("plain", "museum"))) as web:
        yield web


def _command(spider: str, url: str, folder: Path, *options: str) -> list[str]:
    command = [sys.executable, "-m", "scrapy", "crawl", spider, "-a", f"url={url}"]
    return [*command, "-s", f"HEADWAY_DIR={folder}", "-s", "HEADWAY_TIMETABLE=[]", *options]


def crawl(folder: Path, spider: str, url: str, *options: str) -> tuple[list[dict], str]:
    out = folder / f"{len(list(folder.iterdir()))}.jsonl"
    done = subprocess.run(
        _command(spider, url, folder, "-O", str(out), *options),
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = out.read_text().splitlines() if out.exists() else []
    return [json.loads(line) for line in lines], done.stderr


def run_requests(folder: Path, requests: list[dict], **settings: object) -> tuple[list[dict], dict, str]:
    script = folder / "spider.py"
    script.write_text(SPIDER)
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(requests), json.dumps(settings), str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    items = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return items, json.loads(done.stdout.splitlines()[-1]), done.stderr


def not_had(log: str) -> set[str]:
    return set(re.findall(r"ERROR: Error downloading <GET ([^>]+)>", log))


@pytest.mark.parametrize(("spider", "site"), [("titles", 1), ("sizes", 1)])
def test_the_example_gives_the_same_items_with_and_without_the_add_on(
    served, tmp_path, spider: str, site: int
) -> None:
    url = served.urls[site]
    with_it, log = crawl(tmp_path, spider, url, "-s", "HEADWAY_BANDWIDTH=4 MB/s")
    without, plain_log = crawl(tmp_path, spider, url, "-s", "HEADWAY_ENABLED=False")
    assert len(with_it) > 10
    key = json.dumps
    assert sorted(map(key, with_it)) == sorted(map(key, without))
    assert "headway/wire_bytes" in log
    assert "headway/wire_bytes" not in plain_log
    # The same pages cannot be fetched; how often each was tried is between Scrapy and the kind of error.
    assert not_had(log) == not_had(plain_log)


def test_a_bound_holds_and_the_stats_and_the_log_line_say_so(served, tmp_path) -> None:
    options = ["-s", "HEADWAY_BANDWIDTH=150 KB/s", "-s", "LOGSTATS_INTERVAL=1"]
    items, log = crawl(tmp_path, "titles", served.urls[0], *options)
    stats = {
        name.strip(" '"): value.strip(" ,}")
        for name, _, value in (line.partition("': ") for line in log.splitlines())
        if "headway/" in name
    }
    assert items
    assert 0 < int(stats["headway/mean_bytes_per_s"]) <= 1.05 * 150_000
    assert int(stats["headway/bound_bytes_per_s"]) == 150_000
    assert int(stats["headway/wire_bytes"]) > 150_000
    assert stats["headway/deadline_met"] == "True"
    assert "of 150 KB/s" in log


def test_rates_of_servers_are_kept_when_the_spider_ends(served, tmp_path) -> None:
    url = served.urls[0]
    crawl(tmp_path, "titles", url, "-s", "HEADWAY_BANDWIDTH=10 MB/s", "-s", "CLOSESPIDER_PAGECOUNT=5")
    first = (tmp_path / "servers.sqlite").read_bytes()
    assert b"127.0.0.1" in first


def test_a_wrong_setting_is_one_line_and_no_traceback(served, tmp_path) -> None:
    _, log = crawl(tmp_path, "titles", served.urls[0], "-s", "HEADWAY_BANDWIDTH=fast")
    assert "HEADWAY_BANDWIDTH: 'fast' is not a rate such as '5 Mbit/s'" in log
    assert "Traceback" not in log


@pytest.fixture
def raw():
    """Run a RawServer beside the test, in a thread."""
    loops: list = []

    def start(answers) -> RawServer:
        server = RawServer(answers)
        loop = asyncio.new_event_loop()
        ready = threading.Event()
        stop = asyncio.Event()

        async def serve() -> None:
            async with server:
                ready.set()
                await stop.wait()

        thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
        thread.start()
        assert ready.wait(10)
        loops.append((loop, stop, thread))
        return server

    yield start
    for loop, stop, thread in loops:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def test_any_method_and_body_is_sent_as_it_is(raw, tmp_path) -> None:
    async def echo(reader, writer) -> None:
        body = await reader.readexactly(11)
        writer.write(page(body, "Content-Type: text/plain"))

    server = raw({"/echo": echo, "/head": page(b"", "Content-Type: text/html", "X-Here: yes")})
    requests = [
        {"url": f"{server.site}/echo", "method": "POST", "body": "hello=world", "headers": {"X-Mine": "1"}},
        {"url": f"{server.site}/head", "method": "HEAD"},
    ]
    items, _, _ = run_requests(tmp_path, requests, HEADWAY_BANDWIDTH="1 MB/s")
    by_method = {item["method"]: item for item in items}
    assert by_method["POST"]["body"] == "hello=world"
    assert by_method["HEAD"]["status"] == 200
    posted = next(head for head in server.requests if head.startswith(b"POST"))
    assert b"Content-Length: 11\r\n" in posted
    assert b"X-Mine: 1\r\n" in posted


def test_retry_after_is_obeyed(raw, tmp_path) -> None:
    asked_at: list[float] = []

    async def throttle(reader, writer) -> None:
        asked_at.append(time.monotonic())
        if len(asked_at) == 1:
            writer.write(page(b"later", "Retry-After: 2", status="429 Too Many Requests"))
        else:
            writer.write(page(b"welcome", "Content-Type: text/plain"))

    server = raw({"/": throttle})
    items, stats, log = run_requests(tmp_path, [{"url": f"{server.site}/"}])
    assert [item["status"] for item in items] == [200]
    assert asked_at[1] - asked_at[0] >= 2.0
    assert stats["headway/retry_after/count"] == 1
    assert "asked for a pause" in log


def test_errors_have_scrapys_names(raw, tmp_path) -> None:
    async def hang_up(reader, writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")
        writer.close()

    server = raw({"/cut": hang_up, "/large": page(b"x" * 5000)})
    requests = [
        {"url": f"{server.site}/cut"},
        {"url": f"{server.site}/large", "meta": {"download_maxsize": 1000}},
        {"url": "http://127.0.0.1:9/refused"},
    ]
    items, _, _ = run_requests(tmp_path, requests, RETRY_ENABLED=False)
    errors = {item["url"].rsplit("/", 1)[1]: item.get("error") for item in items}
    assert errors == {
        "cut": "ResponseDataLossError",
        "large": "DownloadCancelledError",
        "refused": "DownloadConnectionRefusedError",
    }


def test_private_addresses_are_refused_where_that_is_asked_for(raw, tmp_path) -> None:
    server = raw({"/": page(b"inside")})
    items, _, _ = run_requests(tmp_path, [{"url": f"{server.site}/"}], HEADWAY_ALLOW_PRIVATE=False)
    assert [item.get("error") for item in items] == ["IgnoreRequest"]
    assert not server.requests


def test_a_killed_job_resumes_and_loses_nothing(served, tmp_path) -> None:
    url = served.urls[0]
    whole, _ = crawl(tmp_path, "titles", url, "-s", "HEADWAY_BANDWIDTH=20 MB/s")
    out, job = tmp_path / "killed.jsonl", tmp_path / "job"
    command = _command("titles", url, tmp_path, "-o", str(out), "-s", f"JOBDIR={job}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for wanted in (5, 15):
        slow = [*command, "-s", "HEADWAY_BANDWIDTH=150 KB/s"]
        process = subprocess.Popen(slow, cwd=PROJECT, env=environment, **quiet)
        until = time.monotonic() + 30
        while time.monotonic() < until and _lines(out) < wanted:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert wanted <= _lines(out) < len(whole)
    fast = [*command, "-s", "HEADWAY_BANDWIDTH=20 MB/s"]
    subprocess.run(fast, cwd=PROJECT, env=environment, check=True, timeout=60, **quiet)
    found = [json.loads(line)["url"] for line in out.read_text().splitlines()]
    assert set(found) == {item["url"] for item in whole}
    # Twice at most what was under way at one of the kills.
    assert len(found) - len(set(found)) <= 2 * 16


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
