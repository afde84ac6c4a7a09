"""Classifies responses: the outcome, the comparison with an earlier copy, and whether to archive."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import structs

from headway.model.command import Copy
from headway.model.event import PageSettled
from headway.model.page import SUCCESS, Capture, Kind, Lease, Outcome, Sighting
from headway.pages.headers import fresh_for_s, retry_after_s
from headway.pages.parsed import Parsed
from headway.pages.sitemaps import LIST_TYPES
from headway.policy.politeness import blocked_by, preferences_in, with_preferences
from headway.policy.revisit import add_visit
from headway.ports import Archive, Clock, Made, Original, Response
from headway.units import Instant, Seconds


def outcome_of(now: Instant, response: Response, parsed: Parsed | None, *, is_known: bool) -> Outcome:
    """`is_known`: the content is that of another page in the archive."""
    kind = response.kind
    if kind is Kind.FETCHED:
        kind = _kind_of_status(response)
        if service := blocked_by(response.status, response.headers, response.body):
            return _blocked(now, response, service)
        if kind is Kind.FETCHED and parsed is not None:
            kind = Kind.NOINDEX if parsed.noindex else Kind.DUPLICATE if is_known else Kind.FETCHED
    return Outcome(
        kind,
        response.status,
        response.wire_bytes,
        response.duration_s,
        parsed.content_type
        if parsed is not None
        else response.header("content-type").partition(";")[0].strip().lower(),
        len(response.body),
        parsed.digest if parsed is not None else "",
        retry_after_s(now, response.header("retry-after"))
        if kind in {Kind.THROTTLED, Kind.SERVER_ERROR}
        else None,
        response.keep_alive,
        response.peer,
        _detail_of(response, parsed),
        response.waited_s,
        response.held_s,
        parsed.fingerprint if parsed is not None else 0,
        response.timing,
    )


def _blocked(now: Instant, response: Response, service: str) -> Outcome:
    return Outcome(
        Kind.BLOCKED,
        response.status,
        response.wire_bytes,
        response.duration_s,
        retry_after_s=retry_after_s(now, response.header("retry-after")),
        keep_alive=response.keep_alive,
        peer=response.peer,
        detail=f"by {service}",
        waited_s=response.waited_s,
        held_s=response.held_s,
        timing=response.timing,
    )


def _detail_of(response: Response, parsed: Parsed | None) -> str:
    if parsed is None:
        return response.detail
    detail = response.detail
    if parsed.problem:
        detail = f"{detail}; {parsed.problem}" if detail else parsed.problem
    return with_preferences(detail, parsed.preferences)


def _kind_of_status(response: Response) -> Kind:
    status = response.status
    if 200 <= status < 300:
        return Kind.FETCHED
    if status == 304:
        return Kind.NOT_MODIFIED
    if 300 <= status < 400:
        return Kind.REDIRECT
    if status in {404, 410}:
        return Kind.MISSING
    if status == 429 or (status == 503 and response.header("retry-after")):
        return Kind.THROTTLED
    return Kind.REFUSED if status < 500 else Kind.SERVER_ERROR


_NOT_MODIFIED = 304
_SAFE_VALUE = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,511}")
_HAS_CONTENT = frozenset({Kind.FETCHED, Kind.DUPLICATE, Kind.NOT_MODIFIED, Kind.LISTING})


def conditions(copy: Copy | None) -> tuple[tuple[str, str], ...]:
    """Conditional headers: request the page only if it differs from the copy."""
    if copy is None or copy.kind not in _HAS_CONTENT or not copy.digest:
        return ()
    sighting = copy.sighting
    headers = (("If-None-Match", sighting.etag), ("If-Modified-Since", sighting.last_modified))
    return tuple((name, value) for name, value in headers if value)


def beside_copy(outcome: Outcome, copy: Copy | None) -> Outcome:
    """The outcome of a visit to a page with a copy: unchanged, if the server says so or the content is the
    same."""
    if copy is None or copy.kind not in _HAS_CONTENT or not copy.digest:
        return outcome
    if outcome.kind is Kind.NOT_MODIFIED:
        kind = Kind.LISTING if copy.kind is Kind.LISTING else outcome.kind
        return structs.replace(outcome, kind=kind, content_type=copy.content_type, digest=copy.digest)
    if outcome.kind in {Kind.FETCHED, Kind.DUPLICATE} and outcome.digest == copy.digest:
        return structs.replace(outcome, kind=Kind.NOT_MODIFIED)
    return outcome


def sighting_of(response: Response, outcome: Outcome, copy: Copy | None) -> Sighting | None:
    """What to store for the next visit; None if there is nothing."""
    if outcome.kind not in SUCCESS and outcome.kind not in {Kind.LISTING, Kind.MISSING}:
        return None
    etag, last_modified, history = "", "", b""
    if outcome.kind in _HAS_CONTENT and not response.truncated:
        etag, last_modified = (_safe(response.header(name)) for name in ("etag", "last-modified"))
    if copy is not None and copy.kind is not None:
        if response.status == _NOT_MODIFIED:
            etag, last_modified = etag or copy.sighting.etag, last_modified or copy.sighting.last_modified
        is_same = outcome.digest == copy.digest and outcome.status in {copy.status, _NOT_MODIFIED}
        history = add_visit(
            copy.sighting.history,
            response.requested_at - copy.fetched_at,
            is_changed=outcome.kind is not Kind.NOT_MODIFIED and not is_same,
        )
    return Sighting(etag, last_modified, history) if etag or last_modified or history else None


def _safe(value: str) -> str:
    """Validators that can be sent back as received."""
    return value if _SAFE_VALUE.fullmatch(value) else ""


_ARCHIVED = frozenset(
    {Kind.FETCHED, Kind.DUPLICATE, Kind.NOT_MODIFIED, Kind.REDIRECT, Kind.MISSING, Kind.REFUSED}
)
_KEPT = frozenset({Kind.FETCHED, Kind.DUPLICATE, Kind.NOT_MODIFIED})
_COPIES = frozenset({Kind.DUPLICATE, Kind.NOT_MODIFIED})


class Keeper:
    """Classifies an answer, and decides whether and how it is archived."""

    def __init__(
        self,
        archive: Archive,
        find_digest: Callable[[str], Original | None],
        clock: Clock,
        wanted_types: frozenset[str] | None,
        *,
        reads_freshness: bool = False,
    ) -> None:
        """`wanted_types`: the types to archive if more types are read, to find lists among them; None:
        all. `reads_freshness`: pages will be visited again."""
        self._reads_freshness = reads_freshness
        self._archive = archive
        self._find_digest = find_digest
        self._clock = clock
        self._wanted_types = wanted_types
        self._uncommitted: dict[str, Original] = {}

    def committed(self) -> None:
        """Everything archived until now is in the store."""
        self._uncommitted.clear()

    def unknown_digest(self, response: Response, parsed: Parsed | None, copy: Copy | None) -> str:
        """The digest of the answer if it is not known; otherwise empty."""
        if copy is not None and response.status == _NOT_MODIFIED:
            digest = copy.digest
        else:
            digest = parsed.digest if parsed is not None else ""
        return "" if self._original(digest) is not None else digest

    def make(self, response: Response, parsed: Parsed) -> Callable[[], Made | None]:
        """What to do in a thread for a long answer, before it is kept."""
        is_known = self._original(parsed.digest) is not None
        return partial(self._archive.make, response, parsed.digest, is_known=is_known)

    def write_some(self) -> bool:
        """Write a part of a long answer; returns whether more is left."""
        return self._archive.write_some()

    def keep(
        self,
        lease: Lease,
        response: Response,
        parsed: Parsed | None,
        copy: Copy | None,
        made: Made | None = None,
        *,
        preferences: Mapping[str, bool] | None = None,
    ) -> PageSettled:
        """Archive the answer if needed, and return what the engine has to know of it. `made`: as `make` has
        made it. `preferences`: what robots.txt says that the page may be used for."""
        original = self._original(parsed.digest) if parsed is not None else None
        outcome = outcome_of(self._clock.now(), response, parsed, is_known=original is not None)
        outcome = beside_copy(self._as_wanted(outcome, parsed), copy)
        if copy is not None and response.status == _NOT_MODIFIED:
            original = self._original(copy.digest) or Original(lease.page.url, copy.fetched_at)
        if self._reads_freshness and outcome.kind in SUCCESS:
            fresh_s = fresh_for_s(self._clock.now(), response.headers)
            outcome = structs.replace(outcome, fresh_s=None if fresh_s is None else Seconds(fresh_s))
        if preferences and outcome.kind in SUCCESS:
            outcome = structs.replace(outcome, detail=with_preferences(outcome.detail, preferences))
        is_content = outcome.kind is not Kind.BLOCKED
        return PageSettled(
            lease,
            outcome,
            parsed.links if is_content and parsed is not None and not parsed.is_list else (),
            self._archived(response, outcome, original, made),
            parsed.lists if is_content and parsed is not None else (),
            sighting_of(response, outcome, copy),
            copy.state if copy is not None and copy.kind is not None else None,
        )

    def _as_wanted(self, outcome: Outcome, parsed: Parsed | None) -> Outcome:
        """A body that was read only because it might be a list of pages is not archived."""
        wanted = self._wanted_types
        if wanted is None or parsed is None or not parsed.content_type or outcome.kind not in _KEPT:
            return outcome
        if parsed.content_type in wanted:
            return outcome
        if parsed.is_list:
            return structs.replace(outcome, kind=Kind.LISTING)
        is_list_type = parsed.content_type in LIST_TYPES
        return structs.replace(outcome, kind=Kind.UNWANTED_TYPE) if is_list_type else outcome

    def _original(self, digest: str) -> Original | None:
        if not digest:
            return None
        return self._uncommitted.get(digest) or self._find_digest(digest)

    def _archived(
        self, response: Response, outcome: Outcome, original: Original | None, made: Made | None
    ) -> Capture | None:
        if outcome.kind not in _ARCHIVED:
            return None
        digest = outcome.digest
        is_copy = outcome.kind in _COPIES
        revisit_of = original if is_copy else None
        capture = self._archive.write(
            response,
            digest=digest,
            revisit_of=revisit_of,
            made=made,
            preferences=preferences_in(outcome.detail),
        )
        if outcome.kind is Kind.FETCHED and digest:
            self._uncommitted[digest] = Original(response.url, response.requested_at)
        return capture
