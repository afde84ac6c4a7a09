"""What an answer amounts to: the status and the directives on the page, as one `Outcome`."""

from __future__ import annotations

from headway.model.outcome import Kind, Outcome
from headway.parse.headers import retry_after_s
from headway.parse.parsed import Parsed
from headway.ports import Response
from headway.units import Instant


def outcome_of(now: Instant, response: Response, parsed: Parsed | None, *, is_known: bool) -> Outcome:
    """`is_known`: the content is that of another page already kept."""
    kind = response.kind
    if kind is Kind.FETCHED:
        kind = _kind_of_status(response)
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
        response.detail,
        response.waited_s,
        response.held_s,
        parsed.fingerprint if parsed is not None else 0,
    )


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
