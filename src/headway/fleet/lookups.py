"""What the whole crawl knows of a content or of a page's earlier visits, asked for beside the event loop.

A collector sees its own part only. Questions that come up while one is under way go together as the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from headway.errors import StoreError
from headway.fleet.folder import Contents
from headway.model.copy import Copy
from headway.model.page import Page, PageKey, Site
from headway.ports import Original
from headway.store.postgres.address import is_passing

_AGAIN_S = 0.5


class Library(Protocol):
    """The part of a store that is asked. It may block."""

    def find_originals(self, digests: Sequence[str]) -> Mapping[str, tuple[Original, str]]: ...

    def find_copies(self, pages: Sequence[Page]) -> Mapping[tuple[Site, PageKey], Copy]: ...


class Lookups:
    """`look_up` first; then what was found is at hand."""

    def __init__(
        self, library: Library, contents: Contents, *, may_be_known: Callable[[str], bool] | None = None
    ) -> None:
        """`may_be_known` spares the question about a digest that is certainly new, as most are."""
        self._library = library
        self._contents = contents
        self._may_be_known = may_be_known
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headway-lookups")
        self._digests: dict[str, None] = {}
        self._pages: dict[PageKey, Page] = {}
        self._answered: asyncio.Future[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._copies: dict[tuple[Site, PageKey], Copy] = {}

    def find_copy(self, page: Page) -> Copy | None:
        return self._copies.pop((page.site, page.key), None)

    def look_up(self, pages: Sequence[Page], digest: str) -> Awaitable[None] | None:
        """Of pages that are known, or of a content, whatever is given. None: nobody has to be asked."""
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
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _ask(self) -> None:
        while self._answered is not None:
            digests, self._digests = list(self._digests), {}
            pages, self._pages = list(self._pages.values()), {}
            answered, self._answered = self._answered, None
            await self._answer(digests, pages)
            answered.set_result(None)
        self._asking = None

    async def _answer(self, digests: Sequence[str], pages: Sequence[Page]) -> None:
        """A content that is kept once more does no harm, so where the server is away it is new. A page whose
        copy is not known would count twice: that is asked until there is an answer, or the lease ends."""
        while True:
            try:
                loop = asyncio.get_running_loop()
                originals, copies = await loop.run_in_executor(self._thread, self._find, digests, pages)
            except StoreError as problem:
                if not pages or not is_passing(problem):
                    return
                await asyncio.sleep(_AGAIN_S)
            else:
                for digest, (original, payload_digest) in originals.items():
                    self._contents.learn(digest, original, payload_digest)
                self._copies |= copies
                return

    def _find(
        self, digests: Sequence[str], pages: Sequence[Page]
    ) -> tuple[dict[str, tuple[Original, str]], dict[tuple[Site, PageKey], Copy]]:
        originals = dict(self._library.find_originals(digests)) if digests else {}
        return originals, dict(self._library.find_copies(pages)) if pages else {}
