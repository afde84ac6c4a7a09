"""The outside world as the engine's drivers see it: clock, fetcher, archive, store.

Headway's implementations are in `http`, `archive` and `store`; users may add their own. `tests/support` has
fakes, and the checks that every implementation must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, Self, runtime_checkable

import msgspec

from headway.model.command import Copy, Saving, Snapshot, WaitingRecord
from headway.model.page import Capture, Kind, Page, Site, Timing
from headway.units import BytesPerSecond, Instant, Seconds


class Clock(Protocol):
    def now(self) -> Instant: ...


class Request(msgspec.Struct, frozen=True):
    """One GET, or one form. `site` selects the connection, and the share of the link that the answer counts
    against."""

    url: str
    site: Site
    headers: tuple[tuple[str, str], ...] = ()
    """In addition to those that the fetcher always sends (Host, User-Agent, Accept-Encoding, ...)."""
    close_after: bool = False
    accept_types: frozenset[str] | None = None
    """Media types whose body is read; for any other the fetcher stops after the head. None: all."""
    max_body_bytes: int | None = None
    """A lower limit than the fetcher's own (robots.txt: 500 KiB). The body is truncated there, not
    rejected."""
    form: bytes | None = None
    """A form to send with POST, as `application/x-www-form-urlencoded`, instead of the GET."""


class Response(msgspec.Struct, frozen=True, weakref=True):
    """The result of a request; a failure is a value too, not an exception.

    `kind` is FETCHED for every complete HTTP answer, whatever its status, and otherwise names the failure.
    What was received before a failure is kept.
    """

    kind: Kind
    url: str
    requested_at: Instant
    duration_s: Seconds
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case, values decoded as latin-1; in the order received, with duplicates."""
    request_head: bytes = b""
    head: bytes = b""
    """Status line and headers exactly as received, with the empty line at the end."""
    payload: bytes = b""
    """The body without its transfer coding, but with its content coding. The archive stores this."""
    body: bytes = b""
    """The body without transfer and content coding. The parser reads this."""
    truncated: bool = False
    """The body was cut by a limit or a lost connection, so `payload` is incomplete."""
    wire_bytes: int = 0
    waited_s: Seconds = Seconds(0.0)
    """How long the request waited for its turn on the link before it was sent."""
    held_s: Seconds = Seconds(0.0)
    """The part of the duration for which our own bandwidth bound held back the answer."""
    peer: str = ""
    keep_alive: bool = False
    detail: str = ""
    timing: Timing | None = None
    """None if nothing was received, or the fetcher does not measure it."""

    def header(self, name: str, default: str = "") -> str:
        """The first value of a header. `name` is in lower case."""
        for key, value in self.headers:
            if key == name:
                return value
        return default


class Fetcher(Protocol):
    """The caller sends at most one request to a site at a time; the connection stays open between them."""

    async def fetch(self, request: Request) -> Response: ...

    def set_capacity(self, capacity_bytes_per_s: BytesPerSecond) -> None: ...

    def set_rates(self, rates_bytes_per_s: Mapping[Site, BytesPerSecond]) -> None: ...

    def bytes_received(self) -> int:
        """Total bytes received on the link so far, from which the rate is measured."""
        ...

    def cut(self, sites: Collection[Site] | None) -> None:
        """End the requests in flight of these sites, or of all: their responses are CANCELLED."""
        ...

    def set_contention(self, most_stalled: int | None) -> None:
        """Sites wait for a connection: from now on end those connections beyond this number that make no
        progress. None: none."""
        ...

    async def address_of(self, site: Site) -> str:
        """The address to which requests to the site are sent; empty if the fetcher does not look up names."""
        ...

    async def aclose(self) -> None: ...


@runtime_checkable
class PromptFetcher(Protocol):
    """A fetcher that can also fetch without an asyncio task for each request."""

    def fetch_at_once(self, request: Request, then: Callable[[Response], None]) -> bool:
        """Start a fetch that can be sent immediately. The event loop calls `then` once, with the response.
        False: the request would have to wait; nothing was started, and the caller must use `fetch`."""
        ...


class Original(msgspec.Struct, frozen=True):
    """The first capture of a content. Later identical captures refer to it, so that it is stored once."""

    url: str
    captured_at: Instant


class Part(msgspec.Struct, frozen=True):
    """Which waiting pages of each site to load: the first `each` of those due by `due_by`, and all that are
    due later."""

    each: int
    due_by: Instant


class Made(msgspec.Struct, frozen=True):
    """What was made of a long answer before it is written."""

    payload_digest: str
    records: bytes = b""
    """Of an answer whose content is new; empty: they have not been made."""
    main_bytes: int = 0


class Archive(Protocol):
    """Where captures are stored. A capture is durable only after `flush` and then `Store.commit`."""

    def write(
        self,
        response: Response,
        *,
        digest: str,
        revisit_of: Original | None = None,
        made: Made | None = None,
        preferences: Mapping[str, bool] | None = None,
    ) -> Capture:
        """`preferences`: what the page may be used for, as far as its site says so."""
        ...

    def make(self, response: Response, digest: str, *, is_known: bool) -> Made | None:
        """What of a capture takes long, in a thread: digests and compression. `is_known`: its content is in
        the archive. None: nothing needs to be made."""
        ...

    def write_some(self) -> bool:
        """Write a part of what is long; returns whether more is left."""
        ...

    def flush(self) -> Mapping[str, int]:
        """Write everything to the files. Returns the name and length of each open file, for the store to
        commit."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """The persistent state of a crawl. `commit` is one transaction."""

    def order_waiting(self, name: str, rank_of: Callable[[Page], float]) -> None:
        """Set the order in which the pages of a site wait: lower ranks first, equal ranks in the order found.

        By default pages wait in the order found. Call it before `load` or `create`. If `name` differs from
        the stored one, all waiting pages are ranked again.
        """
        ...

    def load(self, most_waiting: int | None = None) -> Snapshot | None:
        """The stored crawl, or None for a new one. StoreError if the store has another version.

        With `most_waiting`, only the first waiting pages of each site are loaded, about that many in all.
        """
        ...

    def first_waiting(self, site: Site, most: int) -> Sequence[WaitingRecord]:
        """The first `most` waiting pages of a site, as of the last commit."""
        ...

    def create(self, started_at: Instant, job: Mapping[str, object]) -> None: ...

    def commit(self, batch: Sequence[Saving], file_lengths: Mapping[str, int]) -> None:
        """Commit everything or nothing. StoreError (disk full, file lost) leaves earlier commits intact."""
        ...

    def find_digest(self, digest: str) -> Original | None:
        """The first committed capture of this content."""
        ...

    def find_copy(self, page: Page) -> Copy | None:
        """The state and headers of a page's last visit, as of the last commit; None if it was never seen."""
        ...

    def committed_lengths(self) -> Mapping[str, int]:
        """The length of each file at the last commit. Bytes beyond it are cut when the run is reopened."""
        ...

    def close(self) -> None: ...


class CaptureNote(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What the index needs of a capture in addition to its position in the archive."""

    captured_at: Instant
    payload_digest: str
    record_type: str
    """response, revisit or resource."""


Notes = Mapping[tuple[str, int], CaptureNote]
"""The key is file name and offset."""


class PackedLinks(tuple[Page, ...]):  # noqa: SLOT001  slots of a tuple hold nothing
    """Links that are only stored, already packed by `rows.links_blob`. As a sequence of pages it is empty."""

    blob: bytes

    @classmethod
    def of(cls, blob: bytes) -> Self:
        links = cls()
        links.blob = blob
        return links
