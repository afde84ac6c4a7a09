"""From an order to a fact: fetch, look at the answer, archive it, and hand its links back.

Nothing is decided here that the machine could decide: an answer is classified, not acted upon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from headway.fetch.robots import MAX_ROBOTS_BYTES, ROBOTS_LIFETIME_S, decode_robots, judge
from headway.live.aside import Aside
from headway.live.classify import outcome_of
from headway.live.keeping import Keeper
from headway.live.orders import Fail, Settle
from headway.live.recrawl import conditions
from headway.model.command import FetchPage, FetchRobots, SetCapacity, SetRates
from headway.model.copy import Copy
from headway.model.event import Again, Found, RobotsSettled
from headway.model.outcome import Capture, Kind, Outcome
from headway.model.page import Lease, Page, is_again
from headway.model.robots import RobotsRules
from headway.parse.document import REDIRECT_STATUSES, parse
from headway.parse.extract import Extractor, Item
from headway.parse.listing import types_to_read
from headway.parse.parsed import Parsed, ParseOptions
from headway.parse.url import page_of
from headway.ports import Archive, Clock, Fetcher, Original, Request, Response
from headway.units import Instant

# Above these sizes a hostile page, or the rules of a hostile site, could hold up everybody for a second.
_PARSED_IN_PLACE_BYTES = 64 * 1024
_RULES_READ_IN_PLACE_BYTES = 16 * 1024
_TAKEN_AT_ONCE = 2000
"""Of the pages on a long list. Taking in fifty thousand in one go would hold up everybody for a second."""

_MOST_SITEMAPS = 1000
MakeRoom = Callable[[], Awaitable[object] | None]
LookUp = Callable[[Sequence[Page], str], Awaitable[None] | None]
"""Of pages, or of a digest. None from these: there is nothing to wait for, as for nearly every page."""
_KEPT = frozenset({Kind.FETCHED, Kind.DUPLICATE, Kind.NOT_MODIFIED})


class Collected(msgspec.Struct, frozen=True):
    """A page as the library's user sees it."""

    page: Page
    response: Response
    parsed: Parsed | None
    outcome: Outcome
    capture: Capture | None
    items: Sequence[Item] = ()
    """What the job's rules found on it."""


class _Answered(NamedTuple):
    """A page that is looked at, and has only to be kept."""

    lease: Lease
    response: Response
    parsed: Parsed | None
    copy: Copy | None
    items: Sequence[Item]
    settle: Settle
    fail: Fail


class WebCollector:
    """Implements `live.driver.Collector` over the real web."""

    def __init__(
        self,
        fetcher: Fetcher,
        archive: Archive,
        find_digest: Callable[[str], Original | None],
        clock: Clock,
        *,
        user_agent: str,
        accept_types: frozenset[str] | None,
        parse_options: ParseOptions,
        on_page: Callable[[Collected], None] | None = None,
        make_room: MakeRoom | None = None,
        find_copy: Callable[[Page], Copy | None] | None = None,
        extractor: Extractor | None = None,
        look_up: LookUp | None = None,
        recrawls: bool = True,
    ) -> None:
        """`look_up` is awaited before `find_copy` or `find_digest` are asked of something new, `make_room`
        before a page is kept and handed to `on_page`; `find_copy` says what there is of one fetched again.
        `recrawls`: what a list says has changed is fetched again, where there is a `find_copy`."""
        self._fetcher = fetcher
        self._clock = clock
        self._user_agent = user_agent
        self._accept_types = accept_types
        self._parse_options = parse_options
        self._on_page = on_page
        self._make_room = make_room
        self._find_copy = find_copy
        self._extractor = extractor
        self._look_up = look_up
        self._recrawls = recrawls and find_copy is not None
        self._keeper = Keeper(archive, find_digest, clock, accept_types if self._reads_lists else None)
        self._aside = Aside()
        self._tasks: set[asyncio.Task[None]] = set()
        self._answered: list[_Answered] = []

    def start(self, command: FetchPage | FetchRobots, settle: Settle, fail: Fail) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(self._carry_out(command, settle, fail)))

    def set_rates(self, command: SetRates) -> None:
        self._fetcher.set_rates(command.rates_bytes_per_s)

    def set_capacity(self, command: SetCapacity) -> None:
        self._fetcher.set_capacity(command.capacity_bytes_per_s)

    def committed(self) -> None:
        """What was archived until now can be found in the store."""
        self._keeper.committed()

    async def aclose(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._keep_answered()
        await self._fetcher.aclose()
        self._aside.close()

    async def _carry_out(self, command: FetchPage | FetchRobots, settle: Settle, fail: Fail) -> None:
        # Looked after in here: a callback when the task is done would be one more turn of the loop.
        try:
            if isinstance(command, FetchPage):
                await self._page(command, settle, fail)
            else:
                await self._robots(command, settle)
        except asyncio.CancelledError:
            raise
        except BaseException as problem:
            fail(problem)
            if not isinstance(problem, Exception):
                raise
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.discard(task)

    # -- a page -----------------------------------------------------------------------------------------

    async def _page(self, command: FetchPage, settle: Settle, fail: Fail) -> None:
        lease, page = command.lease, command.lease.page
        look_up = self._look_up
        if look_up is not None and is_again(lease.attempt) and (asked := look_up((page,), "")) is not None:
            await asked
        copy = self._copy_of(lease)
        accepted = self._accept_types
        if accepted is not None and self._reads_lists:
            accepted |= types_to_read(page.url)
        request = Request(page.url, page.site, conditions(copy), command.close_after, accepted)
        response = await self._fetcher.fetch(request)
        parsed = await self._parse(response, page) if response.kind is Kind.FETCHED else None
        items = await self._extract(response, page) if self._extractor and parsed is not None else ()
        digest = self._keeper.unknown_digest(response, parsed, copy) if look_up is not None else ""
        if look_up is not None and digest and (asked := look_up((), digest)) is not None:
            await asked
        if self._make_room is not None and (room := self._make_room()) is not None:
            await room
        if parsed is not None and parsed.is_list:
            await self._take_in_list(parsed, settle)
        if not self._answered:
            asyncio.get_running_loop().call_soon(self._keep_answered)
        self._answered.append(_Answered(lease, response, parsed, copy, items, settle, fail))

    def _keep_answered(self) -> None:
        """What came in one turn of the loop is kept in one go: from the second page on, all that archiving
        needs is in the processor's caches."""
        answered, self._answered = self._answered, []
        for each in answered:
            try:
                self._keep(each)
            except Exception as problem:
                each.fail(problem)

    def _keep(self, each: _Answered) -> None:
        # From here to `settle` without a pause: what is in the archive must have its row in the same commit.
        settled = self._keeper.keep(each.lease, each.response, each.parsed, each.copy)
        if self._on_page is not None:
            page, outcome, capture = each.lease.page, settled.outcome, settled.capture
            self._on_page(Collected(page, each.response, each.parsed, outcome, capture, each.items))
        each.settle(settled)

    def _copy_of(self, lease: Lease) -> Copy | None:
        if self._find_copy is None or not is_again(lease.attempt):
            return None
        return self._find_copy(lease.page)

    @property
    def _reads_lists(self) -> bool:
        return self._parse_options.read_sitemaps or self._parse_options.read_feeds

    async def _take_in_list(self, parsed: Parsed, settle: Settle) -> None:
        """A part at a time, and before the list itself is settled: killed in between, it is read again."""
        for begin in range(0, len(parsed.links), _TAKEN_AT_ONCE):
            part = parsed.links[begin : begin + _TAKEN_AT_ONCE]
            settle(Found(part))
            if self._recrawls and (changed := await self._changed_since(part, parsed)):
                settle(Again(changed, self._clock.now()))
            await asyncio.sleep(0)

    async def _changed_since(self, pages: Sequence[Page], parsed: Parsed) -> tuple[Page, ...]:
        """The pages on a list that it says have changed since they were last fetched."""
        assert self._find_copy is not None
        dated = [page for page in pages if parsed.modified_at.get(page.key) is not None]
        if self._look_up is not None and (asked := self._look_up(dated, "")) is not None:
            await asked
        changed = []
        for page in dated:
            modified_at, copy = parsed.modified_at[page.key], self._find_copy(page)
            if copy is None or copy.is_waiting:
                continue
            if copy.kind in _KEPT and copy.fetched_at < modified_at <= self._clock.now():
                changed.append(page)
        return tuple(changed)

    async def _parse(self, response: Response, page: Page) -> Parsed:
        if len(response.body) <= _PARSED_IN_PLACE_BYTES:
            return parse(response, page, self._parse_options)
        return await self._aside.run(parse, response, page, self._parse_options)

    async def _extract(self, response: Response, page: Page) -> Sequence[Item]:
        if self._extractor is None or not 200 <= response.status < 300:
            return ()
        work = (page.url, page.site, response.header("content-type"), response.body)
        if len(response.body) <= _PARSED_IN_PLACE_BYTES:
            return self._extractor.items(*work)
        return await self._aside.run(self._extractor.items, *work)

    # -- robots.txt -------------------------------------------------------------------------------------

    async def _robots(self, command: FetchRobots, settle: Settle) -> None:
        site = command.site
        response = await self._fetcher.fetch(Request(command.url, site, max_body_bytes=MAX_ROBOTS_BYTES))
        outcome = outcome_of(self._clock.now(), response, None, is_known=False)
        is_answer = response.kind is Kind.FETCHED
        rules = await self._judge(response) if is_answer else None
        expires_at = Instant(self._clock.now() + ROBOTS_LIFETIME_S)
        text = decode_robots(response.body) if is_answer and 200 <= response.status < 300 else ""
        named = rules.sitemaps[:_MOST_SITEMAPS] if rules is not None and self._reads_sitemaps else ()
        lists = tuple(page for url in named if (page := page_of(url, response.url)) is not None)
        settle(RobotsSettled(site, rules, expires_at, outcome, text, _leads_to(response), lists))

    @property
    def _reads_sitemaps(self) -> bool:
        return self._parse_options.read_sitemaps

    async def _judge(self, response: Response) -> RobotsRules | None:
        if len(response.body) <= _RULES_READ_IN_PLACE_BYTES:
            return judge(response.status, response.body, self._user_agent)
        return await self._aside.run(judge, response.status, response.body, self._user_agent)


def _leads_to(response: Response) -> str | None:
    """Where a redirect of robots.txt leads. Too many of them in a row count as an answer without rules."""
    location = response.header("location")
    if response.status not in REDIRECT_STATUSES or not location:
        return None
    target = page_of(location, base=response.url)
    return target.url if target is not None and target.url != response.url else None
