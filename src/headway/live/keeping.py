"""What becomes of an answer: what it amounts to, and whether and how it is archived."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from headway.live.classify import outcome_of
from headway.live.recrawl import beside_copy, sighting_of
from headway.model.copy import Copy
from headway.model.event import PageSettled
from headway.model.outcome import Capture, Kind, Outcome
from headway.model.page import Lease
from headway.parse.listing import LIST_TYPES
from headway.parse.parsed import Parsed
from headway.ports import Archive, Clock, Original, Response

_ARCHIVED = frozenset(
    {Kind.FETCHED, Kind.DUPLICATE, Kind.NOT_MODIFIED, Kind.REDIRECT, Kind.MISSING, Kind.REFUSED}
)
_KEPT = frozenset({Kind.FETCHED, Kind.DUPLICATE, Kind.NOT_MODIFIED})
_COPIES = frozenset({Kind.DUPLICATE, Kind.NOT_MODIFIED})
_NOT_MODIFIED = 304


class Keeper:
    def __init__(
        self,
        archive: Archive,
        find_digest: Callable[[str], Original | None],
        clock: Clock,
        wanted_types: frozenset[str] | None,
    ) -> None:
        """`wanted_types`: where more is read than is wanted, for the lists among it; None: all is wanted."""
        self._archive = archive
        self._find_digest = find_digest
        self._clock = clock
        self._wanted_types = wanted_types
        self._uncommitted: dict[str, Original] = {}

    def committed(self) -> None:
        """What was archived until now can be found in the store."""
        self._uncommitted.clear()

    def unknown_digest(self, response: Response, parsed: Parsed | None, copy: Copy | None) -> str:
        """The digest of what came, if nothing is known of it; empty otherwise."""
        if copy is not None and response.status == _NOT_MODIFIED:
            digest = copy.digest
        else:
            digest = parsed.digest if parsed is not None else ""
        return "" if self._original(digest) is not None else digest

    def keep(self, lease: Lease, response: Response, parsed: Parsed | None, copy: Copy | None) -> PageSettled:
        """Archive the answer if it is worth it, and say what the machine is to know of it."""
        original = self._original(parsed.digest) if parsed is not None else None
        outcome = outcome_of(self._clock.now(), response, parsed, is_known=original is not None)
        outcome = beside_copy(self._as_wanted(outcome, parsed), copy)
        if copy is not None and response.status == _NOT_MODIFIED:
            original = self._original(copy.digest) or Original(lease.page.url, copy.fetched_at)
        return PageSettled(
            lease,
            outcome,
            parsed.links if parsed is not None and not parsed.is_list else (),
            self._archived(response, outcome, original),
            parsed.lists if parsed is not None else (),
            sighting_of(response, outcome, copy),
            copy.state if copy is not None and copy.kind is not None else None,
        )

    def _as_wanted(self, outcome: Outcome, parsed: Parsed | None) -> Outcome:
        """A body that was read only because it might be a list of pages is not kept."""
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

    def _archived(self, response: Response, outcome: Outcome, original: Original | None) -> Capture | None:
        if outcome.kind not in _ARCHIVED:
            return None
        digest = outcome.digest
        is_copy = outcome.kind in _COPIES
        capture = self._archive.write(response, digest=digest, revisit_of=original if is_copy else None)
        if outcome.kind is Kind.FETCHED and digest:
            self._uncommitted[digest] = Original(response.url, response.requested_at)
        return capture
