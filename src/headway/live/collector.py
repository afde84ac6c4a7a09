"""From an order to a fact: fetch, look at the answer, archive it, and hand its links back.

Nothing is decided here that the machine could decide: an answer is classified, not acted upon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import NamedTuple, TypeVarTuple

import msgspec

from headway.live.aside import Aside
from headway.live.keeping import Keeper
from headway.live.orders import Fail, Settle
from headway.live.recrawl import conditions
from headway.live.robots import RobotsAsker
from headway.model.command import FetchPage, FetchRobots, SetCapacity, SetRates
from headway.model.copy import Copy
from headway.model.event import Again, Found
from headway.model.outcome import Capture, Kind, Outcome
from headway.model.page import Lease, Page, is_again
from headway.parse.document import parse
from headway.parse.extract import Extractor, Item
from headway.parse.listing import GZIP_MARK, types_to_read
from headway.parse.parsed import Parsed, ParseOptions
from headway.ports import Archive, Clock, Fetcher, Original, PromptFetcher, Request, Response

Ts = TypeVarTuple("Ts")

_PARSED_IN_PLACE_BYTES = 64 * 1024
"""Above this size a hostile page could hold up everybody for a second."""
_IN_ONE_GO = 8
"""Pages that are looked at, and then archived, while their octets may still be in the processor's caches."""
_TAKEN_AT_ONCE = 2000
"""Of the pages on a long list. Taking in fifty thousand in one go would hold up everybody for a second."""

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


class _Arrived(NamedTuple):
    """An answer that nobody has looked at yet."""

    lease: Lease
    response: Response
    settle: Settle
    fail: Fail


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
        self._asker = RobotsAsker(
            fetcher, clock, self._aside, user_agent, reads_sitemaps=parse_options.read_sitemaps
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_once = fetcher.fetch_at_once if isinstance(fetcher, PromptFetcher) else None
        self._ordered: list[tuple[FetchPage, Settle, Fail]] = []
        self._arrived: list[_Arrived] = []
        self._answered: list[_Answered] = []
        self._is_closed = False

    def start(self, command: FetchPage | FetchRobots, settle: Settle, fail: Fail) -> None:
        if isinstance(command, FetchRobots):
            self._begin(fail, self._robots, command, settle)
            return
        if not self._ordered:
            asyncio.get_running_loop().call_soon(self._start_ordered)
        self._ordered.append((command, settle, fail))

    def _start_ordered(self) -> None:
        """One request after the other, not each where the machine ordered it: there is much work between two
        orders."""
        ordered, self._ordered = self._ordered, []
        for command, settle, fail in ordered:
            try:
                if not self._starts_at_once(command, settle, fail):
                    self._begin(fail, self._page, command, settle, fail)
            except Exception as problem:
                fail(problem)

    def set_rates(self, command: SetRates) -> None:
        self._fetcher.set_rates(command.rates_bytes_per_s)

    def set_capacity(self, command: SetCapacity) -> None:
        self._fetcher.set_capacity(command.capacity_bytes_per_s)

    def committed(self) -> None:
        """What was archived until now can be found in the store."""
        self._keeper.committed()

    async def aclose(self) -> None:
        self._take_arrived()
        self._ordered.clear()
        self._is_closed = True
        await asyncio.sleep(0)  # a task cancelled before its first step would never await what it was given
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._keep_answered()
        await self._fetcher.aclose()
        self._aside.close()

    def _begin(self, fail: Fail, work: Callable[[*Ts], Coroutine[None, None, None]], *args: *Ts) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(self._carry_out(fail, work, *args)))

    async def _carry_out(
        self, fail: Fail, work: Callable[[*Ts], Coroutine[None, None, None]], *args: *Ts
    ) -> None:
        # Looked after in here: a callback when the task is done would be one more turn of the loop.
        try:
            await work(*args)
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

    def _starts_at_once(self, command: FetchPage, settle: Settle, fail: Fail) -> bool:
        """As most pages can be: without a task, and what comes in one turn is looked at in one go."""
        lease = command.lease
        if self._at_once is None or self._extractor is not None or is_again(lease.attempt):
            return False
        return self._at_once(self._request(command, None), partial(self._arrive, lease, settle, fail))

    def _arrive(self, lease: Lease, settle: Settle, fail: Fail, response: Response) -> None:
        if self._is_closed:
            return
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._take_arrived)
        self._arrived.append(_Arrived(lease, response, settle, fail))

    def _take_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        for begin in range(0, len(arrived), _IN_ONE_GO):
            for each in arrived[begin : begin + _IN_ONE_GO]:
                try:
                    self._take_in(each)
                except Exception as problem:
                    each.fail(problem)
            self._keep_answered()

    def _take_in(self, each: _Arrived) -> None:
        lease, response, settle, fail = each
        parsed = None
        if response.kind is Kind.FETCHED:
            if not _is_soon_parsed(response.body):
                self._begin(fail, self._look_at, lease, response, None, settle, fail)
                return
            parsed = parse(response, lease.page, self._parse_options)
        answered = _Answered(lease, response, parsed, None, (), settle, fail)
        asked, room = self._ask_for(answered), None
        if asked is None and (parsed is None or not parsed.is_list):
            room = self._make_room() if self._make_room is not None else None
            if room is None:
                self._answered.append(answered)
                return
        self._begin(fail, self._wait_and_keep, answered, asked, room)

    async def _page(self, command: FetchPage, settle: Settle, fail: Fail) -> None:
        lease, page = command.lease, command.lease.page
        look_up = self._look_up
        if look_up is not None and is_again(lease.attempt) and (asked := look_up((page,), "")) is not None:
            await asked
        copy = self._copy_of(lease)
        response = await self._fetcher.fetch(self._request(command, copy))
        await self._look_at(lease, response, copy, settle, fail)

    def _request(self, command: FetchPage, copy: Copy | None) -> Request:
        page, accepted = command.lease.page, self._accept_types
        if accepted is not None and self._reads_lists:
            accepted |= types_to_read(page.url)
        return Request(page.url, page.site, conditions(copy), command.close_after, accepted)

    async def _look_at(
        self, lease: Lease, response: Response, copy: Copy | None, settle: Settle, fail: Fail
    ) -> None:
        page = lease.page
        parsed = await self._parse(response, page) if response.kind is Kind.FETCHED else None
        items = await self._extract(response, page) if self._extractor and parsed is not None else ()
        answered = _Answered(lease, response, parsed, copy, items, settle, fail)
        await self._wait_and_keep(answered, self._ask_for(answered), None)

    def _ask_for(self, each: _Answered) -> Awaitable[None] | None:
        """Whether the content is known elsewhere, where others crawl as well."""
        if self._look_up is None:
            return None
        digest = self._keeper.unknown_digest(each.response, each.parsed, each.copy)
        return self._look_up((), digest) if digest else None

    async def _wait_and_keep(
        self, each: _Answered, asked: Awaitable[None] | None, room: Awaitable[object] | None
    ) -> None:
        if asked is not None:
            await asked
        if room is None and self._make_room is not None:
            room = self._make_room()
        if room is not None:
            await room
        if each.parsed is not None and each.parsed.is_list:
            await self._take_in_list(each.parsed, each.settle)
        if not self._answered:
            asyncio.get_running_loop().call_soon(self._keep_answered)
        self._answered.append(each)

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
        if _is_soon_parsed(response.body):
            return parse(response, page, self._parse_options)
        return await self._aside.run(parse, response, page, self._parse_options)

    async def _extract(self, response: Response, page: Page) -> Sequence[Item]:
        if self._extractor is None or not 200 <= response.status < 300:
            return ()
        work = (page.url, page.site, response.header("content-type"), response.body)
        if len(response.body) <= _PARSED_IN_PLACE_BYTES:
            return self._extractor.items(*work)
        return await self._aside.run(self._extractor.items, *work)

    async def _robots(self, command: FetchRobots, settle: Settle) -> None:
        settle(await self._asker.ask(command))


def _is_soon_parsed(body: bytes) -> bool:
    """Not what may be a small packet of a long list."""
    return len(body) <= _PARSED_IN_PLACE_BYTES and not body.startswith(GZIP_MARK)
