"""Carries out fetch commands: fetch, read the response, archive it, and report its links."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeVarTuple

import msgspec
from msgspec import structs

from headway.http.identity import Identity
from headway.http.robots import RobotsAsker
from headway.http.visits import Visits
from headway.model.command import (
    Copy,
    CutRequests,
    FetchPage,
    FetchRobots,
    FindServer,
    SetCapacity,
    SetContention,
    SetRates,
)
from headway.model.event import Again, Found, PageSettled, ServerFound
from headway.model.page import Capture, Kind, Lease, Outcome, Page, Site, is_again
from headway.pages import WORK_IN_PLACE, TooMuchWorkError, Work
from headway.pages.document import parse
from headway.pages.extract import Extractor, Item
from headway.pages.fingerprint import content_digests, digest_like
from headway.pages.parsed import Parsed, ParseOptions
from headway.pages.sitemaps import GZIP_MARK, types_to_read
from headway.ports import (
    Archive,
    Clock,
    Fetcher,
    Made,
    Original,
    PromptFetcher,
    Request,
    Response,
)
from headway.runtime.answers import Keeper, conditions, outcome_of
from headway.runtime.commands import WorldCommand
from headway.runtime.driver import EventSink
from headway.runtime.isolated import MOST_STRIKES, IsolatedWork, WorkerThread, WorkJournal
from headway.units import Instant

# Fetches, reads the answer, archives it, and reports its links. The engine makes all decisions: an answer is
# only classified here.

Ts = TypeVarTuple("Ts")

_STRUCK_OUT = f"{MOST_STRIKES} processes of the crawl have died while they read it"
_PARSED_IN_PLACE_BYTES = 64 * 1024
"""A larger hostile page could block the event loop for a second."""
_LONG_PAYLOAD_BYTES = 1024 * 1024
"""A longer one is compressed and hashed in a thread."""
_IN_ONE_GO = 8
"""The number of pages that are read, and then archived, while their bytes may still be in the processor's
caches."""
_TAKEN_AT_ONCE = 2000
"""The number of pages of a long list that are added at once. Fifty thousand would block the event loop for a
second."""

MakeRoom = Callable[[], Awaitable[object] | None]
LookUp = Callable[[Sequence[Page], str], Awaitable[None] | None]
"""For pages, or for a digest. If it returns None, there is nothing to wait for, as for nearly every page."""
_KEPT = frozenset({Kind.FETCHED, Kind.DUPLICATE, Kind.NOT_MODIFIED})


class Collected(msgspec.Struct, frozen=True):
    """A page for users of the library."""

    page: Page
    response: Response
    parsed: Parsed | None
    outcome: Outcome
    capture: Capture | None
    items: Sequence[Item] = ()
    """The items that the job's rules found on it."""


class _Arrived(NamedTuple):
    """An answer that has not been read yet."""

    lease: Lease
    response: Response
    preferences: Mapping[str, bool] | None


class _Answered(NamedTuple):
    """A page that has been read and waits to be archived."""

    lease: Lease
    response: Response
    parsed: Parsed | None
    copy: Copy | None
    items: Sequence[Item]
    preferences: Mapping[str, bool] | None = None
    """Of robots.txt."""
    made: Made | None = None
    """The records of a long answer."""


class PageReading(NamedTuple):
    """How responses are read: what is parsed, accepted and extracted."""

    options: ParseOptions
    user_agent: str
    """The user agent for the rules of robots.txt and META robots."""
    accept_types: frozenset[str] | None = None
    """Media types that are archived; None: all."""
    extractor: Extractor | None = None
    extraction_s: float = 10.0
    """CPU time for the extraction of one page."""
    journal: WorkJournal | None = None
    """Where the pages that are being read are noted."""
    identities: Mapping[Site, Identity] = MappingProxyType({})
    """User agents, headers, credentials and cookies of sites."""
    reads_freshness: bool = False
    """Pages will be visited again, when their headers say how long they stay as they are."""


class KnownPages(NamedTuple):
    """The store's knowledge of earlier fetches."""

    find_digest: Callable[[str], Original | None]
    """The first capture of a content."""
    find_copy: Callable[[Page], Copy | None] | None = None
    """The last copy of a page that is fetched again; None: pages are not fetched again."""
    look_up: LookUp | None = None
    """Awaited before the other two are called for a new page or content: a fleet queries its database
    here."""


class WebCollector:
    """The live web as a world (`runtime.driver.LiveWorld`)."""

    finds_servers = True

    def __init__(
        self,
        fetcher: Fetcher,
        archive: Archive,
        clock: Clock,
        *,
        reading: PageReading,
        known: KnownPages,
        on_page: Callable[[Collected], None] | None = None,
        make_room: MakeRoom | None = None,
        recrawls: bool = True,
    ) -> None:
        """`make_room` is awaited before a page is archived and passed to `on_page`. `recrawls`: pages that a
        sitemap reports as changed are fetched again, if copies can be found."""
        self._fetcher = fetcher
        self._clock = clock
        self._accept_types = reading.accept_types
        self._parse_options = reading.options
        self._extractor = reading.extractor
        rules = reading.extractor.rules if reading.extractor is not None else {}
        self._isolated = IsolatedWork(rules, limit_s=reading.extraction_s)
        self._journal = reading.journal
        self._on_page = on_page
        self._make_room = make_room
        self._find_copy = known.find_copy
        self._look_up = known.look_up
        self._recrawls = recrawls and known.find_copy is not None
        wanted_types = reading.accept_types if self._reads_lists else None
        self._keeper = Keeper(
            archive, known.find_digest, clock, wanted_types, reads_freshness=reading.reads_freshness
        )
        self._worker = WorkerThread()
        self._visits = Visits(reading.identities, fetcher, clock, self._worker.run)
        self._asker = RobotsAsker(
            fetcher,
            clock,
            self._worker.run,
            partial(outcome_of, parsed=None, is_known=False),
            reading.user_agent,
            greet=self._visits.for_robots,
            reads_sitemaps=reading.options.read_sitemaps,
            secret=reading.options.secret,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_once = fetcher.fetch_at_once if isinstance(fetcher, PromptFetcher) else None
        self._ordered: list[FetchPage] = []
        self._arrived: list[_Arrived] = []
        self._answered: list[_Answered] = []
        self._is_closed = False
        self._sink: EventSink

    def attach(self, sink: EventSink) -> None:
        self._sink = sink

    def start(self, now: Instant, command: WorldCommand) -> None:
        match command:
            case FetchPage():
                if not self._ordered:
                    asyncio.get_running_loop().call_soon(self._start_ordered)
                self._ordered.append(command)
            case FetchRobots():
                self._begin(self._robots, command)
            case FindServer(site):
                self._begin(self._find_server, site)
            case CutRequests(sites):
                self._fetcher.cut(sites)
            case SetRates(rates):
                self._fetcher.set_rates(rates)
            case SetCapacity(capacity):
                self._fetcher.set_capacity(capacity)
            case SetContention(most_stalled):
                self._fetcher.set_contention(most_stalled)

    def _start_ordered(self) -> None:
        """Start the requests one after the other, instead of each at its command, since there is much work
        between two commands."""
        ordered, self._ordered = self._ordered, []
        for command in ordered:
            try:
                if not self._starts_at_once(command):
                    self._begin(self._page, command)
            except Exception as problem:
                self._sink.fail(problem)

    def committed(self) -> None:
        """Everything archived until now is in the store."""
        self._keeper.committed()

    async def aclose(self) -> None:
        self._take_arrived()
        self._ordered.clear()
        self._is_closed = True
        await asyncio.sleep(0)  # a task cancelled before its first step never awaits its coroutine
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._keep_answered()
        await self._fetcher.aclose()
        self._worker.close()
        await self._isolated.aclose()
        if self._journal is not None:
            self._journal.close()

    def _begin(self, work: Callable[[*Ts], Coroutine[None, None, None]], *args: *Ts) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(self._carry_out(work, *args)))

    async def _carry_out(self, work: Callable[[*Ts], Coroutine[None, None, None]], *args: *Ts) -> None:
        # Handled here, since a callback of the task would cost one more turn of the loop.
        try:
            await work(*args)
        except asyncio.CancelledError:
            raise
        except BaseException as problem:
            self._sink.fail(problem)
            if not isinstance(problem, Exception):
                raise
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.discard(task)

    # -- a page -----------------------------------------------------------------------------------------

    def _starts_at_once(self, command: FetchPage) -> bool:
        """Fetch a page without a task, as is possible for most pages; all answers of one turn of the loop are
        read together."""
        lease = command.lease
        if self._at_once is None or self._extractor is not None or is_again(lease.attempt):
            return False
        if self._journal is not None and lease.page.url in self._journal.suspects:
            return False
        if self._visits.has_secrets(lease.page.site, command.meant):
            return False
        return self._at_once(self._request(command, None), partial(self._arrive, command))

    def _arrive(self, command: FetchPage, response: Response) -> None:
        if self._is_closed:
            return
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._take_arrived)
        self._arrived.append(_Arrived(command.lease, response, command.preferences))

    def _take_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        for begin in range(0, len(arrived), _IN_ONE_GO):
            part = arrived[begin : begin + _IN_ONE_GO]
            for each, digest in zip(part, self._digests_of(part), strict=True):
                try:
                    self._take_in(each, digest)
                except Exception as problem:
                    self._sink.fail(problem)
            self._keep_answered()

    def _digests_of(self, arrived: Sequence[_Arrived]) -> Iterator[str | None]:
        """Parse the contents that are parsed on the loop, all at once; None for the others."""
        kind = self._parse_options.digest
        wanted = [
            each.response.kind is Kind.FETCHED and _is_soon_parsed(each.response.body) for each in arrived
        ]
        bodies = [each.response.body for each, is_wanted in zip(arrived, wanted, strict=True) if is_wanted]
        digests = iter(content_digests(bodies, kind))
        return (next(digests) if is_wanted else None for is_wanted in wanted)

    def _take_in(self, each: _Arrived, digest: str | None) -> None:
        lease, response, preferences = each
        parsed = None
        if response.kind is Kind.FETCHED:
            parsed = self._parse_in_place(response, lease.page, digest if response.body else "")
            if parsed is None:
                self._begin(self._look_at, lease, response, None, preferences)
                return
        answered = _Answered(lease, response, parsed, None, (), preferences)
        asked, room = self._ask_for(answered), None
        is_simple = parsed is None or not (parsed.is_list or _is_long(response))
        if asked is None and is_simple:
            room = self._make_room() if self._make_room is not None else None
            if room is None:
                self._answered.append(answered)
                return
        self._begin(self._wait_and_keep, answered, asked, room)

    async def _page(self, command: FetchPage) -> None:
        lease, page = command.lease, command.lease.page
        if self._strikes(page) >= MOST_STRIKES:
            self._quarantine(lease, Outcome(Kind.QUARANTINED, detail=_STRUCK_OUT))
            return
        look_up = self._look_up
        if look_up is not None and is_again(lease.attempt) and (asked := look_up((page,), "")) is not None:
            await asked
        copy = self._copy_of(lease)
        request = self._request(command, copy)
        if self._visits.has_secrets(page.site, command.meant):
            response = await self._visits.fetch(request)
        else:
            response = await self._fetcher.fetch(request)
        await self._look_at(lease, response, copy, command.preferences)

    def _request(self, command: FetchPage, copy: Copy | None) -> Request:
        page, accepted = command.lease.page, self._accept_types
        if accepted is not None and self._reads_lists:
            accepted |= types_to_read(page.url)
        headers = (*conditions(copy), *self._visits.plain_headers(page.site, command.meant))
        return Request(page.url, page.site, headers, command.close_after, accepted)

    async def _look_at(
        self,
        lease: Lease,
        response: Response,
        copy: Copy | None,
        preferences: Mapping[str, bool] | None,
    ) -> None:
        page = lease.page
        parsed = None
        if response.kind is Kind.FETCHED:
            if self._strikes(page) and (
                why := await self._isolated.trial(response, page, self._options_for(page))
            ):
                outcome = outcome_of(self._clock.now(), response, None, is_known=False)
                detail = f"reading it {why}, and an earlier process of the crawl has died with it"
                self._quarantine(lease, structs.replace(outcome, kind=Kind.QUARANTINED, detail=detail))
                return
            parsed = self._parse_in_place(response, page) or await self._parse(response, page)
        if copy is not None and parsed is not None and _is_other_digest(copy.digest, parsed.digest):
            # A copy from before SHA-1 was the digest of contents, or with another setting.
            digest = await self._worker.run(digest_like, copy.digest, response.body)
            parsed = structs.replace(parsed, digest=digest)
        items: Sequence[Item] = ()
        if self._extractor is not None and parsed is not None:
            items, problem = await self._extract(self._extractor, response, page)
            if problem:
                problem = f"{parsed.problem}; {problem}" if parsed.problem else problem
                parsed = structs.replace(parsed, problem=problem)
        answered = _Answered(lease, response, parsed, copy, items, preferences)
        await self._wait_and_keep(answered, self._ask_for(answered), None)

    def _ask_for(self, each: _Answered) -> Awaitable[None] | None:
        """Find out whether the content is known to others, if others crawl as well."""
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
            await self._take_in_list(each.parsed)
        if each.parsed is not None and _is_long(each.response):
            work = self._keeper.make(each.response, each.parsed)
            each = each._replace(made=await self._worker.run(work))
        if not self._answered:
            asyncio.get_running_loop().call_soon(self._keep_answered)
        self._answered.append(each)

    def _keep_answered(self) -> None:
        """Archive the answers of one turn of the loop together: from the second page on, everything that
        archiving needs is in the processor's caches."""
        answered, self._answered = self._answered, []
        for each in answered:
            try:
                self._keep(each)
            except Exception as problem:
                self._sink.fail(problem)

    def _keep(self, each: _Answered) -> None:
        # No await from here to `tell`: a page in the archive must have its row in the same commit.
        settled = self._keeper.keep(
            each.lease, each.response, each.parsed, each.copy, each.made, preferences=each.preferences
        )
        if each.made is not None:
            asyncio.get_running_loop().call_soon(self._write_on)
        if self._on_page is not None:
            page, outcome, capture = each.lease.page, settled.outcome, settled.capture
            items = () if outcome.kind is Kind.BLOCKED else each.items
            self._on_page(Collected(page, each.response, each.parsed, outcome, capture, items))
        self._sink.tell(settled)

    def _write_on(self) -> None:
        """Write what is long in parts, with turns for others in between, before a commit writes the rest."""
        try:
            if not self._is_closed and self._keeper.write_some():
                asyncio.get_running_loop().call_soon(self._write_on)
        except Exception as problem:
            self._sink.fail(problem)

    def _copy_of(self, lease: Lease) -> Copy | None:
        if self._find_copy is None or not is_again(lease.attempt):
            return None
        return self._find_copy(lease.page)

    @property
    def _reads_lists(self) -> bool:
        return self._parse_options.read_sitemaps or self._parse_options.read_feeds

    async def _take_in_list(self, parsed: Parsed) -> None:
        """Report the pages in parts, before the list itself is settled: if the process is killed in between,
        the list is read again."""
        for begin in range(0, len(parsed.links), _TAKEN_AT_ONCE):
            part = parsed.links[begin : begin + _TAKEN_AT_ONCE]
            self._sink.tell(Found(part))
            if self._recrawls and (changed := await self._changed_since(part, parsed)):
                self._sink.tell(Again(changed, self._clock.now()))
            await asyncio.sleep(0)

    async def _changed_since(self, pages: Sequence[Page], parsed: Parsed) -> tuple[Page, ...]:
        """The pages that have changed since their last fetch, according to a list."""
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
        return await self._worker.run(
            self._noted, page, partial(parse, response, page, self._options_for(page))
        )

    def _options_for(self, page: Page) -> ParseOptions:
        """META robots may name the user agent that the site sees."""
        options, user_agent = self._parse_options, self._visits.user_agent(page.site)
        return options if user_agent is None else structs.replace(options, user_agent=user_agent)

    def _noted(self, page: Page, work: Callable[[], Parsed]) -> Parsed:
        return work() if self._journal is None else self._journal.noted(page.url, work)

    def _strikes(self, page: Page) -> int:
        """How many processes of the crawl have died while they read the page."""
        return self._journal.suspects.get(page.url, 0) if self._journal is not None else 0

    def _quarantine(self, lease: Lease, outcome: Outcome) -> None:
        if self._journal is not None:
            self._journal.keep(lease.page.url)
        self._sink.tell(PageSettled(lease, outcome))

    def _parse_in_place(self, response: Response, page: Page, digest: str | None = None) -> Parsed | None:
        """The parsed page; None if parsing would block the event loop."""
        if not _is_soon_parsed(response.body):
            return None
        try:
            work = Work(WORK_IN_PLACE, in_place=True)
            return self._noted(page, partial(parse, response, page, self._options_for(page), digest, work))
        except TooMuchWorkError:
            return None

    async def _extract(
        self, extractor: Extractor, response: Response, page: Page
    ) -> tuple[Sequence[Item], str]:
        """The items of a page, and why there are none if it is quarantined."""
        if not 200 <= response.status < 300:
            return (), ""
        work = (page.url, page.site, response.header("content-type"), response.body)
        if not extractor.applies_to(*work):
            return (), ""
        if not extractor.is_of_this_process:
            return await self._isolated.items(*work)
        if len(response.body) <= _PARSED_IN_PLACE_BYTES:
            return extractor.items(*work), ""
        return await self._worker.run(extractor.items, *work), ""

    async def _find_server(self, site: Site) -> None:
        self._sink.tell(ServerFound(site, await self._fetcher.address_of(site)))

    async def _robots(self, command: FetchRobots) -> None:
        self._sink.tell(await self._asker.ask(command))


def _is_other_digest(one: str, other: str) -> bool:
    """Whether two digests of contents are of different kinds."""
    return bool(one and other) and one.partition(":")[0] != other.partition(":")[0]


def _is_long(response: Response) -> bool:
    """Whether digests and compression of the payload would block the event loop."""
    return len(response.payload) > _LONG_PAYLOAD_BYTES


def _is_soon_parsed(body: bytes) -> bool:
    """Whether parsing is fast: a small body, but not a compressed one, which may be a long list."""
    return len(body) <= _PARSED_IN_PLACE_BYTES and not body.startswith(GZIP_MARK)
