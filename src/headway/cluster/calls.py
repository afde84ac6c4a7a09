"""The calls of a collector to its coordinator: heartbeats, commits in order, and lookups.

A heartbeat renews the lease of the sites and the share of the bound. Both expire on the loop's clock, which
goes on while the collector is cut off or suspended.

Batches are committed one after the other while the crawl goes on. A request for waiting pages is queued among
them, so that its answer includes everything that was committed before it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from headway.cluster.coordinator import CommitBatch, Coordinator, NewShare
from headway.cluster.folder import CollectorFolder, Contents, WorkerFolder
from headway.errors import StoreError
from headway.model.command import Copy, LoadPages, PageState, SaveSettled, Saving
from headway.model.page import Page, PageKey, Site
from headway.store.postgres.connection import is_passing
from headway.units import BytesPerSecond, Instant

BEAT_EVERY_S = 0.5
LINK_BEAT_S = 0.25
"""The pause for collectors that yield to the other users of their link."""
QUICK_BEAT_S = 0.15
"""The pause while this collector has nothing to do, or another one waits for its sites."""
_GROWTH = 1.2
"""An idle collector asks again soon, then more and more slowly: most answers are there in a moment."""
_BEATS_LEFT = 3
"""A collector that will soon have no pages reports it in time."""
_COMMITS_KEPT = 10
_COMMITS_NEEDED = 3
_LATELY_S = 2.0
"""A collector that commits less often waits for sites rather than for a processor: its speed is unknown."""
_ASKED_FOR = frozenset({PageState.DONE, PageState.FAILED, PageState.WAITING})
_MARGIN_S = 0.5
"""Before the lease ends: by then every abandoned request must have stopped."""
_OUT_OF_REACH_S = 60.0
"""The round trip of a site that cannot be reached from here; it is not tried again."""

Measure = Callable[[Site], Awaitable[float | None]]


class Heartbeat:
    """When the next heartbeat is due, and how long the pages last if they settle at the recent rate."""

    def __init__(self, quickest_s: float = QUICK_BEAT_S, every_s: float = BEAT_EVERY_S) -> None:
        self._every_s = every_s
        self._quickest_s = self._quick_s = quickest_s
        self._commits: deque[tuple[float, int]] = deque(maxlen=_COMMITS_KEPT)
        self._is_due = asyncio.Event()
        self._has_pages = False

    def beat_now(self) -> None:
        self._is_due.set()

    def saved(self, at: float, batch: Sequence[Saving], pages_left: int) -> None:
        """When the pages run out, the next heartbeat is due at once."""
        settled = [each for each in batch if isinstance(each, SaveSettled) and each.state in _ASKED_FOR]
        self._commits.append((at, len(settled)))
        if self._has_pages and not pages_left:
            self.beat_now()

    def left_s(self, now: float, pages_left: int) -> float | None:
        """How long the remaining pages will last. None: unknown."""
        lately = [commit for commit in self._commits if commit[0] > now - _LATELY_S]
        if len(lately) < _COMMITS_NEEDED:
            return None
        passed_s = lately[-1][0] - lately[0][0]
        settled = sum(count for _, count in lately) - lately[0][1]
        return pages_left * passed_s / settled if settled else None

    async def pause(self, asked_at: float, pages_left: int, *, is_waiting: bool) -> None:
        self._has_pages = pages_left > 0
        with suppress(TimeoutError):
            pause_s = self._pause_s(asked_at, pages_left, is_waiting=is_waiting)
            async with asyncio.timeout_at(asked_at + pause_s):
                await self._is_due.wait()
        self._is_due.clear()

    def _pause_s(self, now: float, pages_left: int, *, is_waiting: bool) -> float:
        if is_waiting:
            pause_s, self._quick_s = self._quick_s, min(QUICK_BEAT_S, _GROWTH * self._quick_s)
            return pause_s
        self._quick_s = self._quickest_s
        left_s = self.left_s(now, pages_left)
        most_s = self._every_s
        return most_s if left_s is None else min(most_s, max(QUICK_BEAT_S, left_s / _BEATS_LEFT))


class Allowance:
    """The lease and the share of the bound, each until it expires."""

    def __init__(
        self,
        on_lost: Callable[[], None],
        set_capacity: Callable[[BytesPerSecond], None],
        set_asks_until: Callable[[float], None],
    ) -> None:
        self._on_lost = on_lost
        self._set_capacity = set_capacity
        self._set_asks_until = set_asks_until
        self._lease_timer: asyncio.TimerHandle | None = None
        self._share_timer: asyncio.TimerHandle | None = None
        self._share_bytes_per_s = 0.0
        self.share_number = 0
        self.has_shrunk = False
        """Other collectors wait for the rate that was given up, until the next heartbeat confirms that it
        was."""

    def lease_until(self, at: float) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        self._lease_timer = asyncio.get_running_loop().call_at(at - _MARGIN_S, self._on_lost)
        # After a suspend of the machine, requests would be sent before any timer has run.
        self._set_asks_until(at - _MARGIN_S)

    def keep_to(self, asked_at: float, share: NewShare | None) -> None:
        self.has_shrunk = False
        if share is None or share.number == self.share_number:
            return
        self.share_number = share.number
        self.has_shrunk = share.rate_bytes_per_s < self._share_bytes_per_s
        if self._share_timer is not None:
            self._share_timer.cancel()
        loop = asyncio.get_running_loop()
        self._share_timer = loop.call_at(asked_at + share.lasts_s, self._share_over)
        if share.rate_bytes_per_s != self._share_bytes_per_s:
            self._share_bytes_per_s = share.rate_bytes_per_s
            self._set_capacity(share.rate_bytes_per_s)

    def close(self) -> None:
        for timer in (self._lease_timer, self._share_timer):
            if timer is not None:
                timer.cancel()

    def _share_over(self) -> None:
        self._share_bytes_per_s = 0.0
        self._set_capacity(BytesPerSecond(0.0))


class SharedClock:
    """One clock for the whole fleet: the coordinator's, extrapolated on this machine.

    Clocks of machines differ, by hours where one is set wrong; they agree on the length of a second.
    """

    def __init__(
        self, time_of_day: Callable[[], float] = time.time, running_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._running_s = running_s
        self._began_at = time_of_day() - running_s()

    def now(self) -> Instant:
        return Instant(self._began_at + self._running_s())

    def follow(self, now: Instant, read_at: float) -> None:
        """The coordinator's clock showed `now` when it was read. The answer took a moment, so this clock is
        never ahead."""
        self._began_at = now - read_at


class Probes:
    """Round trips to sites of other collectors: a connection to each, opened and closed without a request."""

    def __init__(self, measure: Measure | None) -> None:
        self._measure = measure
        self._under_way: dict[Site, asyncio.Task[None]] = {}
        self._found: list[tuple[Site, float]] = []

    def ask(self, sites: Iterable[Site]) -> None:
        if self._measure is None:
            return
        for site in sites:
            if site not in self._under_way:
                self._under_way[site] = asyncio.get_running_loop().create_task(self._probe(site))

    def take(self) -> list[tuple[Site, float]]:
        """The measurements since the last call."""
        found, self._found = self._found, []
        return found

    def close(self) -> None:
        for task in self._under_way.values():
            task.cancel()

    async def _probe(self, site: Site) -> None:
        assert self._measure is not None
        try:
            seconds = await self._measure(site)
            self._found.append((site, _OUT_OF_REACH_S if seconds is None else seconds))
        finally:
            del self._under_way[site]


_BATCHES_WAITING = 20
_AGAIN_S = 0.5


class CommitQueue:
    """Batches are written to the folder at once, and wait here to be committed."""

    def __init__(self, folder: CollectorFolder | WorkerFolder) -> None:
        self.folder = folder
        self._queue: asyncio.Queue[CommitBatch | Sequence[LoadPages] | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._room.set()
        self.packed = 0
        """The number of the last batch that was queued."""
        self.committed = 0
        """The number of the last batch that was committed."""

    def put(self, savings: Sequence[Saving]) -> None:
        self.packed += 1
        self._queue.put_nowait(self.folder.pack(savings))
        if self._queue.qsize() >= _BATCHES_WAITING:
            self._room.clear()

    def ask_for_more(self, requests: Sequence[LoadPages]) -> None:
        """Request the next pages of sites whose queues run empty, after everything queued until now is
        committed."""
        self._queue.put_nowait(requests)

    def end(self) -> None:
        """Nothing follows: `next` returns None when everything is committed."""
        self._queue.put_nowait(None)

    async def next(self) -> CommitBatch | Sequence[LoadPages] | None:
        item = await self._queue.get()
        if self._queue.qsize() < _BATCHES_WAITING:
            self._room.set()
        return item

    def make_room(self) -> Awaitable[object] | None:
        """What to wait for before another page is archived, while too many batches wait; None: nothing."""
        return None if self._room.is_set() else self._room.wait()

    def let_all_in(self) -> None:
        self._room.set()


class Lookups:
    """What the whole crawl knows about a content or about a page's earlier visits. Call `look_up` first; then
    the results can be read here. Pages that are looked up during a call go together in the next one."""

    def __init__(
        self,
        coordinator: Coordinator,
        contents: Contents,
        *,
        may_be_known: Callable[[str], bool] | None = None,
    ) -> None:
        """`may_be_known` saves the call for a digest that is certainly new, as most are."""
        self._coordinator = coordinator
        self._contents = contents
        self._may_be_known = may_be_known
        self._digests: dict[str, None] = {}
        self._pages: dict[PageKey, Page] = {}
        self._answered: asyncio.Future[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._copies: dict[tuple[Site, PageKey], Copy] = {}

    def find_copy(self, page: Page) -> Copy | None:
        return self._copies.pop((page.site, page.key), None)

    def look_up(self, pages: Sequence[Page], digest: str) -> Awaitable[None] | None:
        """Look up known pages, a content, or both. None: no call is needed."""
        if digest and self._may_be_known is not None and not self._may_be_known(digest):
            digest = ""
        if not pages and not digest:
            return None
        if digest:
            self._digests[digest] = None
        self._pages |= {page.key: page for page in pages}
        if self._answered is None:
            self._answered = asyncio.get_running_loop().create_future()
        answered = self._answered
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        return asyncio.shield(answered)

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        while self._answered is not None:
            digests, self._digests = list(self._digests), {}
            pages, self._pages = list(self._pages.values()), {}
            answered, self._answered = self._answered, None
            await self._answer(digests, pages)
            answered.set_result(None)
        self._asking = None

    async def _answer(self, digests: Sequence[str], pages: Sequence[Page]) -> None:
        """Archiving a content twice does no harm, so while the server cannot be reached, a content counts as
        new. A known page without its stored state would be counted twice: that call is repeated until it
        succeeds or the lease ends."""
        while True:
            try:
                originals = await self._coordinator.find_originals(digests) if digests else {}
                copies = await self._coordinator.find_copies(pages) if pages else {}
            except StoreError as problem:
                if not pages or not is_passing(problem):
                    return
                await asyncio.sleep(_AGAIN_S)
            else:
                for digest, (original, payload_digest) in originals.items():
                    self._contents.learn(digest, original, payload_digest)
                self._copies |= copies
                return
