"""Two hosts with the same content are noticed, and the second is left alone if the job says so."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.chaos.line import Line, html, not_found, whole

from headway.runtime.crawling import CrawlRun
from headway.store.reader import RunReader
from headway.view.summary import summarise

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.soak.crawling import build  # noqa: E402

PAGES = 120


def body(number: int, flavour: str) -> bytes:
    links = " ".join(f'<a href="/{n}">next</a>' for n in (2 * number + 1, 2 * number + 2) if n < PAGES)
    return html(f"Page {number}", " ".join(f"{flavour}{number}-{word}" for word in range(50)), links)


@asynccontextmanager
async def served(flavour: str) -> AsyncIterator[str]:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer, "")
        try:
            while await line.take_request():
                name = line.path.strip("/") or "0"
                found = name.isdecimal() and int(name) < PAGES
                await line.send(whole(body(int(name), flavour)) if found else not_found())
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


async def crawled(folder: Path, **options: object) -> tuple[Path, list[str]]:
    async with served("one") as first, served("one") as second, served("other") as third:
        sites = [{"url": f"{origin}/"} for origin in (first, second, third)]
        job = build(sites, pages_per_connection=1000, scope={"max_depth": 100}, **options)
        await CrawlRun(job, folder / "run").run()
    return folder / "run", [first, second, third]


def pages_of(run: Path) -> dict[str, int]:
    with RunReader(run) as reader:
        return {row.site: row.done for row in reader.sites()}


async def test_a_mirror_is_reported_and_crawled_all_the_same(tmp_path: Path) -> None:
    run, origins = await crawled(tmp_path)
    notices = summarise(run).noticed.notices
    assert [notice.what for notice in notices] == ["mirror"]
    assert {notices[0].site, notices[0].subject} == set(origins[:2])
    assert pages_of(run) == dict.fromkeys(origins, PAGES)


async def test_a_mirror_is_skipped_where_the_job_says_so(tmp_path: Path) -> None:
    run, origins = await crawled(tmp_path, mirrors="skip")
    seen = summarise(run).noticed
    (mirror,) = (notice.site for notice in seen.notices)
    done = pages_of(run)
    assert done[mirror] < PAGES
    assert [done[origin] for origin in origins if origin != mirror] == [PAGES, PAGES]
    (reason,) = seen.left_out
    assert reason.startswith("mirror of http://127.0.0.1:")


@pytest.mark.parametrize("options", [{"mirrors": "ignore"}, {"near_duplicates": False}])
async def test_nothing_is_noticed_with_detection_off(tmp_path: Path, options: dict[str, object]) -> None:
    run, origins = await crawled(tmp_path, **options)
    assert summarise(run).noticed.notices == ()
    assert pages_of(run) == dict.fromkeys(origins, PAGES)
