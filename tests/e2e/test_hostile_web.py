"""What a hostile web does to its neighbours, and how its own pages end."""

from __future__ import annotations

import asyncio
import asyncio.base_events
import gc
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.hostile import HostileWeb

import headway as hw

PAGES = 100
SLOW = 60
CONNECTIONS = 24


async def good_pages(
    web: HostileWeb, hostile: list[str], run: Path, **options: object
) -> tuple[int, Counter[str]]:
    """Crawl until the good site is complete. Returns its pages, and how attempts at the others ended."""
    tasks = [*hostile, hw.Task(web.url(0), max_pages=PAGES)]
    plan = hw.Plan(
        tasks=tasks,
        allow_private=True,
        interval="1 ms",
        pages_per_connection=1000,
        scope={"max_depth": PAGES},
        **options,  # type: ignore[arg-type]
    )
    count = 0
    async with hw.open(plan, out=run) as crawl:
        async for page in crawl:
            count += page.url.startswith(web.site(0) + "/")
            if count == PAGES:
                break
    ends = Counter(
        line.split(maxsplit=8)[8]
        for line in (run / "crawl.log").read_text().splitlines()
        if f" {web.site(0)}/" not in line
    )
    return count, ends


async def test_slow_servers_do_not_keep_a_good_site_from_its_connection(tmp_path: Path) -> None:
    """They are more than twice as many as there are connections, and none of them ever completes a page."""
    with HostileWeb(SLOW) as web:
        slow = ["trickle", "trickle-200", "silent", "slow-head"]
        urls = [web.url(number + 1, slow[number % 4]) for number in range(SLOW)]
        async with asyncio.timeout(60):
            count, ends = await good_pages(web, urls, tmp_path / "run", max_connections=CONNECTIONS)
    assert count == PAGES
    gave_way = sum(times for end, times in ends.items() if "while other sites waited" in end)
    assert gave_way >= CONNECTIONS // 2, ends
    assert all("timeout" in end for end in ends), ends


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The CPU time of each turn of the event loop: what others do on the machine does not count."""
    took: list[float] = []
    run_once = asyncio.base_events.BaseEventLoop._run_once  # type: ignore[attr-defined]

    def timed(loop: asyncio.AbstractEventLoop) -> None:
        began_at = time.thread_time()
        run_once(loop)
        took.append(time.thread_time() - began_at)

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "_run_once", timed)
    gc.collect()
    gc.freeze()  # what other tests have left is not looked through
    yield took
    gc.unfreeze()


def _longest_turn_s() -> float:
    """What counting to four millions takes this machine now: 50 ms where it is quiet, with 2.5 GHz."""
    longest_s = 0.0
    for _ in range(3):
        began_at = time.thread_time()
        for _ in range(4_000_000):
            pass
        longest_s = max(longest_s, time.thread_time() - began_at)
    return longest_s


# How each answer that once stopped a crawl ends, all of them in one crawl: the first words of its line.
ENDS = {
    "open-tags": "done fetched read in part",
    "comments": "done fetched read in part",
    "entities": "done fetched read in part",
    "links": "done fetched read in part",
    "words": "done fetched read in part",
    "deep": "done fetched read in part",
    "attributes": "done fetched read in part",
    "empty-members": "done fetched not gzip (it has more than 10000 members), kept as received",
    "bomb": "failed decompression-bomb",
    "two-byte-chunks": "done fetched read in part",
    "number": "done fetched -",
    "million-digits": "done fetched -",
    "noise": "done fetched",
    "noise-as-file": "done fetched -",
}


async def test_costly_answers_end_as_they_should_beside_a_good_site(
    tmp_path: Path, turns: list[float]
) -> None:
    with HostileWeb(len(ENDS)) as web:
        hostile = dict(zip(ENDS, map(web.site, range(1, len(ENDS) + 1)), strict=True))
        rules = {"fields": {"number": {"xpath": "//h1", "type": "number"}}}
        tasks = [
            *(hw.Task(f"{site}/{name}", extract=[rules]) for name, site in hostile.items()),
            hw.Task(web.url(0), max_pages=PAGES),
        ]
        options = {"interval": "1 ms", "pages_per_connection": 1000, "scope": {"max_depth": PAGES}}
        good = [0]
        async with hw.open(hw.Plan(tasks=tasks, allow_private=True, **options), out=tmp_path / "run") as run:
            turns.clear()  # building a crawl takes longer
            async for page in run:
                is_good = page.url.startswith(web.site(0) + "/") and page.status == 200
                good.append(good[-1] + is_good)
    assert good[-1] == PAGES
    assert max(turns) < _longest_turn_s(), "an answer held the event loop"
    log = [line.split(maxsplit=8) for line in (tmp_path / "run/crawl.log").read_text().splitlines()]
    ends = {words[3]: words[8].replace("duplicate", "fetched") for words in log}
    for name, end in ENDS.items():
        assert ends[f"{hostile[name]}/{name}"].startswith(end), (name, ends[f"{hostile[name]}/{name}"])
    assert not (tmp_path / "run/items.jsonl").exists()  # numbers that no value can hold are none
    assert good.index(PAGES) < len(good) - 1, "the good site waited for the costly answers"


# -- pages that kill the process --------------------------------------------------------------------------

KILLS = """
import os, signal
import headway.pages.document
parse = headway.pages.document.parse

def deadly(response, *rest):
    if response.url.endswith("/7"):
        os.kill(os.getpid(), signal.SIGKILL)
    return parse(response, *rest)

headway.pages.document.parse = deadly
"""
"""A page whose reading ends its process, in whichever process it is read."""


def crawl(web: HostileWeb, folder: Path, *options: str) -> int:
    (folder / "sitecustomize.py").write_text(KILLS)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "headway", "crawl", web.url(0), "--allow-private", "--interval", "1ms"]
    command += ["--max-pages", "12", "-q", "-o", str(folder / "run"), *options]
    ended = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, check=False, capture_output=True, timeout=60
    )
    assert b"Traceback" not in ended.stderr, ended.stderr.decode()
    return ended.returncode


def ends_of(folder: Path) -> dict[str, str]:
    log = (folder / "run/crawl.log").read_text().splitlines()
    return {(words := line.split(maxsplit=8))[3].rpartition("/")[2]: words[8] for line in log}


def test_a_page_that_kills_its_process_is_quarantined_when_the_crawl_is_resumed(tmp_path: Path) -> None:
    with HostileWeb(1) as web:
        assert crawl(web, tmp_path) == -signal.SIGKILL
        assert crawl(web, tmp_path) == 0
        ends = ends_of(tmp_path)
        assert web.asked(web.url(0, "7")) == 2
        assert ends["6"] == "done fetched -"
        why = "reading it was ended by SIGKILL, and an earlier process of the crawl has died with it"
        assert ends["7"] == f"failed quarantined {why}"
        # The same command visits all pages again, and this one in a process of its own at once.
        assert crawl(web, tmp_path) == 0
        assert web.asked(web.url(0, "7")) == 3
        assert ends_of(tmp_path)["7"].startswith("failed quarantined")


def test_worker_processes_settle_a_page_that_kills_them_within_one_crawl(tmp_path: Path) -> None:
    with HostileWeb(1) as web:
        assert crawl(web, tmp_path, "--processes", "2") == 0
        assert ends_of(tmp_path)["7"].startswith("failed quarantined")


@pytest.mark.parametrize("limit_kib", [500_000, 700_000])
def test_a_crawl_without_memory_ends_with_a_message_and_is_resumed(tmp_path: Path, limit_kib: int) -> None:
    """Two bombs decode to 200 MB each. Nothing may hang, whichever allocation is refused."""
    with HostileWeb(2) as web:
        command = [
            sys.executable,
            "-m",
            "headway",
            "crawl",
            web.url(0),
            web.url(1, "bomb"),
            web.url(2, "bomb"),
        ]
        command += [
            "--allow-private",
            "--interval",
            "1ms",
            "--max-pages",
            "12",
            "-q",
            "-o",
            str(tmp_path / "run"),
        ]
        limited = ["bash", "-c", f'ulimit -v {limit_kib}; exec "$@"', "limited", *command]
        ended = subprocess.run(limited, check=False, capture_output=True, text=True, timeout=120)
        assert ended.returncode in {0, 5}, ended.stderr
        if ended.returncode:
            assert "the system gave no more memory" in ended.stderr
        assert subprocess.run(command, check=False, timeout=120).returncode == 3  # not all were crawled
    ends = [line.split(maxsplit=8)[8] for line in (tmp_path / "run/crawl.log").read_text().splitlines()]
    assert sum(end == "done fetched -" for end in ends) == 12
    assert sum(end.startswith("failed decompression-bomb") for end in ends) == 2
