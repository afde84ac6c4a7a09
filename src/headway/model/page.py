"""Site, page, task, outcome of a download and rules of robots.txt, as frozen values."""

from __future__ import annotations

import enum
from typing import NewType, Protocol

import msgspec

from headway.units import Bytes, BytesPerSecond, Instant, Seconds

Site = NewType("Site", str)
"""Scheme, host and port in canonical form, without a trailing slash: `https://www.example.org`."""

PageKey = NewType("PageKey", int)
"""64 bits of a hash of the canonical URL, keyed with a secret of the crawl (in a simulation the node's
number)."""


class Page(msgspec.Struct, frozen=True, gc=False):
    """A page as it was found. `depth` is the number of links from a seed, `score` the user's score."""

    url: str
    site: Site
    key: PageKey
    depth: int = 0
    score: float = 0.0


AGAIN = -1000
"""Attempts at a page that has settled before are numbered from here, so that a revisit is distinguished from
a first visit wherever the page waits."""


def is_again(attempt: int) -> bool:
    return attempt < 0


def tries_before(attempt: int) -> int:
    """The number of failed requests for the page since it was last queued."""
    return attempt - AGAIN if attempt < 0 else attempt


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The right to fetch a page until an instant. A result with another lease number is ignored."""

    number: int
    page: Page
    attempt: int
    until: Instant


class Task(msgspec.Struct, frozen=True):
    """A task, as in zhu2020: a site, its deadline, its amount of data and its weight."""

    site: Site
    seeds: tuple[str, ...] = ()
    deadline_at: Instant | None = None
    """None: no deadline (t* = 0 in the paper)."""
    weight: float = 1.0
    max_pages: int | None = None
    max_bytes: Bytes | None = None
    expected_bytes: Bytes | None = None
    """The size of the site, from the user or from an earlier crawl."""
    cap_bytes_per_s: BytesPerSecond | None = None
    """The highest rate at which the site may be read."""


class Kind(enum.StrEnum):
    FETCHED = "fetched"
    DUPLICATE = "duplicate"  # fetched; another page of the crawl has the same content
    NOT_MODIFIED = "not-modified"
    REDIRECT = "redirect"
    NOINDEX = "noindex"  # fetched; the page asks not to be stored
    MISSING = "missing"  # 404, 410
    REFUSED = "refused"  # the other 4xx
    BLOCKED = "blocked"  # a protective service refused the request, or asks for proof of a human
    THROTTLED = "throttled"  # 429, or 503 with Retry-After
    SERVER_ERROR = "server-error"
    DNS = "dns-failed"
    CONNECT = "connect-failed"
    TLS = "tls-failed"
    TIMEOUT_CONNECT = "timeout-connect"
    TIMEOUT_FIRST_BYTE = "timeout-first-byte"
    TIMEOUT_IDLE = "timeout-idle"
    TIMEOUT_TOTAL = "timeout-total"
    RESET = "reset"  # the server closed or reset the connection before the answer was complete
    PROTOCOL = "protocol-error"
    TOO_LARGE = "too-large"
    BOMB = "decompression-bomb"
    UNWANTED_TYPE = "unwanted-type"
    FORBIDDEN_ADDRESS = "forbidden-address"
    ROBOTS_DENIED = "robots-denied"
    ROBOTS_UNREACHABLE = "robots-unreachable"
    OUT_OF_SCOPE = "out-of-scope"  # found and counted, but not requested; the detail names the rule
    LEASE_EXPIRED = "lease-expired"
    QUARANTINED = "quarantined"  # reading it ended the process twice
    LISTING = "listing"  # a sitemap or feed: its links were read, its type is not stored
    LIMIT = "site-limit"  # max_pages or max_bytes of the site was reached
    CANCELLED = "cancelled"


NO_SUCH_HOST = "no such host"
"""What the detail of a failed lookup begins with if the name does not exist."""

SUCCESS = frozenset({Kind.FETCHED, Kind.DUPLICATE, Kind.NOT_MODIFIED, Kind.REDIRECT, Kind.NOINDEX})


class Timing(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where the time of one answer went, as the client measured it."""

    asked_at: Instant
    """When the client was asked for the page."""
    ended_at: Instant
    """When the last byte had arrived."""
    connect_s: float = 0.0
    """Name lookup and TCP; 0 on a connection that was kept."""
    tls_s: float = 0.0
    first_byte_s: float = 0.0
    """From sending the request to the first byte of the answer."""
    transfer_s: float = 0.0
    """From the first byte to the last, without `held_s`."""
    held_s: float = 0.0
    """How long our own bound held back the connection or the answer."""
    is_kept: bool = False
    """The connection was kept from an earlier request."""

    @property
    def is_limited(self) -> bool:
        """Our own bound limited the transfer, so the server may be faster."""
        return self.held_s > LIMITED_SHARE * self.transfer_s


LIMITED_SHARE = 0.02
"""An answer that our bound held back for more than this part of its transfer says only that its server is at
least as fast."""


class Outcome(msgspec.Struct, frozen=True, gc=False, array_like=True):
    kind: Kind
    status: int = 0
    """The HTTP status, or 0 without an answer."""
    wire_bytes: int = 0
    """Bytes received on the link for this page, as far as known."""
    duration_s: Seconds = Seconds(0.0)
    """From sending the request to the complete body, so latency is included (diligenti2004)."""
    content_type: str = ""
    content_bytes: int = 0
    digest: str = ""
    retry_after_s: Seconds | None = None
    keep_alive: bool = True
    peer: str = ""
    """The server's address, the key of predicted rates."""
    detail: str = ""
    waited_s: Seconds = Seconds(0.0)
    """How long the request waited for its turn on the link before it was sent."""
    held_s: Seconds = Seconds(0.0)
    """The part of the duration for which our own bandwidth bound held back the answer."""
    fingerprint: int = 0
    """The fingerprint of the content, similar for similar pages (`pages.fingerprint`); 0: unknown."""
    timing: Timing | None = None
    """None if no answer was received, or another program fetched the page."""
    fresh_s: Seconds | None = None
    """For how long it stays as it is by its headers; None if they say nothing, or nobody asked."""

    @property
    def has_no_host(self) -> bool:
        """The name of the host does not exist: it is misspelt, or was taken away."""
        return self.kind is Kind.DNS and self.detail.startswith(NO_SUCH_HOST)


class Sighting(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a visit to a page stores for the next one."""

    etag: str = ""
    last_modified: str = ""
    """Both as received, to be sent back to the server."""
    history: bytes = b""
    """The last visits, as `policy.revisit` packs them."""


class Capture(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The position of a page in the archive."""

    warc_file: str
    warc_offset: int
    warc_length: int


class RobotsRules(Protocol):
    """The robots.txt rules for our user agent, parsed by `http.robots`."""

    @property
    def crawl_delay_s(self) -> Seconds | None: ...

    @property
    def sitemaps(self) -> tuple[str, ...]: ...

    @property
    def problem(self) -> str:
        """Why the last URL was denied, if not by a rule; else empty."""
        ...

    def allows(self, url: str) -> bool: ...


ROBOTS_CUT = "robots.txt is too long"
"""What the detail of an answer begins with of which only the first part was read, and its notice."""


class AllowAll:
    """The rules if there is no robots.txt, or none that applies to our user agent."""

    crawl_delay_s: Seconds | None = None
    sitemaps: tuple[str, ...] = ()
    problem: str = ""

    def allows(self, url: str) -> bool:
        return True
