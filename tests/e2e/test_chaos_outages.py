"""Names that cannot be resolved for a while, and servers that are all gone for a while: nothing is lost, and
nothing is fetched twice that had come."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.chaos.line import Line, html, not_found, whole

from headway.http import resolve
from headway.http.resolve import Address, ResolveError
from headway.runtime.crawling import CrawlRun
from headway.store.reader import RunReader

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.soak.crawling import build  # noqa: E402

PAGES = 40
OUTAGE_S = 0.6
PATIENT = {"max_attempts": 12, "retry_penalty": "50 ms", "backoff": "50 ms", "max_backoff": "200 ms"}


class Site:
    """A tree of pages that closes the connection after each, so that every page needs a new one."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.whole: Counter[str] = Counter()
        self.port = 0
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def wait_for(self, pages: int) -> None:
        while sum(self.whole.values()) < pages:
            await asyncio.sleep(0.01)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer, "")
        try:
            if await line.take_request():
                await self._answer(line)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _answer(self, line: Line) -> None:
        name = line.path.strip("/") or "0"
        if not name.isdecimal():
            await line.send(not_found())
            return
        self.asked[line.path] += 1
        number = int(name)
        links = " ".join(f'<a href="/{n}">x</a>' for n in (2 * number + 1, 2 * number + 2) if n < PAGES)
        await line.send(whole(html(f"Page {number}", f"words of {number}", links), "Connection: close"))
        self.whole[line.path] += 1


class Names:
    """A resolver that can be cut off; knows every name as this machine."""

    def __init__(self) -> None:
        self.is_gone = False
        self.refused = 0

    async def lookup(self, host: str, **_: Any) -> Sequence[Address]:
        if self.is_gone:
            self.refused += 1
            raise ResolveError("nobody answers")
        return [Address(socket.AF_INET, "127.0.0.1")]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names()
    monkeypatch.setattr(resolve, "system_lookup", names.lookup)
    defaults = resolve.Resolver.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "keep_s", 0.0)
    monkeypatch.setitem(defaults, "keep_failure_s", 0.1)
    return names


def check(run: Path, site: Site) -> None:
    with RunReader(run) as reader:
        totals = reader.totals()
        urls = [page.url for page in reader.pages() if page.state == "done"]
    assert (totals.done, totals.failed, totals.waiting) == (PAGES, 0, 0)
    assert len(set(urls)) == len(urls) == PAGES
    assert set(site.whole.values()) == {1}, "nothing that came whole is asked for again"


@pytest.mark.parametrize("pages_before", [0, 7], ids=["from-the-start", "in-mid-crawl"])
async def test_names_that_are_gone_for_a_while_cost_no_page(
    tmp_path: Path, names: Names, pages_before: int
) -> None:
    site = Site()
    await site.open()
    names.is_gone = pages_before == 0
    job = build([{"url": f"http://a.test:{site.port}/"}], scope={"max_depth": 10}, **PATIENT)
    crawl = asyncio.ensure_future(CrawlRun(job, tmp_path / "run").run())
    await site.wait_for(pages_before)
    names.is_gone = True
    await asyncio.sleep(OUTAGE_S)
    names.is_gone = False
    await asyncio.wait_for(crawl, 60)
    await site.close()
    assert names.refused
    check(tmp_path / "run", site)


async def test_servers_that_are_all_gone_for_a_while_cost_no_page(tmp_path: Path, names: Names) -> None:
    sites = [Site(), Site(), Site()]
    for site in sites:
        await site.open()
    urls = [{"url": f"http://host{number}.test:{site.port}/"} for number, site in enumerate(sites)]
    crawl = asyncio.ensure_future(
        CrawlRun(build(urls, scope={"max_depth": 10}, **PATIENT), tmp_path / "run").run()
    )
    await sites[0].wait_for(10)
    for site in sites:
        await site.close()
    await asyncio.sleep(OUTAGE_S)
    for site in sites:
        await site.open()
    await asyncio.wait_for(crawl, 60)
    for site in sites:
        await site.close()
    assert not names.refused
    with RunReader(tmp_path / "run") as reader:
        totals = reader.totals()
        retried = sum(each.count for each in reader.outcomes() if each.state == "waiting")
    assert (totals.done, totals.failed, totals.waiting) == (3 * PAGES, 0, 0)
    assert retried, "somebody must have noticed"
    assert all(set(site.whole.values()) == {1} for site in sites)
