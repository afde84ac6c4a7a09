"""From an order to a fact: fetch, look at the answer, archive it, and hand its links back.

Nothing is decided here that the machine could decide: an answer is classified, not acted upon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from headway.fetch.robots import MAX_ROBOTS_BYTES, ROBOTS_LIFETIME_S, decode_robots, judge
from headway.live.aside import Aside
from headway.live.classify import outcome_of
from headway.live.driver import Fail, Settle
from headway.model.command import FetchPage, FetchRobots, SetCapacity, SetRates
from headway.model.event import PageSettled, RobotsSettled
from headway.model.outcome import Capture, Kind, Outcome
from headway.model.page import Page
from headway.model.robots import RobotsRules
from headway.parse.document import REDIRECT_STATUSES, Parsed, ParseOptions, parse
from headway.parse.url import page_of
from headway.ports import Archive, Clock, Fetcher, Original, Request, Response
from headway.units import Instant

# Above these sizes a hostile page, or the rules of a hostile site, could hold up everybody for a second.
_PARSED_IN_PLACE_BYTES = 64 * 1024
_RULES_READ_IN_PLACE_BYTES = 16 * 1024
_ARCHIVED = frozenset({Kind.FETCHED, Kind.DUPLICATE, Kind.REDIRECT, Kind.MISSING, Kind.REFUSED})


class Collected(msgspec.Struct, frozen=True):
    """A page as the library's user sees it."""

    page: Page
    response: Response
    parsed: Parsed | None
    outcome: Outcome
    capture: Capture | None


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
        make_room: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`make_room` is awaited before a page is kept and handed to `on_page`."""
        self._fetcher = fetcher
        self._archive = archive
        self._find_digest = find_digest
        self._clock = clock
        self._user_agent = user_agent
        self._accept_types = accept_types
        self._parse_options = parse_options
        self._on_page = on_page
        self._make_room = make_room
        self._aside = Aside()
        self._uncommitted: dict[str, Original] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, command: FetchPage | FetchRobots, settle: Settle, fail: Fail) -> None:
        work = (
            self._page(command, settle) if isinstance(command, FetchPage) else self._robots(command, settle)
        )
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._finish(done, fail))

    def set_rates(self, command: SetRates) -> None:
        self._fetcher.set_rates(command.rates_bytes_per_s)

    def set_capacity(self, command: SetCapacity) -> None:
        self._fetcher.set_capacity(command.capacity_bytes_per_s)

    def committed(self) -> None:
        """What was archived until now can be found in the store."""
        self._uncommitted.clear()

    async def aclose(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._fetcher.aclose()
        self._aside.close()

    def _finish(self, task: asyncio.Task[None], fail: Fail) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            fail(problem)

    # -- a page -----------------------------------------------------------------------------------------

    async def _page(self, command: FetchPage, settle: Settle) -> None:
        page = command.lease.page
        request = Request(page.url, page.site, (), command.close_after, self._accept_types)
        response = await self._fetcher.fetch(request)
        parsed = await self._parse(response, page) if response.kind is Kind.FETCHED else None
        if self._make_room is not None:
            await self._make_room()
        # From here to `settle` without a pause: what is in the archive must have its row in the same commit.
        original = self._original(parsed) if parsed is not None else None
        outcome = outcome_of(self._clock.now(), response, parsed, is_known=original is not None)
        capture = self._keep(response, parsed, outcome, original)
        if self._on_page is not None:
            self._on_page(Collected(page, response, parsed, outcome, capture))
        links = parsed.links if parsed is not None else ()
        settle(PageSettled(command.lease, outcome, links, capture))

    async def _parse(self, response: Response, page: Page) -> Parsed:
        if len(response.body) <= _PARSED_IN_PLACE_BYTES:
            return parse(response, page, self._parse_options)
        return await self._aside.run(parse, response, page, self._parse_options)

    def _original(self, parsed: Parsed) -> Original | None:
        if not parsed.digest:
            return None
        return self._uncommitted.get(parsed.digest) or self._find_digest(parsed.digest)

    def _keep(
        self, response: Response, parsed: Parsed | None, outcome: Outcome, original: Original | None
    ) -> Capture | None:
        if outcome.kind not in _ARCHIVED:
            return None
        digest = parsed.digest if parsed is not None else ""
        is_copy = outcome.kind is Kind.DUPLICATE
        capture = self._archive.write(response, digest=digest, revisit_of=original if is_copy else None)
        if outcome.kind is Kind.FETCHED and digest:
            self._uncommitted[digest] = Original(response.url, response.requested_at)
        return capture

    # -- robots.txt -------------------------------------------------------------------------------------

    async def _robots(self, command: FetchRobots, settle: Settle) -> None:
        site = command.site
        response = await self._fetcher.fetch(Request(command.url, site, max_body_bytes=MAX_ROBOTS_BYTES))
        outcome = outcome_of(self._clock.now(), response, None, is_known=False)
        is_answer = response.kind is Kind.FETCHED
        rules = await self._judge(response) if is_answer else None
        expires_at = Instant(self._clock.now() + ROBOTS_LIFETIME_S)
        text = decode_robots(response.body) if is_answer and 200 <= response.status < 300 else ""
        settle(RobotsSettled(site, rules, expires_at, outcome, text, _leads_to(response)))

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
