"""A crawl begun once more asks only for what has changed; sitemaps and feeds lead where no link does.

What is said of visiting again holds for one process and for several.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.rawserver import Answer, RawServer, page
from warcio.archiveiterator import ArchiveIterator

from headway.cluster.collecting import begin_recrawl
from headway.cluster.processes import ProcessRun
from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.runtime.crawling import CrawlRun
from headway.runtime.driver import WallClock
from headway.store.reader import RunReader
from headway.view.run import RunMonitor


def html(text: str) -> bytes:
    return f"<html><title>{text}</title><p>{text}".encode()


class Web:
    """A site whose pages have versions, validators and a sitemap."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {"/tagged": 0, "/dated": 0, "/plain": 0}
        self.extra = ""
        self.paths: dict[str, bytes | Answer] = {
            "/robots.txt": self._answer(lambda: f"Sitemap: {self.server.site}/sitemap.xml", "text/plain"),
            "/sitemap.xml": self._answer(self._sitemap, "application/xml"),
            "/": self._answer(
                lambda: (
                    '<link rel="alternate" type="application/atom+xml" href="/feed.atom">'
                    '<a href="/tagged">t</a><a href="/gone">g</a>'
                )
            ),
            "/feed.atom": self._answer(
                lambda: '<feed><entry><link href="/only-in-feed"/></entry></feed>', "application/atom+xml"
            ),
            "/only-in-feed": page(html("feed"), "Content-Type: text/html"),
            "/only-in-sitemap": page(html("sitemap"), "Content-Type: text/html"),
            "/new": page(html("new"), "Content-Type: text/html"),
            "/gone": page(html("gone"), "Content-Type: text/html"),
            "/tagged": self._versioned("/tagged", "ETag"),
            "/dated": self._versioned("/dated", "Last-Modified"),
            "/plain": self._versioned("/plain", ""),
        }
        self.server = RawServer(self.paths)

    def asked(self) -> list[str]:
        return [head.split(b" ")[1].decode() for head in self.server.requests]

    def heads_for(self, path: str) -> list[str]:
        return [head.decode() for head in self.server.requests if head.split(b" ")[1].decode() == path]

    def _sitemap(self) -> str:
        paths = ["/tagged", "/dated", "/plain", "/only-in-sitemap"]
        entries = "".join(f"<url><loc>{self.server.site}{path}</loc></url>" for path in paths)
        return f"<urlset>{entries}{self.extra}</urlset>"

    def _answer(self, body: Callable[[], str], media_type: str = "text/html") -> Answer:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(page(body().encode(), f"Content-Type: {media_type}"))

        return answer

    def _versioned(self, path: str, validator: str) -> Answer:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            version = self.versions[path]
            value = {"ETag": f'"v{version}"', "Last-Modified": f"Mon, 0{version + 1} Jan 2024 00:00:00 GMT"}
            wanted = f": {value.get(validator, 'nothing')}\r\n"
            if wanted in self.server.requests[-1].decode().partition("\r\n")[2]:
                writer.write(f"HTTP/1.1 304 Not Modified\r\n{validator}{wanted}\r\n".encode())
                return
            headers = [f"{validator}: {value[validator]}"] if validator else []
            writer.write(page(html(f"{path} {version}"), "Content-Type: text/html", *headers))

        return answer


def job_of(web: Web, **crawl: Any) -> Any:
    source = Source("test")
    settings = {"interval": "0 s", "allow_private": True, "max_attempts": 1, **crawl}
    tables = {"crawl": settings, "site": [{"url": web.server.site + "/"}]}
    return build_job(convert(tables, source), source)


several = pytest.mark.parametrize("processes", [1, 2])


def run_of(job: Any, folder: Path, processes: int = 1) -> CrawlRun | ProcessRun:
    return CrawlRun(job, folder) if processes == 1 else ProcessRun(job, folder, processes)


async def crawl(web: Web, folder: Path, processes: int = 1, **settings: Any) -> None:
    await asyncio.wait_for(run_of(job_of(web, **settings), folder, processes).run(), 30)


async def again(
    web: Web, folder: Path, older_than: str | None = None, processes: int = 1, **settings: Any
) -> int | None:
    web.server.requests.clear()
    count = begin_recrawl(folder, WallClock().now(), older_than)
    await crawl(web, folder, processes, **settings)
    return count


def fetched(folder: Path) -> list[str]:
    lines = (folder / "pages.jsonl").read_text().splitlines()
    return [json.loads(line)["url"].partition("//")[2].partition("/")[2] for line in lines]


def records(folder: Path) -> list[tuple[str, str, str]]:
    """Type, path and profile of what was archived, in order."""
    found = []
    for path in sorted((folder / "archive").iterdir(), key=lambda path: path.stat().st_mtime_ns):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                record.content_stream().read()
                if record.rec_type in {"response", "revisit"}:
                    url = record.rec_headers.get_header("WARC-Target-URI")
                    profile = record.rec_headers.get_header("WARC-Profile") or ""
                    found.append((record.rec_type, "/" + url.split("/", 3)[3], profile.rpartition("/")[2]))
    return found


async def test_sitemaps_and_feeds_lead_to_pages_that_no_link_leads_to(tmp_path: Path) -> None:
    web = Web()
    async with web.server:
        await crawl(web, tmp_path / "run")
        assert {"only-in-sitemap", "only-in-feed", "dated", "plain"} <= set(fetched(tmp_path / "run"))
        assert "sitemap.xml" not in fetched(tmp_path / "run"), "its type is not wanted"
        await crawl(web, tmp_path / "without", sitemaps=False, feeds=False)
        assert set(fetched(tmp_path / "without")) == {"", "tagged", "gone"}


@several
async def test_again_asks_only_for_what_has_changed(tmp_path: Path, processes: int) -> None:
    web = Web()
    async with web.server:
        await crawl(web, tmp_path, processes)
        before = len(records(tmp_path))
        web.versions["/tagged"] = 1
        assert await again(web, tmp_path, processes=processes) == 9
        assert 'If-None-Match: "v0"' in web.heads_for("/tagged")[0]
        assert "If-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT" in web.heads_for("/dated")[0]
        assert "If-" not in web.heads_for("/plain")[0]
        new = {path: (kind, profile) for kind, path, profile in records(tmp_path)[before:]}
        assert new["/tagged"] == ("response", "")
        assert new["/dated"] == ("revisit", "server-not-modified")
        assert new["/plain"] == ("revisit", "identical-payload-digest")
        assert "/sitemap.xml" not in new
        await again(web, tmp_path, processes=processes)
        assert 'If-None-Match: "v1"' in web.heads_for("/tagged")[0]
        assert "If-Modified-Since" in web.heads_for("/dated")[0], "a 304 keeps the validators that there were"


@several
async def test_a_page_counts_once_however_often_it_is_fetched(tmp_path: Path, processes: int) -> None:
    web = Web()
    async with web.server:
        await crawl(web, tmp_path, processes)
        with RunReader(tmp_path) as reader:
            first = reader.totals()
        for _ in range(2):
            await again(web, tmp_path, processes=processes)
        with RunReader(tmp_path) as reader:
            later = reader.totals()
    assert (first.done, first.failed, first.excluded) == (later.done, later.failed, later.excluded)
    assert later.waiting == 0


@several
async def test_a_page_that_has_gone_counts_as_failed_and_one_that_came_back_as_done(
    tmp_path: Path, processes: int
) -> None:
    web = Web()
    async with web.server:
        await crawl(web, tmp_path, processes)
        there = web.paths["/gone"]
        web.paths["/gone"] = page(b"no", status="404 Not Found")
        await again(web, tmp_path, processes=processes)
        with RunReader(tmp_path) as reader:
            assert reader.totals().failed == 1
        web.paths["/gone"] = there
        await again(web, tmp_path, processes=processes)
        with RunReader(tmp_path) as reader:
            assert reader.totals().failed == 0


async def test_only_old_copies_are_looked_at_when_asked_for(tmp_path: Path) -> None:
    web = Web()
    async with web.server:
        await crawl(web, tmp_path)
        assert await again(web, tmp_path, "1 h") == 0
        assert not web.asked()


async def test_an_interrupted_round_resumes(tmp_path: Path) -> None:
    web = Web()
    async with web.server:
        await crawl(web, tmp_path)
        assert begin_recrawl(tmp_path, WallClock().now()) == 9
        assert begin_recrawl(tmp_path, WallClock().now()) is None, "pages still wait"
        web.server.requests.clear()
        await crawl(web, tmp_path)
        assert sorted(web.asked()) == sorted(set(web.asked())), "no page twice"
        assert len(web.asked()) == 9


async def test_a_view_of_a_later_round_counts_what_the_round_asks_for(tmp_path: Path) -> None:
    web = Web()
    async with web.server:
        await crawl(web, tmp_path)
        assert begin_recrawl(tmp_path, WallClock().now()) == 9
        with RunMonitor(tmp_path) as monitor:
            before = monitor.view()
        assert (before.waiting, before.failed, before.progress) == (9, 0, 0.0)
        run = CrawlRun(job_of(web), tmp_path)
        await asyncio.wait_for(run.run(), 30)
        after = run.view()
        assert (after.waiting, after.done, after.progress) == (0, before.done, 1.0)
        with RunReader(tmp_path) as reader:
            assert reader.totals().done == after.done, "a page counts once, in however many rounds"


async def test_the_limit_of_pages_holds_for_new_ones_and_lets_known_ones_be_visited(tmp_path: Path) -> None:
    web = Web()
    async with web.server:
        await crawl(web, tmp_path, max_pages=3, feeds=False)
        known = set(fetched(tmp_path))
        web.extra = f"<url><loc>{web.server.site}/new</loc></url>"
        await again(web, tmp_path, max_pages=3, feeds=False)
        assert set(fetched(tmp_path)) == known
        assert len([path for path in web.asked() if path.strip("/") in known]) == 3


async def test_a_limit_that_is_raised_while_the_crawl_is_unfinished_lets_the_left_out_pages_in(
    tmp_path: Path,
) -> None:
    web = Web()
    async with web.server:
        await crawl(web, tmp_path, max_pages=3)
        assert len(fetched(tmp_path)) == 3
        with contextlib.closing(sqlite3.connect(tmp_path / "crawl.sqlite")) as store:
            left_out = "SELECT count(*) FROM page WHERE kind = 'site-limit'"
            done = "SELECT sum(done) FROM site"
            assert store.execute(left_out).fetchone()[0] > 0
            await crawl(web, tmp_path, max_pages=3)
            assert len(fetched(tmp_path)) == 3, "the same limit lets nothing in"
            await crawl(web, tmp_path, max_pages=4)
            assert len(fetched(tmp_path)) == 4
            await crawl(web, tmp_path)
            assert len(fetched(tmp_path)) == store.execute(done).fetchone()[0]
            assert store.execute(left_out + " AND id IN (SELECT page_id FROM seen)").fetchone() == (0,)
            assert store.execute("SELECT count(*) FROM outcome WHERE kind = 'site-limit'").fetchone() == (0,)


async def test_what_a_sitemap_says_is_new_is_found_by_the_next_round(tmp_path: Path) -> None:
    web = Web()
    async with web.server:
        await crawl(web, tmp_path)
        web.extra = f"<url><loc>{web.server.site}/new</loc></url>"
        await again(web, tmp_path)
        assert "new" in fetched(tmp_path)


@several
@pytest.mark.parametrize("adapt", [False, True])
async def test_pages_are_visited_every_so_often_until_it_is_ended(
    tmp_path: Path, adapt: bool, processes: int
) -> None:
    web = Web()
    async with web.server:
        # Several have their store in another process: until a visit is told there, some time passes.
        shortest, every, longest = (50, 100, 200) if processes == 1 else (1000, 1000, 2000)
        revisit = {"adapt": adapt, "shortest": f"{shortest} ms", "longest": f"{longest} ms"}
        job = job_of(web, every=f"{every} ms", revisit=revisit)
        run = run_of(job, tmp_path, processes)
        crawling = asyncio.ensure_future(run.run())
        while len(web.heads_for("/tagged")) < 4:
            assert not crawling.done()
            await asyncio.sleep(0.01)
        run.drain()
        await asyncio.wait_for(crawling, 10)
        asked_for_changes = ['If-None-Match: "v0"' in head for head in web.heads_for("/tagged")[:4]]
        # A visit after 50 ms may come before the first copy is on disk; then on, every one knows of it.
        assert not asked_for_changes[0]
        assert asked_for_changes[2:] == [True, True]
        # Taken up again it knows when each page is due.
        web.server.requests.clear()
        run = run_of(job, tmp_path, processes)
        crawling = asyncio.ensure_future(run.run())
        while not web.heads_for("/dated"):
            assert not crawling.done()
            await asyncio.sleep(0.01)
        run.stop()
        await asyncio.wait_for(crawling, 10)
        assert "If-Modified-Since" in web.heads_for("/dated")[0]


@several
async def test_a_page_that_a_sitemap_says_has_changed_is_visited_before_its_time(
    tmp_path: Path, processes: int
) -> None:
    web = Web()
    async with web.server:
        await crawl(web, tmp_path, processes)
        now = WallClock().now()
        with contextlib.closing(sqlite3.connect(tmp_path / "crawl.sqlite")) as store:
            store.execute("UPDATE page SET fetched_at = ?", (now - 1800,))
            store.execute("UPDATE page SET fetched_at = ? WHERE path = '/sitemap.xml'", (now - 7200,))
            store.commit()
        changed_at = dt.datetime.fromtimestamp(now - 600, dt.UTC).isoformat()
        web.extra = f"<url><loc>{web.server.site}/tagged</loc><lastmod>{changed_at}</lastmod></url>"
        assert await again(web, tmp_path, "1 h", processes) == 1
        assert web.asked() == ["/sitemap.xml", "/tagged"]
