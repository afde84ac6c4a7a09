"""`headway crawl` over the demo web: all that is there is found, manners are kept, kills lose nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from headway.demoweb import QUICK, WANTED_TYPES, Scope, Served, ServedProcess, design_web
from headway.pages.url import canonical

MAX_DEPTH = 6
INTERVAL_S = 0.05
JOB = """\
[crawl]
interval = "50 ms"
allow_private = true
retry_penalty = "200 ms"
backoff = "50 ms"
max_backoff = "400 ms"
{more}
[crawl.scope]
max_depth = {max_depth}
[crawl.timeouts]
first_byte = "1 s"
idle = "1 s"
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with ServedProcess(design_web(seed=11, scale=0.15, tempo=QUICK)) as served:
        yield served


def write_job(folder: Path, served: Served, more: str = "") -> Path:
    path = folder / "job.toml"
    sites = "".join(f'[[site]]\nurl = "{url}"\n' for url in served.urls)
    path.write_text(JOB.format(max_depth=MAX_DEPTH, more=more) + sites)
    return path


def command(job: Path, run: Path) -> list[str]:
    return [sys.executable, "-m", "headway", "crawl", str(job), "-o", str(run), "-q"]


def pages_of(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "pages.jsonl").read_text().splitlines()]


def archived_urls(run: Path) -> Counter[str]:
    urls: Counter[str] = Counter()
    for path in sorted((run / "archive").iterdir()):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                record.content_stream().read()
                if record.rec_type in {"response", "revisit"}:
                    urls[record.rec_headers.get_header("WARC-Target-URI")] += 1
    return urls


@pytest.fixture(scope="module")
def uninterrupted(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run = folder / "run"
    done = subprocess.run(
        command(write_job(folder, served), run), capture_output=True, check=False, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return run


def test_everything_that_can_be_reached_is_found(served: Served, uninterrupted: Path) -> None:
    scope = Scope(max_depth=MAX_DEPTH, redirects_cost_depth=False, max_url_chars=2000, follow_sitemaps=True)
    expected = {
        canonical(url): page
        for url, page in served.expected(scope).items()
        if 200 <= page.status < 400 and not page.noindex
        if page.status >= 300 or page.content_type.partition(";")[0] in WANTED_TYPES
    }
    found = {str(page["url"]): page for page in pages_of(uninterrupted)}
    assert set(found) == set(expected)
    wrong = {url for url, page in found.items() if page["status"] != expected[url].status}
    assert not wrong


def test_no_page_is_kept_twice_and_every_record_is_whole(uninterrupted: Path) -> None:
    urls = [str(page["url"]) for page in pages_of(uninterrupted)]
    assert len(urls) == len(set(urls))
    archived = archived_urls(uninterrupted)
    assert set(urls) <= set(archived)
    assert max(archived.values()) == 1


def test_politeness_is_kept(served: Served, uninterrupted: Path) -> None:
    for name, origin in served.sites.items():
        assert served.most_connections(name) == 1, f"more than one connection to {origin}"
        assert min(served.gaps_s(name)) >= INTERVAL_S - 0.001, f"{origin} was asked too soon"


def test_killed_five_times_it_ends_with_the_same_pages(
    served: Served, uninterrupted: Path, tmp_path: Path
) -> None:
    job, run = write_job(tmp_path, served), tmp_path / "run"
    moments = random.Random(5)
    kills = 0
    for _ in range(5):
        child = subprocess.Popen(command(job, run), stderr=subprocess.DEVNULL)
        before = progress(run)
        wanted = before + moments.randint(5, 30)
        limit_at = time.monotonic() + 60
        while child.poll() is None and progress(run) < wanted and time.monotonic() < limit_at:
            time.sleep(moments.uniform(0.005, 0.05))
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
            kills += 1
        child.wait()
    assert kills == 5
    done = subprocess.run(command(job, run), capture_output=True, check=False, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert {page["url"] for page in pages_of(run)} == {page["url"] for page in pages_of(uninterrupted)}
    assert len(pages_of(run)) == len(pages_of(uninterrupted)), "a page is listed twice"
    archived_urls(run)


def progress(run: Path) -> int:
    path = run / "pages.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0
