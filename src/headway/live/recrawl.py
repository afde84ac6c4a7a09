"""Visiting a page again: what to ask, and what the answer means beside the copy that there is."""

from __future__ import annotations

import re

from msgspec import structs

from headway.model.copy import Copy
from headway.model.outcome import SUCCESS, Kind, Outcome, Sighting
from headway.policy.freshness import add_visit
from headway.ports import Response

_NOT_MODIFIED = 304
_SAFE_VALUE = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,511}")
_HAS_CONTENT = frozenset({Kind.FETCHED, Kind.DUPLICATE, Kind.NOT_MODIFIED, Kind.LISTING})


def conditions(copy: Copy | None) -> tuple[tuple[str, str], ...]:
    """Headers that ask for the page only if it is no longer like the copy."""
    if copy is None or copy.kind not in _HAS_CONTENT or not copy.digest:
        return ()
    sighting = copy.sighting
    headers = (("If-None-Match", sighting.etag), ("If-Modified-Since", sighting.last_modified))
    return tuple((name, value) for name, value in headers if value)


def beside_copy(outcome: Outcome, copy: Copy | None) -> Outcome:
    """The outcome of a visit to a page of which there is a copy: unchanged, if the server says so or the
    content is the same."""
    if copy is None or copy.kind not in _HAS_CONTENT or not copy.digest:
        return outcome
    if outcome.kind is Kind.NOT_MODIFIED:
        kind = Kind.LISTING if copy.kind is Kind.LISTING else outcome.kind
        return structs.replace(outcome, kind=kind, content_type=copy.content_type, digest=copy.digest)
    if outcome.kind in {Kind.FETCHED, Kind.DUPLICATE} and outcome.digest == copy.digest:
        return structs.replace(outcome, kind=Kind.NOT_MODIFIED)
    return outcome


def sighting_of(response: Response, outcome: Outcome, copy: Copy | None) -> Sighting | None:
    """What to remember for the next visit; None when there is nothing."""
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
    """What may be sent back as it came."""
    return value if _SAFE_VALUE.fullmatch(value) else ""
