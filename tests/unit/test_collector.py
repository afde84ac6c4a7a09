"""The collector keeps what came in one turn of the loop in one go, and none of it is lost on the way."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Collection, Iterator, Mapping

from tests.support.script import LoopClock
from tests.support.virtualtime import run_in_virtual_time

from headway.errors import StoreError
from headway.model.command import FetchPage
from headway.model.event import Event, PageSettled
from headway.model.page import Capture, Kind, Lease, Page, PageKey, Site
from headway.pages.parsed import ParseOptions
from headway.ports import Made, Original, Request, Response
from headway.runtime.collector import KnownPages, MakeRoom, PageReading, WebCollector, _is_soon_parsed
from headway.units import BytesPerSecond, Instant, Seconds

SITES = tuple(Site(f"http://s{number}.test") for number in range(4))


class Web:
    """Answers all that it was asked in one turn of the loop; tells in which order things are done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.answers = asyncio.Event()

    async def fetch(self, request: Request) -> Response:
        await self.answers.wait()
        return self.answer(request)

    def answer(self, request: Request) -> Response:
        self.done.append(f"fetched {request.site}")
        body = f"<title>{request.site}</title>".encode()
        html = (("content-type", "text/html"),)
        return Response(
            Kind.FETCHED,
            request.url,
            Instant(0.0),
            Seconds(1.0),
            status=200,
            headers=html,
            head=b"HTTP/1.1 200 OK\r\n\r\n",
            payload=body,
            body=body,
        )

    def set_rates(self, rates_bytes_per_s: Mapping[Site, BytesPerSecond]) -> None: ...

    def set_capacity(self, capacity_bytes_per_s: BytesPerSecond) -> None: ...

    def bytes_received(self) -> int:
        return 0

    def cut(self, sites: Collection[Site] | None) -> None: ...

    def set_contention(self, most_stalled: int | None) -> None: ...

    async def address_of(self, site: Site) -> str:
        return ""

    def bytes_sent(self) -> int:
        return 0

    def round_trips(self) -> Iterator[tuple[str, float]]:
        return iter(())

    async def aclose(self) -> None: ...


class PromptWeb(Web):
    """Needs no task for a request."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Request, Callable[[Response], None]]] = []

    def fetch_at_once(self, request: Request, then: Callable[[Response], None]) -> bool:
        self.asked.append((request, then))
        return True

    def answer_all(self) -> None:
        for request, then in self.asked:
            then(self.answer(request))
        self.asked.clear()


class Shelf:
    """An archive that has no room for one site."""

    def __init__(self, web: Web, full_for: Site | None = None) -> None:
        self._web = web
        self._full_for = full_for

    def make(self, response: Response, digest: str, *, is_known: bool) -> Made | None:
        raise AssertionError("no answer here is long")

    def write_some(self) -> bool:
        raise AssertionError("no answer here is long")

    def write(
        self,
        response: Response,
        *,
        digest: str,
        revisit_of: Original | None = None,
        made: Made | None = None,
        preferences: Mapping[str, bool] | None = None,
    ) -> Capture:
        site = response.url.removesuffix("/")
        if site == self._full_for:
            raise StoreError("the disk is full")
        self._web.done.append(f"kept {site}")
        return Capture("archive/x.warc.gz", 0, 1)

    def flush(self) -> Mapping[str, int]:
        return {}

    def close(self) -> None: ...


class Crawled:
    def __init__(self) -> None:
        self.settled: list[Site] = []
        self.problems: list[BaseException] = []
        self.is_over = False

    def tell(self, event: Event) -> None:
        assert not self.is_over
        assert isinstance(event, PageSettled)
        self.settled.append(event.lease.page.site)

    def fail(self, problem: BaseException) -> None:
        self.problems.append(problem)


def collected(
    web: Web, shelf: Shelf, *, ends_in_the_same_turn: bool = False, make_room: MakeRoom | None = None
) -> Crawled:
    async def crawl() -> Crawled:
        collector = WebCollector(
            web,
            shelf,
            LoopClock(),
            reading=PageReading(ParseOptions(), "test"),
            known=KnownPages(lambda _: None),
            make_room=make_room,
        )
        crawled = Crawled()
        collector.attach(crawled)
        for number, site in enumerate(SITES):
            lease = Lease(number, Page(f"{site}/", site, PageKey(number)), 0, Instant(100.0))
            collector.start(Instant(0.0), FetchPage(lease))
        await asyncio.sleep(1.0)
        web.answers.set()
        if isinstance(web, PromptWeb):
            web.answer_all()
        await asyncio.sleep(0.0 if ends_in_the_same_turn else 1.0)
        await collector.aclose()
        crawled.is_over = True
        return crawled

    return run_in_virtual_time(crawl())


def test_what_came_in_one_turn_is_kept_in_one_go() -> None:
    web = Web()
    assert collected(web, Shelf(web)).settled == list(SITES)
    assert web.done == [*(f"fetched {site}" for site in SITES), *(f"kept {site}" for site in SITES)]


def test_what_was_looked_at_when_the_crawl_ends_is_kept() -> None:
    web = Web()
    crawled = collected(web, Shelf(web), ends_in_the_same_turn=True)
    fetched = [each.removeprefix("fetched ") for each in web.done if each.startswith("fetched ")]
    assert fetched
    assert crawled.settled == fetched


def test_a_page_that_cannot_be_kept_fails_alone() -> None:
    web = Web()
    crawled = collected(web, Shelf(web, full_for=SITES[1]))
    assert crawled.settled == [SITES[0], *SITES[2:]]
    assert [str(problem) for problem in crawled.problems] == ["the disk is full"]


def test_without_a_task_for_each_it_is_the_same() -> None:
    web = PromptWeb()
    assert collected(web, Shelf(web)).settled == list(SITES)
    assert web.done == [*(f"fetched {site}" for site in SITES), *(f"kept {site}" for site in SITES)]


def test_without_a_task_for_each_what_came_when_the_crawl_ends_is_kept() -> None:
    web = PromptWeb()
    assert collected(web, Shelf(web), ends_in_the_same_turn=True).settled == list(SITES)


def test_without_a_task_for_each_a_page_that_cannot_be_kept_fails_alone() -> None:
    web = PromptWeb()
    crawled = collected(web, Shelf(web, full_for=SITES[1]))
    assert crawled.settled == [SITES[0], *SITES[2:]]
    assert [str(problem) for problem in crawled.problems] == ["the disk is full"]


def test_what_comes_after_the_end_is_not_heard_of() -> None:
    web = PromptWeb()
    asked: list[tuple[Request, Callable[[Response], None]]] = []
    answer_all, web.answer_all = web.answer_all, lambda: asked.extend(web.asked)  # type: ignore[method-assign]
    crawled = collected(web, Shelf(web))
    assert len(asked) == len(SITES)
    answer_all()
    assert (crawled.settled, crawled.problems) == ([], [])


def test_a_page_is_not_kept_before_there_is_room() -> None:
    web = PromptWeb()

    def make_room() -> asyncio.Future[None] | None:
        asked = len([each for each in web.done if each == "asked for room"])
        web.done.append("asked for room")
        if asked:
            return None
        room = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.5, lambda: (web.done.append("room"), room.set_result(None)))
        return room

    crawled = collected(web, Shelf(web), make_room=make_room)
    assert crawled.settled == [*SITES[1:], SITES[0]]
    assert web.done.index("room") < web.done.index(f"kept {SITES[0]}")


def test_what_may_be_a_small_packet_of_a_long_list_is_not_parsed_in_the_loop() -> None:
    assert _is_soon_parsed(b"<urlset>")
    assert not _is_soon_parsed(gzip.compress(bytes(1000)))
