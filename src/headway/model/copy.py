"""What is known of a page from earlier visits, as the store tells it."""

from __future__ import annotations

import msgspec

from headway.model.command import PageState
from headway.model.outcome import SUCCESS, Kind, Sighting
from headway.units import Instant

NO_SIGHTING = Sighting()


class Copy(msgspec.Struct, frozen=True, gc=False):
    """A page's last visit, and whether it is to have another."""

    state: PageState
    kind: Kind | None
    """None: it was never fetched, and only waits."""
    status: int
    content_type: str
    digest: str
    fetched_at: Instant
    depth: int = 0
    sighting: Sighting = NO_SIGHTING
    is_waiting: bool = False
    """It is queued, or being fetched, at this moment."""

    @property
    def was_answered(self) -> bool:
        """Whether its site has ever said anything about it: a page passed over unasked is as good as new."""
        return self.kind in SUCCESS or self.kind in {Kind.MISSING, Kind.LISTING, Kind.REFUSED}
