"""What a collector and whoever coordinates it say to each other.

A collector joins, and from then on beats: it says how it stands and hears what is new. It commits what came
of its sites, gives sites back, and leaves. All of it may block, so none of it is called on the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from headway.errors import HeadwayError
from headway.fleet.outlook import SiteOutlook
from headway.model.command import Saving
from headway.model.copy import Copy
from headway.model.order import Order
from headway.model.page import Page, PageKey, Site
from headway.model.snapshot import Snapshot, WaitingRecord
from headway.policy.allocation.demand import SiteDemand
from headway.ports import Original
from headway.store.capture import Notes
from headway.units import BytesPerSecond, Instant, Seconds


class LeaseOver(HeadwayError):  # noqa: N818 - a fact of a fleet's life rather than an error
    """A collector was not heard of for so long that its sites are others' now. What it has not committed does
    not count; it may join anew."""


class Lines(msgspec.Struct, frozen=True):
    """What the logs of the run folder get, where somebody else writes them."""

    pages: bytes = b""
    log: bytes = b""
    decisions: bytes = b""


class Parcel(msgspec.Struct, frozen=True):
    """A batch with what must be committed beside it."""

    batch: Sequence[Saving]
    file_lengths: Mapping[str, int] = {}
    notes: Notes = {}
    lines: Lines = Lines()


class Report(msgspec.Struct, frozen=True):
    """How a collector stands."""

    active: tuple[Site, ...] = ()
    """Sites held that have pages to come."""
    demands: tuple[SiteDemand, ...] = ()
    """What these sites could use of the link, when it is bounded or there are deadlines."""
    round_trips_s: tuple[tuple[Site, float], ...] = ()
    """Measured since the last report."""
    outlooks: tuple[SiteOutlook, ...] = ()
    """Of those sites, in the same order."""
    waiting: int = 0
    in_flight: int = 0
    second: int = 0
    received_bytes: int = 0
    """All that had crossed its link at this whole second of the shared clock, since it joined."""
    taken_share: int = 0
    """The newest share that it keeps to."""
    left_s: float | None = None
    """As fast as it has been lately, the pages that it knows of last so long. None: nobody can tell."""


class Portion(msgspec.Struct, frozen=True):
    """How much of its sites a collector is given with them."""

    most_waiting: int | None = None
    """Of all pages that are due, about so many, the first of each site; it asks for more. None: all. Pages
    whose time has not come are given all: only who has them at hand knows when it comes."""
    histories: bool = False
    """How pages were found on earlier visits: for one who decides when they are visited again."""


ALL = Portion()


class Joined(msgspec.Struct, frozen=True):
    collector: int
    started_at: Instant
    """Of the crawl."""
    now: Instant
    """The coordinator's clock, by which all collectors go."""
    read_at: float
    """When that was read, on the monotonic clock of this process: no later than a moment after."""
    lease_s: Seconds
    """From before the question was asked, as all lengths here: so it ends here no later than there."""


class Taken(msgspec.Struct, frozen=True):
    """Sites that are this collector's from now on."""

    sites: frozenset[Site]
    snapshot: Snapshot
    soiled_until: Mapping[Site, Instant] = {}
    """Where the last holder vanished: it may have asked the site until then."""
    histories: Sequence[tuple[Site, bytes]] = ()
    """Of every page that may be visited again: the visits since its first."""


class NewShare(msgspec.Struct, frozen=True):
    number: int
    rate_bytes_per_s: BytesPerSecond
    lasts_s: Seconds


class News(msgspec.Struct, frozen=True):
    lease_s: Seconds
    share: NewShare | None = None
    """The newest; None when there is none that still counts."""
    taken: Taken | None = None
    asked_back: tuple[Site, ...] = ()
    mail: tuple[Page, ...] = ()
    """Pages of this collector's sites that others have found."""
    orders: tuple[Order, ...] = ()
    """A person's; those for one site go to whoever holds it."""
    is_over: bool = False
    """Nothing waits anywhere: the crawl is done."""
    is_sent_away: bool = False
    """Whoever coordinates wants everybody to finish what is under way and leave."""
    to_measure: tuple[Site, ...] = ()
    """Others' sites, whose distance from our place nobody knows."""
    collectors: int = 1
    """Who work on the crawl, this one included."""


class Coordinator(Protocol):
    """Of one collector. LeaseOver from any of these means: it is a collector no more.

    A StoreError that `is_passing` means: try again, nothing has happened, or the same has happened already.
    """

    def join(self, portion: Portion = ALL) -> Joined: ...

    def beat(self, report: Report) -> News: ...

    def commit(self, number: int, parcel: Parcel) -> bool:
        """Parcels are numbered from 1; one that was committed already is not committed again. True: there is
        news, for which the next beat need not be waited for."""
        ...

    def first_waiting(self, site: Site, most: int) -> Sequence[WaitingRecord]:
        """The first pages of a site of ours that are due, as of at least the last parcel."""
        ...

    def find_originals(self, digests: Sequence[str]) -> Mapping[str, tuple[Original, str]]:
        """The first captures of these contents, by whomever, and the digests of the octets kept; what is not
        known is left out."""
        ...

    def find_copies(self, pages: Sequence[Page]) -> Mapping[tuple[Site, PageKey], Copy]:
        """What earlier visits have left of these pages."""
        ...

    def give_back(self, sites: Sequence[Site]) -> None:
        """Nothing of these is under way, and all that came of them is committed."""
        ...

    def leave(self) -> None:
        """Give back everything; nothing is read any more."""
        ...

    def close(self) -> None: ...
