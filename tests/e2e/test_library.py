"""headway from Python: every page comes once, a handle steers the crawl, leaving early loses nothing."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

import headway as hw
from headway import api
from headway.demoweb import QUICK, Served, ServedProcess, design_web


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


async def test_breaking_out_stops_the_crawl_and_the_same_call_resumes_it(
    served: Served, tmp_path: Path
) -> None:
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


def test_an_exception_of_the_reader_is_raised_and_the_crawl_can_be_resumed(
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


async def test_a_cancelled_reader_leaves_a_folder_that_can_be_resumed(served: Served, tmp_path: Path) -> None:
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
    monkeypatch.setattr(api, "_PAGES_AHEAD", 4)
    async with aclosing(hw.crawl(plan_of(served), out=tmp_path / "run")) as pages:
        await anext(pages)
        asked, before = -1, -2
        while asked != before:
            before = asked
            await asyncio.sleep(0.3)
            asked = sum(request.path != "/robots.txt" for request in served.requests())
    assert asked <= 1 + 4 + len(served.sites), "pages pile up in memory while nobody reads them"


# -- the handle ---------------------------------------------------------------------------------------------


async def test_a_handle_gives_every_page_once(served: Served, tmp_path: Path) -> None:
    async with hw.open(plan_of(served), out=tmp_path / "run") as run:
        assert run.is_running
        pages = [page.url async for page in run]
        assert not run.is_running
        assert run.view().done == len(pages)
    assert sorted(pages) == sorted(served.expected())


async def test_a_limit_holds_at_once_and_can_be_taken_back(served: Served, tmp_path: Path) -> None:
    async with hw.open(plan_of(served, "20 ms"), out=tmp_path / "run") as run:
        await anext(run)
        assert run.view().bound_bytes_per_s == 50e6
        await run.limit("5 Mbit/s")
        assert run.view().bound_bytes_per_s == 625_000
        await run.limit(100_000)
        assert run.view().bound_bytes_per_s == 100_000
        await run.limit(None)
        assert run.view().bound_bytes_per_s == 50e6
        with pytest.raises(hw.UnitError, match="unit is missing"):
            await run.limit("5")
        with pytest.raises(hw.JobError, match="not a rate"):
            await run.limit([5])  # type: ignore[arg-type]
        assert run.view().bound_bytes_per_s == 50e6


async def test_a_paused_crawl_asks_for_nothing_until_it_is_resumed(served: Served, tmp_path: Path) -> None:
    async with hw.open(plan_of(served, "20 ms"), out=tmp_path / "run") as run:
        pages = [(await anext(run)).url]
        await run.pause()
        while run.view().in_flight:
            await asyncio.sleep(0.01)
        asked = len(served.requests())
        await asyncio.sleep(0.2)  # ten intervals
        assert len(served.requests()) == asked
        await run.resume()
        pages += [page.url async for page in run]
    assert sorted(pages) == sorted(served.expected())


async def test_a_site_can_be_added_and_another_stopped(served: Served, tmp_path: Path) -> None:
    first, second, third = served.urls
    plan = hw.Plan(tasks=[first, third], allow_private=True, interval="20 ms", bandwidth="50 MB/s")
    async with hw.open(plan, out=tmp_path / "run") as run:
        pages = [await anext(run)]
        await run.add(second, deadline=dt.timedelta(hours=1), max_pages=3)
        await run.stop(third)
        pages += [page async for page in run]
        (added,) = (site for site in run.view().sites if second.startswith(site.site))
        assert added.deadline_at is not None
    of = {url: [page for page in pages if page.url.startswith(url)] for url in served.urls}
    expected = {url: [page for page in served.expected() if page.startswith(url)] for url in served.urls}
    assert len(of[first]) == len(expected[first])
    assert len(of[second]) == 3
    assert len(of[third]) < len(expected[third])


async def test_a_deadline_can_be_changed(served: Served, tmp_path: Path) -> None:
    url, due = served.urls[0], dt.datetime.now(dt.UTC) + dt.timedelta(hours=3)
    async with hw.open(plan_of(served, "20 ms"), out=tmp_path / "run") as run:
        await anext(run)
        await run.set_deadline(url, due)
        assert due.timestamp() in [site.deadline_at for site in run.view().sites]
        await run.set_deadline(url, None)
        assert None in [site.deadline_at for site in run.view().sites]


async def test_a_stopped_crawl_yields_the_pages_in_flight(served: Served, tmp_path: Path) -> None:
    run_folder = tmp_path / "run"
    async with hw.open(plan_of(served, "20 ms"), out=run_folder) as run:
        pages = [(await anext(run)).url]
        await run.stop()
        pages += [page.url async for page in run]
        with pytest.raises(hw.HeadwayError, match="has ended"):
            await run.pause()
    assert sorted(pages) == sorted(urls_of(run_folder)), "what was fetched was given"
    assert len(pages) < len(served.expected())


async def test_leaving_the_block_stops_the_crawl_and_the_same_call_resumes_it(
    served: Served, tmp_path: Path
) -> None:
    run_folder = tmp_path / "run"

    async def stumble() -> None:
        async with hw.open(plan_of(served, "20 ms"), out=run_folder) as run:
            await anext(run)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await stumble()
    async with hw.open(plan_of(served, "20 ms"), out=run_folder) as run:
        await anext(run)
    async with hw.open(plan_of(served, "20 ms"), out=run_folder):
        pass  # stopped before it has asked for anything
    before = urls_of(run_folder)
    assert len(before) < len(served.expected())
    async with hw.open(plan_of(served), out=run_folder) as run:
        rest = [page.url async for page in run]
    assert {*before, *rest} == set(served.expected())
    assert sorted(urls_of(run_folder)) == sorted(served.expected())


@pytest.mark.parametrize("cancels", [1, 2])
async def test_a_cancelled_block_leaves_a_folder_that_can_be_continued(
    served: Served, tmp_path: Path, cancels: int
) -> None:
    run_folder, has_page = tmp_path / "run", asyncio.Event()

    async def read() -> None:
        async with hw.open(plan_of(served, "20 ms"), out=run_folder) as run:
            async for _ in run:
                has_page.set()

    reading = asyncio.create_task(read())
    await has_page.wait()
    for _ in range(cancels):
        reading.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await reading
    async with hw.open(plan_of(served), out=run_folder) as run:
        async for _ in run:
            pass
    assert sorted(urls_of(run_folder)) == sorted(served.expected())


async def test_a_lost_store_is_reported_once(served: Served, tmp_path: Path) -> None:
    run_folder = tmp_path / "run"

    async def saw_off() -> None:
        async with hw.open(plan_of(served, "20 ms"), out=run_folder) as run:
            async for _ in run:
                (run_folder / "crawl.sqlite").unlink(missing_ok=True)

    with pytest.raises(hw.HeadwayError, match="removed or replaced during the crawl") as refusal:
        await saw_off()
    assert not hasattr(refusal.value, "__notes__")


async def test_a_run_that_is_not_open_says_how_to_open_it(served: Served, tmp_path: Path) -> None:
    run = hw.open(plan_of(served), out=tmp_path / "run")
    for call in (run.view, lambda: aiter(run).__anext__().send(None), lambda: run.pause().send(None)):
        with pytest.raises(hw.HeadwayError, match=r"async with headway\.open"):
            call()
    assert not (tmp_path / "run").exists()
    async with run:
        pass
    with pytest.raises(hw.HeadwayError, match="opened before"):
        await run.__aenter__()


NAIVE = dt.datetime.fromisoformat("2300-01-01")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bandwidth": "5"}, ["plan", "crawl.bandwidth", "unit is missing"]),
        ({"tasks": []}, ["plan", "no site"]),
        ({"tasks": [hw.Task("ftp://example.org/")]}, ["site.url", "http or https"]),
        ({"tasks": [hw.Task("http://example.org/", deadline="yesterday")]}, ["site.deadline", "'07:30'"]),
        ({"tasks": [hw.Task("http://example.org/", weight=0)]}, ["site.weight"]),
        ({"tasks": [7]}, ["site", "expected a table"]),
        ({"tasks": "http://example.org/"}, ["tasks is a list"]),
        ({"xyzzy": "red"}, ["no argument 'xyzzy'", "it has", "interval"]),
        ({"intervall": "5 s"}, ["no argument 'intervall'", "did you mean 'interval'?"]),
        ({"deadline": "5 h"}, ["no argument 'deadline'", "Task(url, deadline=...)"]),
        ({"deny": ["/a"]}, ["no argument 'deny'", "scope={'deny': ...}"]),
        ({"scope": {"denny": ["/a"]}}, ["crawl.scope.denny", "did you mean 'deny'?"]),
        ({"interval": -5}, ["crawl.interval", "must not be negative"]),
        ({"interval": float("nan")}, ["crawl.interval", "not a duration"]),
        ({"tasks": [hw.Task("http://example.org/", deadline=NAIVE)]}, ["no time zone"]),
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

    with pytest.raises(hw.HeadwayError, match="removed or replaced during the crawl"):
        await saw_off()


def test_the_version_is_the_same_from_everywhere() -> None:
    command = [sys.executable, "-m", "headway", "--version"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.split()[-1] == hw.__version__
    with pytest.raises(AttributeError, match="nonsense"):
        hw.nonsense  # noqa: B018
