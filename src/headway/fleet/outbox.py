"""What a session has to say to whoever keeps the crawl, one after the other, beside the event loop.

Parcels are committed in turn, while the crawl goes on. A question about the pages that wait is asked in its
turn among them, so that the answer knows of all that was committed before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headway.fleet.coordinator import Coordinator, Parcel
from headway.model.command import LoadPages
from headway.model.event import Loaded, PagesLoaded
from headway.model.page import Site

_PARCELS_WAITING = 20


class Outbox:
    def __init__(
        self,
        coordinator: Coordinator,
        until_done: Callable[..., Any],
        *,
        is_ours: Callable[[Site], bool],
        tell: Callable[[PagesLoaded], None],
        on_news: Callable[[], object],
    ) -> None:
        """`until_done` calls what it is given, in a thread, until it succeeds or there is no more hope."""
        self._coordinator = coordinator
        self._until_done = until_done
        self._is_ours = is_ours
        self._tell = tell
        self._on_news = on_news
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headway-commits")
        self._queue: asyncio.Queue[Parcel | Sequence[LoadPages] | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._room.set()
        self.packed = 0
        """The number of the last parcel that was put in."""
        self.committed = 0
        """The number of the last that was committed."""

    def put(self, parcel: Parcel) -> None:
        self.packed += 1
        self._queue.put_nowait(parcel)
        if self._queue.qsize() >= _PARCELS_WAITING:
            self._room.clear()

    def ask_for_more(self, wishes: Sequence[LoadPages]) -> None:
        """The next pages of sites whose rooms run empty, once all until now is committed."""
        self._queue.put_nowait(wishes)

    def end(self) -> None:
        """Nothing more comes: `run` returns when all is committed."""
        self._queue.put_nowait(None)

    def make_room(self) -> Awaitable[object] | None:
        """What a page has to wait for, while too much waits to be committed."""
        return None if self._room.is_set() else self._room.wait()

    def let_all_in(self) -> None:
        self._room.set()

    async def run(self) -> None:
        while (item := await self._queue.get()) is not None:
            if isinstance(item, Parcel):
                has_news = await self.ask(self._coordinator.commit, self.committed + 1, item)
                self.committed += 1
                if has_news:
                    self._on_news()
            else:
                await self._load(item)
            if self._queue.qsize() < _PARCELS_WAITING:
                self._room.set()

    async def ask(self, question: Callable[..., Any], *args: object) -> Any:
        """After all that was asked before."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._until_done, question, *args)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _load(self, wishes: Sequence[LoadPages]) -> None:
        # A site that was given up meanwhile may be another's: what waits of it is none of our business.
        ours = [wish for wish in wishes if self._is_ours(wish.site)]
        if ours:
            self._tell(PagesLoaded(await self.ask(self._read, ours)))

    def _read(self, wishes: Sequence[LoadPages]) -> tuple[Loaded, ...]:
        loads = []
        for wish in wishes:
            waiting = tuple(self._coordinator.first_waiting(wish.site, wish.most))
            loads.append(Loaded(wish.site, waiting, is_all=len(waiting) < wish.most))
        return tuple(loads)
