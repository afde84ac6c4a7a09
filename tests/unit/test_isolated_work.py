"""Work that no budget bounds: it may crash, hang or fill the memory, and the crawl goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headway.model.page import Kind, Page, Site
from headway.pages.extract import Field, Rule, number_of
from headway.pages.parsed import ParseOptions
from headway.pages.url import page_of
from headway.plugins import PluginError
from headway.ports import Response
from headway.runtime.isolated import MOST_STRIKES, IsolatedWork, WorkJournal
from headway.units import Instant, Seconds

SITE = Site("http://site.example")
HTML = "text/html"
BODY = b"<h1>Title</h1><p>12</p>"
USERS = """
import os, signal, time

def crashes(url, html):
    os.kill(os.getpid(), signal.SIGSEGV)

def spins(url, html):
    while True:
        pass

def exits(url, html):
    os._exit(7)

def fills(url, html):
    big = []
    while True:
        big.append(bytearray(10_000_000))

def crashes_once(url, html):
    marker = html
    if not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return [{"pid": os.getpid()}]

def fails(url, html):
    raise ValueError("no such thing")

def works(url, html):
    print("said by a user's function")
    return [{"length": len(html)}]
"""


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "users_rules.py").write_text(USERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "users_rules"


async def items(name: str, body: bytes = BODY, *, pages: int = 1, **options: int) -> list[object]:
    rule = Rule(function=name) if ":" in name else Rule(fields=(Field("value", name, type="number"),))
    work = IsolatedWork({SITE: [rule]}, limit_s=1.0, **options)
    try:
        return [await work.items(f"{SITE}/{number}", SITE, HTML, body) for number in range(pages)]
    finally:
        await work.aclose()


@pytest.mark.parametrize(
    ("function", "how"),
    [
        ("crashes", "was ended by SIGSEGV"),
        ("exits", "ended its process with exit code 7"),
        ("spins", "took longer than 1 s"),
    ],
)
async def test_a_page_that_ends_its_process_twice_is_quarantined(users: str, function: str, how: str) -> None:
    ((found, problem),) = await items(f"{users}:{function}")  # type: ignore[misc]
    assert found == []
    assert problem == f"quarantined, without items: extraction {how}, twice"


async def test_a_page_that_fills_the_memory_ends_only_its_process(users: str) -> None:
    ((found, problem),) = await items(f"{users}:fills", most_bytes=1 << 30)  # type: ignore[misc]
    assert found == []
    assert problem == "quarantined, without items: extraction ran out of memory, twice"


async def test_a_process_that_died_once_is_started_again(users: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    ((found, problem),) = await items(f"{users}:crashes_once", str(marker).encode())  # type: ignore[misc]
    assert found[0]["pid"] != os.getpid()
    assert problem == ""


async def test_a_site_with_many_quarantined_pages_gives_no_more_items(users: str) -> None:
    ends = [problem for _, problem in await items(f"{users}:exits", pages=4)]  # type: ignore[misc]
    assert ends[3] == "no items: 3 pages of the site are quarantined"


async def test_a_function_that_raises_still_says_which_and_where(users: str) -> None:
    with pytest.raises(PluginError, match=r"users_rules:fails failed in .*ValueError: no such thing"):
        await items(f"{users}:fails")


async def test_functions_and_rules_give_what_they_gave_in_the_crawl_itself(users: str) -> None:
    ((found, _),) = await items(f"{users}:works")  # type: ignore[misc]
    assert found == [{"url": f"{SITE}/0", "length": len(BODY)}]
    ((found, _),) = await items("//p")  # type: ignore[misc]
    assert found == [{"url": f"{SITE}/0", "value": 12}]


async def test_a_hanging_page_does_not_keep_others_from_their_items(users: str) -> None:
    other = Site("http://other.example")
    work = IsolatedWork(
        {SITE: [Rule(function=f"{users}:spins")], other: [Rule(function=f"{users}:works")]}, limit_s=3600.0
    )
    try:
        hanging = [
            asyncio.ensure_future(work.items(f"{SITE}/{number}", SITE, HTML, BODY)) for number in range(3)
        ]
        found, _ = await work.items(f"{other}/", other, HTML, BODY)
        assert found == [{"url": f"{other}/", "length": len(BODY)}]
        assert not any(each.done() for each in hanging)
    finally:
        for each in hanging:
            each.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)
        await work.aclose()


@pytest.mark.parametrize("turns", [1, 2, 4, 8, 16])
async def test_no_process_is_left_behind_when_work_is_cancelled_while_one_starts(
    users: str, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def popen(*words: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(process := original(*words, **named))
        return process

    original = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", popen)
    work = IsolatedWork({SITE: [Rule(function=f"{users}:spins")]}, limit_s=3600.0)
    cancelled = asyncio.ensure_future(work.items(f"{SITE}/", SITE, HTML, BODY))
    for _ in range(turns):
        await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    await work.aclose()
    assert started
    assert all(process.returncode is not None for process in started)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7" * 18, int("7" * 18)),
        ("7" * 25, float("7" * 25)),
        ("7" * 5000, None),
        ("1." + "7" * 5000, float("1." + "7" * 5000)),
        ("-" + "9" * 400, None),
        ("7" * 1_000_000, None),
    ],
)
def test_a_number_of_any_length_is_a_value_that_can_be_stored(text: str, value: float | None) -> None:
    assert number_of(text) == value


# -- the journal ------------------------------------------------------------------------------------------

DIES = """
import os, signal, sys
from pathlib import Path
from headway.runtime.isolated import WorkJournal
journal = WorkJournal(Path(sys.argv[1]))
done = journal.begin("http://site.example/done")
journal.begin("http://site.example/poison")
journal.end(done)
os.kill(os.getpid(), signal.SIGKILL)
"""


def die(folder: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", DIES, str(folder)], check=False)
    assert ended.returncode == -signal.SIGKILL


def test_a_page_that_was_being_read_when_its_process_died_is_suspect(tmp_path: Path) -> None:
    die(tmp_path)
    journal = WorkJournal(tmp_path)
    assert journal.suspects == {"http://site.example/poison": 1}
    journal.close()
    die(tmp_path)
    journal = WorkJournal(tmp_path)
    assert journal.suspects == {"http://site.example/poison": MOST_STRIKES}
    journal.clear("http://site.example/poison")
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_the_pages_of_a_process_that_lives_are_not_suspect(tmp_path: Path) -> None:
    one = WorkJournal(tmp_path)
    one.begin("http://site.example/")
    # Another process may start while this one reads. It finds the file of this one locked.
    script = "import sys; from pathlib import Path; from headway.runtime.isolated import WorkJournal; "
    script += "journal = WorkJournal(Path(sys.argv[1])); print(len(journal.suspects)); journal.close()"
    told = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, capture_output=True)
    assert told.stdout.strip() == b"0"
    one.close()


def test_more_pages_than_places_are_read_without_being_noted(tmp_path: Path) -> None:
    journal = WorkJournal(tmp_path)
    places = [journal.begin(f"http://site.example/{number}") for number in range(200)]
    assert places[-1] == -1
    for place in places:
        journal.end(place)
    journal.close()


def response(body: bytes) -> Response:
    headers = (("content-type", HTML),)
    return Response(
        Kind.FETCHED, f"{SITE}/", Instant(0.0), Seconds(0.1), 200, headers, payload=body, body=body
    )


@pytest.fixture
async def work() -> AsyncIterator[IsolatedWork]:
    work = IsolatedWork({}, limit_s=5.0)
    yield work
    await work.aclose()


async def test_a_suspect_page_that_does_no_harm_may_be_read(work: IsolatedWork) -> None:
    page = page_of(f"{SITE}/")
    assert isinstance(page, Page)
    assert await work.trial(response(b"<a href=/x>x</a>" * 10_000), page, ParseOptions()) == ""
