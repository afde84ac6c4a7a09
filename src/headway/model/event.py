"""Facts that go into the machine. Each is something that has happened; time comes beside it."""

from __future__ import annotations

import msgspec

from headway.model.command import PageState
from headway.model.order import Order
from headway.model.outcome import Capture, Outcome, Sighting
from headway.model.page import Lease, Page, Site
from headway.model.robots import RobotsRules
from headway.model.snapshot import Snapshot, WaitingRecord
from headway.model.task import Task
from headway.units import BytesPerSecond, Instant, Seconds


class Seeded(msgspec.Struct, frozen=True):
    """Sites that are wanted, and pages to begin with."""

    tasks: tuple[Task, ...]
    pages: tuple[Page, ...]


class Restored(msgspec.Struct, frozen=True):
    """A crawl is taken up again where a store left it; rules are the robots.txt that are still fresh."""

    snapshot: Snapshot
    rules: dict[Site, RobotsRules]


class SitesTaken(msgspec.Struct, frozen=True):
    """Of a crawl that several work on: these sites are ours from now on, as the store has them."""

    sites: frozenset[Site]
    snapshot: Snapshot
    rules: dict[Site, RobotsRules]
    not_before: dict[Site, Instant]
    """Where whoever held a site before may have asked it until shortly: when it is free again."""


class SitesLeft(msgspec.Struct, frozen=True):
    """These sites are ours no more: others will ask them."""

    sites: tuple[Site, ...]


class CollectorsCounted(msgspec.Struct, frozen=True, gc=False):
    """So many, with this one, work on the crawl: what is for all of them is to be shared."""

    collectors: int


class VisitsTold(msgspec.Struct, frozen=True):
    """How pages of a site of ours were found on earlier visits, by whoever made these: a history for each,
    as `policy.freshness` packs them."""

    site: Site
    histories: tuple[bytes, ...]


class PageSettled(msgspec.Struct, frozen=True):
    """A leased page came to an end, with the links found on it (canonical, in document order)."""

    lease: Lease
    outcome: Outcome
    links: tuple[Page, ...] = ()
    capture: Capture | None = None
    lists: tuple[Page, ...] = ()
    """Sitemaps and feeds that it names."""
    sighting: Sighting | None = None
    was: PageState | None = None
    """What an earlier visit had made of the page, if there was one."""


class Loaded(msgspec.Struct, frozen=True):
    """The first pages of a site in the store, in order."""

    site: Site
    waiting: tuple[WaitingRecord, ...]
    is_all: bool


class PagesLoaded(msgspec.Struct, frozen=True):
    """What `LoadPages` asked for, read when the store had at least all savings until then."""

    loads: tuple[Loaded, ...]


class RobotsSettled(msgspec.Struct, frozen=True):
    """robots.txt was fetched (or not: rules is None when it could not be had, which denies all), or it
    leads elsewhere, and is to be asked for there."""

    site: Site
    rules: RobotsRules | None
    expires_at: Instant
    outcome: Outcome
    text: str = ""
    leads_to: str | None = None
    lists: tuple[Page, ...] = ()
    """The sitemaps that it names."""


class Found(msgspec.Struct, frozen=True):
    """Pages learnt of otherwise than by a link on a page that settles: a part of a long list of pages."""

    pages: tuple[Page, ...]


class Again(msgspec.Struct, frozen=True):
    """Known pages that do not wait, to be fetched once more from an instant on."""

    pages: tuple[Page, ...]
    not_before: Instant


class Delivered(msgspec.Struct, frozen=True):
    """A page that came another way than by our asking its site: through somebody's proxy."""

    page: Page
    outcome: Outcome
    links: tuple[Page, ...] = ()
    capture: Capture | None = None
    sighting: Sighting | None = None
    was: PageState | None = None


class CapacityChanged(msgspec.Struct, frozen=True):
    """A person has set the bound on the link, whatever the timetable says; None: as the timetable says."""

    capacity_bytes_per_s: BytesPerSecond | None


class Ordered(msgspec.Struct, frozen=True):
    """A person wants something else of the crawl."""

    order: Order


class DelaySensed(msgspec.Struct, frozen=True, gc=False):
    """A round trip as the system measures it on one of our connections."""

    path: str
    round_trip_s: Seconds


class Tick(msgspec.Struct, frozen=True):
    """The instant of a `WakeAt` has come."""


class Draining(msgspec.Struct, frozen=True):
    """Start nothing more; what is under way may finish."""


_FromFleet = SitesTaken | SitesLeft | CollectorsCounted | VisitsTold
_FromPerson = Seeded | Restored | CapacityChanged | Ordered | DelaySensed | Draining
FromOutside = _FromFleet | _FromPerson | Found | Again | Delivered
Event = FromOutside | PageSettled | RobotsSettled | PagesLoaded | Tick
