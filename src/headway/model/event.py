"""Events: facts that enter the engine. Each has already happened; its time is a separate argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import structs

from headway.model.command import Order, PageState, Snapshot, WaitingRecord
from headway.model.page import Capture, Lease, Outcome, Page, RobotsRules, Sighting, Site, Task
from headway.units import BytesPerSecond, Instant

T = TypeVar("T")


class Seeded(msgspec.Struct, frozen=True):
    """Tasks to crawl, and the pages to start with."""

    tasks: tuple[Task, ...]
    pages: tuple[Page, ...]


class Restored(msgspec.Struct, frozen=True):
    """A crawl continues from its stored state, or a part of it. `rules` has the robots.txt files that have
    not expired."""

    snapshot: Snapshot
    rules: dict[Site, RobotsRules]


_RESTORED_AT_ONCE = 250
"""Sites or pages in one event: a few milliseconds."""


def parts_of(snapshot: Snapshot) -> Iterator[Snapshot]:
    """A snapshot in parts that can be restored one after the other, with other events in between."""
    rows = max(map(len, (snapshot.tasks, snapshot.sites, snapshot.waiting, snapshot.unloaded)))
    if rows <= _RESTORED_AT_ONCE:
        yield snapshot
        return
    nothing = Snapshot(snapshot.started_at, (), (), (), ())
    yield structs.replace(
        nothing,
        seen=snapshot.seen,
        seen_checks=snapshot.seen_checks,
        servers=snapshot.servers,
        notices=snapshot.notices,
    )
    for tasks in _slices(snapshot.tasks):
        yield structs.replace(nothing, tasks=tasks)
    for sites in _slices(snapshot.sites):
        yield structs.replace(nothing, sites=sites)
    for waiting in _slices(snapshot.waiting):
        yield structs.replace(nothing, waiting=waiting)
    for unloaded in _slices(list(snapshot.unloaded.items())):
        ranks = {site: snapshot.first_ranks[site] for site, _ in unloaded if site in snapshot.first_ranks}
        yield structs.replace(nothing, unloaded=dict(unloaded), first_ranks=ranks)


def _slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for begin in range(0, len(items), _RESTORED_AT_ONCE):
        yield items[begin : begin + _RESTORED_AT_ONCE]


class SitesTaken(msgspec.Struct, frozen=True):
    """In a crawl by several collectors: these sites belong to this one from now on, in their stored state."""

    sites: frozenset[Site]
    snapshot: Snapshot
    rules: dict[Site, RobotsRules]
    not_before: dict[Site, Instant]
    """When a site may be requested again, if its former owner may have requested it recently."""


class SitesLeft(msgspec.Struct, frozen=True):
    """These sites now belong to other collectors."""

    sites: tuple[Site, ...]


class CollectorsCounted(msgspec.Struct, frozen=True, gc=False):
    """How many collectors, including this one, work on the crawl and share its common limits."""

    collectors: int


class VisitHistories(msgspec.Struct, frozen=True):
    """The visit histories of the pages of an owned site, as `policy.revisit` packs them. Other collectors may
    have made the visits."""

    site: Site
    histories: tuple[bytes, ...]


class PageSettled(msgspec.Struct, frozen=True):
    """The result of a leased page, with the links found on it (canonical, in document order)."""

    lease: Lease
    outcome: Outcome
    links: tuple[Page, ...] = ()
    capture: Capture | None = None
    lists: tuple[Page, ...] = ()
    """The sitemaps and feeds that it names."""
    sighting: Sighting | None = None
    was: PageState | None = None
    """The state of the page after an earlier visit, if there was one."""


class Loaded(msgspec.Struct, frozen=True):
    """The first waiting pages of a site in the store, in order."""

    site: Site
    waiting: tuple[WaitingRecord, ...]
    is_all: bool


class PagesLoaded(msgspec.Struct, frozen=True):
    """The result of `LoadPages`, read after all earlier savings were committed."""

    loads: tuple[Loaded, ...]


class RobotsSettled(msgspec.Struct, frozen=True):
    """The result of `FetchRobots`. `rules` is None if robots.txt could not be fetched, which denies all
    pages; `leads_to` is the target of a redirect, to be fetched next."""

    site: Site
    rules: RobotsRules | None
    expires_at: Instant
    outcome: Outcome
    text: str = ""
    leads_to: str | None = None
    lists: tuple[Page, ...] = ()
    """The sitemaps that it names."""


class ServerFound(msgspec.Struct, frozen=True, gc=False):
    """The result of `FindServer`."""

    site: Site
    address: str
    """The one to which requests are sent; empty if there is none, or it is not known."""


class GroupLease(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The right to request a server or a domain."""

    key: str
    not_before: Instant
    is_unclean: bool = False
    """Its last holder died, and may have sent requests until `not_before`."""


class GroupsGranted(msgspec.Struct, frozen=True):
    """In a crawl by several processes: servers and domains that this one may request from now on."""

    groups: tuple[GroupLease, ...]


class GroupsRecalled(msgspec.Struct, frozen=True):
    """Servers and domains that other processes wait for."""

    groups: tuple[str, ...]


class Found(msgspec.Struct, frozen=True):
    """Pages found other than as links of a settled page: part of a long sitemap or feed."""

    pages: tuple[Page, ...]


class Again(msgspec.Struct, frozen=True):
    """Known pages that are not waiting, to be fetched again from `not_before` on."""

    pages: tuple[Page, ...]
    not_before: Instant


class Delivered(msgspec.Struct, frozen=True):
    """A page that the crawl did not request itself, but received through a proxy."""

    page: Page
    outcome: Outcome
    links: tuple[Page, ...] = ()
    capture: Capture | None = None
    sighting: Sighting | None = None
    was: PageState | None = None


class SiteProgress(msgspec.Struct, frozen=True):
    """How far a site is that another process crawls by itself, such as a Scrapy spider. Counts are those
    since the crawl began."""

    site: Site
    answers: int
    wire_bytes: int
    waiting: int
    """Pages that wait or are in flight."""
    has_ended: bool = False


class SitesProgressed(msgspec.Struct, frozen=True):
    """Processes that crawl sites by themselves have reported. The crawl starts no requests to these sites,
    but divides the link among them."""

    sites: tuple[SiteProgress, ...]


class CapacityChanged(msgspec.Struct, frozen=True):
    """The user has set the bound on the link, in place of the timetable; None: the timetable applies
    again."""

    capacity_bytes_per_s: BytesPerSecond | None


class Ordered(msgspec.Struct, frozen=True):
    """The user has given an order."""

    order: Order


class LinkShared(msgspec.Struct, frozen=True, gc=False):
    """How the crawl shares the link with its other users: reported each second by a crawl that yields."""

    rate_bytes_per_s: BytesPerSecond
    """To which it limits itself now, at most the bound."""
    delivered_bytes_per_s: float
    queue_s: float | None
    """How long a packet waits at the bottleneck; None if it could not be measured."""
    doing: str


class Tick(msgspec.Struct, frozen=True):
    """The instant of the last `WakeAt` has been reached."""


class Draining(msgspec.Struct, frozen=True):
    """The crawl is stopping: start no more requests. Running ones may finish."""


_FromFleet = SitesTaken | SitesLeft | CollectorsCounted | VisitHistories | GroupsGranted | GroupsRecalled
_FromPerson = Seeded | Restored | CapacityChanged | Ordered | LinkShared | Draining
FromOutside = _FromFleet | _FromPerson | Found | Again | Delivered | SitesProgressed
Event = FromOutside | PageSettled | RobotsSettled | ServerFound | PagesLoaded | Tick
