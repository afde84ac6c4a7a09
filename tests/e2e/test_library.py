"""headway from Python: the pages come as promised, and leaving early by whichever way costs nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

import headway as hw
from headway.app import library
from headway.testing.demoweb import QUICK, Served, ServedProcess, design_web


@pytest.fixture
def served() -> Iterator[Served]:
    with ServedProcess(design_web(seed=21, scale=0.25, roster=("plain",) * 3, tempo=QUICK)) as served:
        yield served


def plan_of(served: Served, interval: str = "2 ms", **options: object) -> hw.Plan:
    tasks = [hw.Task(url, deadline="1 h", weight=2) for url in served.urls]
    return hw.Plan(bandwidth="50 MB/s", tasks=tasks, allow_private=True, interval=interval, **options)


def urls_of(run: Path) -> list[str]:
    return [json.loads(line)["url"] for line in (run / "pages.jsonl").read_text().splitlines()]


async def test_every_page_comes_once_with_what_was_fetched(served: Served, tmp_path: Path) -> None:
    pages = [page async for page in hw.crawl(plan_of(served), out=tmp_path / "run")]
    expected = served.expected()
    assert sorted(page.url for page in pages) == sorted(expected)
    for page in pages:
        assert page.status == 200
        assert page.content_type == expected[page.url].content_type.partition(";")[0]
        assert len(page.body) == expected[page.url].content_bytes
        assert page.depth == expected[page.url].depth
        assert bool(page.title) == bool(page.links) == (page.content_type == "text/html")
        assert page.warc_file is not None
        assert (tmp_path / "run" / page.warc_file).is_file()
    assert sorted(urls_of(tmp_path / "run")) == sorted(expected)


async def test_breaking_out_stops_the_crawl_and_the_same_call_goes_on(served: Served, tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with aclosing(hw.crawl(plan_of(served, "20 ms"), out=run)) as pages:
        async for _ in pages:
            break
    kept = urls_of(run)
    assert len(kept) < len(served.expected())
    rest = [page.url async for page in hw.crawl(plan_of(served), out=run)]
    assert sorted(urls_of(run)) == sorted(served.expected())
    assert set(rest) | set(kept) == set(served.expected())


def test_a_loop_left_without_ceremony_is_tidied_up_with_the_event_loop(
    served: Served, tmp_path: Path
) -> None:
    run = tmp_path / "run"

    async def leave() -> None:
        async for page in hw.crawl(plan_of(served, "20 ms"), out=run):
            if page.depth:
                break

    async def go_on() -> list[str]:
        return [page.url async for page in hw.crawl(plan_of(served), out=run)]

    asyncio.run(leave())
    asyncio.run(go_on())
    assert sorted(urls_of(run)) == sorted(served.expected())


def test_an_exception_of_the_reader_comes_through_and_the_crawl_can_be_taken_up(
    served: Served, tmp_path: Path
) -> None:
    run = tmp_path / "run"

    async def stumble() -> None:
        async for _ in hw.crawl(plan_of(served, "20 ms"), out=run):
            raise ZeroDivisionError

    async def go_on() -> None:
        async for _ in hw.crawl(plan_of(served), out=run):
            pass

    with pytest.raises(ZeroDivisionError):
        asyncio.run(stumble())
    asyncio.run(go_on())
    assert sorted(urls_of(run)) == sorted(served.expected())


async def test_a_cancelled_reader_leaves_a_folder_that_can_be_taken_up(
    served: Served, tmp_path: Path
) -> None:
    run, has_page = tmp_path / "run", asyncio.Event()

    async def read() -> None:
        async with aclosing(hw.crawl(plan_of(served, "20 ms"), out=run)) as pages:
            async for _ in pages:
                has_page.set()

    reading = asyncio.create_task(read())
    await has_page.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    async for _ in hw.crawl(plan_of(served), out=run):
        pass
    assert sorted(urls_of(run)) == sorted(served.expected())


async def test_the_crawl_waits_for_a_slow_reader(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_PAGES_AHEAD", 4)
    async with aclosing(hw.crawl(plan_of(served), out=tmp_path / "run")) as pages:
        await anext(pages)
        asked, before = -1, -2
        while asked != before:
            before = asked
            await asyncio.sleep(0.3)
            asked = sum(request.path != "/robots.txt" for request in served.requests())
    assert asked <= 1 + 4 + len(served.sites), "pages pile up in memory while nobody reads them"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bandwidth": "5"}, ["plan", "crawl.bandwidth", "unit is missing"]),
        ({"tasks": []}, ["plan", "no site"]),
        ({"tasks": [hw.Task("ftp://example.org/")]}, ["site.url", "http or https"]),
        ({"tasks": [hw.Task("http://example.org/", deadline="yesterday")]}, ["site.deadline", "'07:30'"]),
        ({"tasks": [hw.Task("http://example.org/", weight=0)]}, ["site.weight"]),
        ({"tasks": ["http://example.org/"]}, ["site", "expected a table"]),
        ({"colour": "red"}, ["crawl.colour", "no such key"]),
        ({"interval": 5}, ["crawl.interval", "unit is missing"]),
        ({"user_agent": "two\nlines"}, ["crawl.user_agent", "one line"]),
    ],
)
def test_a_bad_plan_is_refused_when_it_is_made(options: dict[str, object], words: list[str]) -> None:
    with pytest.raises(hw.HeadwayError) as refusal:
        hw.Plan(**{"tasks": [hw.Task("http://example.org/")], **options})
    for word in words:
        assert word in str(refusal.value)
    assert refusal.value.exit_code == 4


def test_a_proxy_that_is_none_is_refused_when_the_plan_is_made() -> None:
    with pytest.raises(hw.HeadwayError, match="proxy"):
        hw.Plan(tasks=[hw.Task("http://127.0.0.1:1/")], proxy="nonsense")


async def test_two_crawls_in_one_folder_are_refused(served: Served, tmp_path: Path) -> None:
    plan = plan_of(served, "20 ms")
    async with aclosing(hw.crawl(plan, out=tmp_path / "run")) as first:
        await anext(first)
        with pytest.raises(hw.HeadwayError, match="is crawling into this folder"):
            await anext(hw.crawl(plan, out=tmp_path / "run"))


async def test_a_store_that_is_lost_meanwhile_ends_the_loop_with_the_reason(
    served: Served, tmp_path: Path
) -> None:
    run = tmp_path / "run"

    async def saw_off() -> None:
        async for _ in hw.crawl(plan_of(served, "20 ms"), out=run):
            (run / "crawl.sqlite").unlink(missing_ok=True)

    with pytest.raises(hw.HeadwayError, match="removed or replaced while the crawl went on"):
        await saw_off()


def test_the_version_is_the_same_from_everywhere() -> None:
    command = [sys.executable, "-m", "headway", "--version"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.split()[-1] == hw.__version__
    with pytest.raises(AttributeError, match="nonsense"):
        hw.nonsense  # noqa: B018
