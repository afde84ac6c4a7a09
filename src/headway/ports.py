"""The outside world, as the drivers see it. One implementation of each lives in `fetch` and `store`;
others may be a user's own. `headway.testing` has fakes and the checks that every implementation passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from headway.model.command import Saving
from headway.model.copy import Copy
from headway.model.outcome import Capture, Kind
from headway.model.page import Page, Site
from headway.model.snapshot import Snapshot, WaitingRecord
from headway.units import BytesPerSecond, Instant, Seconds


class Clock(Protocol):
    def now(self) -> Instant: ...


class Request(msgspec.Struct, frozen=True):
    """One GET. `site` names the connection and the share of the link that it counts against."""

    url: str
    site: Site
    headers: tuple[tuple[str, str], ...] = ()
    """Beyond those that the fetcher sends by itself (Host, User-Agent, Accept-Encoding, ...)."""
    close_after: bool = False
    accept_types: frozenset[str] | None = None
    """Media types to read the body of; with any other the answer ends after its head. None: all."""
    max_body_bytes: int | None = None
    """A tighter limit than the fetcher's own (robots.txt: 500 KiB); the body is cut there, not refused."""


class Response(msgspec.Struct, frozen=True):
    """How a request ended. Never an exception: `kind` is FETCHED for any whole HTTP answer, whatever its
    status, and otherwise says what went wrong; what had been received until then is kept."""

    kind: Kind
    url: str
    requested_at: Instant
    duration_s: Seconds
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case, values as latin-1 text, in order, repeated ones kept."""
    request_head: bytes = b""
    head: bytes = b""
    """Status line and headers exactly as received, with the empty line that ends them."""
    payload: bytes = b""
    """The entity: transfer coding removed, content coding still on. What the archive keeps."""
    body: bytes = b""
    """The content: content coding removed as well. What the parser reads."""
    truncated: bool = False
    """Cut by a limit or a lost connection: `payload` is what there is."""
    wire_bytes: int = 0
    waited_s: Seconds = Seconds(0.0)
    """How long the request had to wait for its turn on the link before it was issued."""
    held_s: Seconds = Seconds(0.0)
    """Of the duration, how long the answer was held back for the sake of our own bound."""
    peer: str = ""
    keep_alive: bool = False
    detail: str = ""

    def header(self, name: str, default: str = "") -> str:
        """The first value of a header, by its lower-case name."""
        for key, value in self.headers:
            if key == name:
                return value
        return default


class Fetcher(Protocol):
    """At most one request to a site at a time is the caller's promise; the connection is kept in between."""

    async def fetch(self, request: Request) -> Response: ...

    def set_capacity(self, capacity_bytes_per_s: BytesPerSecond) -> None: ...

    def set_rates(self, rates_bytes_per_s: Mapping[Site, BytesPerSecond]) -> None: ...

    def bytes_received(self) -> int:
        """All that has crossed the link towards us so far, for the measured rate."""
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class PromptFetcher(Protocol):
    """A fetcher that can also do without a task for each request."""

    def fetch_at_once(self, request: Request, then: Callable[[Response], None]) -> bool:
        """Begin a fetch for which nothing has to be waited first; `then` is told what came of it, once, from
        the loop. False: nothing was begun, and `fetch` is to be asked."""
        ...


class Original(msgspec.Struct, frozen=True):
    """The capture that an identical one refers to instead of being kept twice."""

    url: str
    captured_at: Instant


class Part(msgspec.Struct, frozen=True):
    """Of the pages of each site that wait: so many of the first that are due by an instant, and all that are
    not due by then."""

    each: int
    due_by: Instant


class Archive(Protocol):
    """Where captures are kept. Nothing counts as kept before `flush`, and `Store.commit` after that."""

    def write(self, response: Response, *, digest: str, revisit_of: Original | None = None) -> Capture: ...

    def flush(self) -> Mapping[str, int]:
        """Hand everything to the system; returns each open file's name and length for the store to commit."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """The crawl's memory. Domain verbs; `commit` is one transaction."""

    def order_waiting(self, name: str, rank_of: Callable[[Page], float]) -> None:
        """In which order the pages of a site wait: lower ranks first, equal ones as they were found. Without
        it, all as they were found. Said before `load` or `create`; another name than before ranks anew."""
        ...

    def load(self, most_waiting: int | None = None) -> Snapshot | None:
        """What there was, or None for a new crawl; a store of another version raises StoreError. With
        `most_waiting`, of each site only the first pages that wait are given, some so many in all."""
        ...

    def first_waiting(self, site: Site, most: int) -> Sequence[WaitingRecord]:
        """The first pages of a site that wait, as of the last commit."""
        ...

    def create(self, started_at: Instant, job: Mapping[str, object]) -> None: ...

    def commit(self, batch: Sequence[Saving], file_lengths: Mapping[str, int]) -> None:
        """All of it or nothing; StoreError (disk full, lost) leaves what was committed before intact."""
        ...

    def find_digest(self, digest: str) -> Original | None:
        """The first committed capture of this content."""
        ...

    def find_copy(self, page: Page) -> Copy | None:
        """What earlier visits have left of a page, as of the last commit; None of one never seen."""
        ...

    def committed_lengths(self) -> Mapping[str, int]:
        """How long each file that `commit` was told of was then: what lies beyond is cut on reopening."""
        ...

    def close(self) -> None: ...
