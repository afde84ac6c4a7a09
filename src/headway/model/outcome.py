"""How a download ended. A failure is a value here, never an exception: the crawl goes on."""

from __future__ import annotations

import enum

import msgspec

from headway.units import Seconds


class Kind(enum.StrEnum):
    FETCHED = "fetched"
    DUPLICATE = "duplicate"  # fetched, and its content is known from another page of the crawl
    NOT_MODIFIED = "not-modified"
    REDIRECT = "redirect"
    NOINDEX = "noindex"  # fetched, and asked not to be kept
    MISSING = "missing"  # 404, 410
    REFUSED = "refused"  # the other 4xx
    THROTTLED = "throttled"  # 429, or 503 with Retry-After
    SERVER_ERROR = "server-error"
    DNS = "dns-failed"
    CONNECT = "connect-failed"
    TLS = "tls-failed"
    TIMEOUT_CONNECT = "timeout-connect"
    TIMEOUT_FIRST_BYTE = "timeout-first-byte"
    TIMEOUT_IDLE = "timeout-idle"
    TIMEOUT_TOTAL = "timeout-total"
    RESET = "reset"  # the server closed or reset before the answer was whole
    PROTOCOL = "protocol-error"
    TOO_LARGE = "too-large"
    BOMB = "decompression-bomb"
    UNWANTED_TYPE = "unwanted-type"
    FORBIDDEN_ADDRESS = "forbidden-address"
    ROBOTS_DENIED = "robots-denied"
    ROBOTS_UNREACHABLE = "robots-unreachable"
    OUT_OF_SCOPE = "out-of-scope"  # found, counted, not requested; the detail says which rule
    LEASE_EXPIRED = "lease-expired"
    LISTING = "listing"  # a sitemap or a feed: read for where it leads, of a type that is not kept
    LIMIT = "site-limit"  # max_pages or max_bytes of the site reached before its turn
    CANCELLED = "cancelled"


SUCCESS = frozenset({Kind.FETCHED, Kind.DUPLICATE, Kind.NOT_MODIFIED, Kind.REDIRECT, Kind.NOINDEX})


class Outcome(msgspec.Struct, frozen=True, gc=False):
    kind: Kind
    status: int = 0
    """The HTTP status, 0 when there was no answer."""
    wire_bytes: int = 0
    """What crossed the link towards us for this page, as far as it is known."""
    duration_s: Seconds = Seconds(0.0)
    """From the request being issued to the body being complete, so latency counts (diligenti2004)."""
    content_type: str = ""
    content_bytes: int = 0
    digest: str = ""
    retry_after_s: Seconds | None = None
    keep_alive: bool = True
    peer: str = ""
    """The server's address, by which rates are predicted."""
    detail: str = ""
    waited_s: Seconds = Seconds(0.0)
    """Before the request was issued, how long it waited for its turn on the link."""
    held_s: Seconds = Seconds(0.0)
    """Of the duration, how long it was held back for the sake of our own bound."""
    fingerprint: int = 0
    """The content's likeness to other pages (`parse.fingerprint`); 0: not known."""


class Sighting(msgspec.Struct, frozen=True, gc=False):
    """What a visit to a page has for the next one."""

    etag: str = ""
    last_modified: str = ""
    """Both as the server wrote them, to be sent back to it."""
    history: bytes = b""
    """The last visits, as `policy.freshness` packs them."""


class Capture(msgspec.Struct, frozen=True, gc=False):
    """Where the archive holds a page."""

    warc_file: str
    warc_offset: int
    warc_length: int
