"""Values that leave the engine or restore it: commands, users' orders, log entries, and the stored crawl."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import msgspec

from headway.model.page import SUCCESS, Capture, Kind, Lease, Outcome, Page, PageKey, Sighting, Site, Task
from headway.units import BytesPerSecond, Instant


class Pause(msgspec.Struct, frozen=True, tag_field="order", tag="pause"):
    """Start no more requests until `Resume`. Running ones may finish."""


class Resume(msgspec.Struct, frozen=True, tag_field="order", tag="resume"):
    pass


class SetDeadline(msgspec.Struct, frozen=True, tag_field="order", tag="deadline"):
    site: Site
    deadline_at: Instant | None
    """None: no deadline."""


class StopSite(msgspec.Struct, frozen=True, tag_field="order", tag="stop"):
    """Stop requesting this site permanently. What was fetched from it is kept."""

    site: Site


class AddSite(msgspec.Struct, frozen=True, tag_field="order", tag="add"):
    task: Task
    pages: tuple[Page, ...]
    """The pages to start with."""


Order = Pause | Resume | SetDeadline | StopSite | AddSite


class FetchPage(msgspec.Struct, frozen=True, gc=False):
    lease: Lease
    close_after: bool = False
    """True for the last page of a connection (k in castillo2004)."""
    meant: Site | None = None
    """The site of the job that is meant by the page's site, if it is another one; see `policy.site_rules`."""
    preferences: Mapping[str, bool] | None = None
    """What robots.txt says that the page may be used for."""


class FetchRobots(msgspec.Struct, frozen=True, gc=False):
    site: Site
    url: str
    """The URL of the site's robots.txt, or the target of its redirect."""
    meant: Site | None = None
    """As in `FetchPage`."""


class CutRequests(msgspec.Struct, frozen=True, gc=False):
    """End the requests under way: their window has closed. Each is reported as cancelled."""

    sites: frozenset[Site] | None
    """None: all."""


class FindServer(msgspec.Struct, frozen=True, gc=False):
    """Look up the address of a site, which `ServerFound` reports."""

    site: Site


class LoadPages(msgspec.Struct, frozen=True, gc=False):
    """Read the first waiting pages of a site from the store, after all earlier savings are committed."""

    site: Site
    most: int


class SetRates(msgspec.Struct, frozen=True):
    """The rate of each site from now on, while it receives data. Sites not in the mapping share what is left.
    A site in a pause lends its rate to others, so the sum may exceed the capacity."""

    rates_bytes_per_s: dict[Site, BytesPerSecond]


class Limit(enum.StrEnum):
    """What limits a site that will miss its deadline."""

    NONE = ""
    BANDWIDTH = "bandwidth"
    """The bound on the link."""
    SERVER = "server"
    """The rate of the site's server."""
    INTERVAL = "interval"
    """The politeness interval: without it, the site would be in time."""
    CAP = "cap"
    """The highest rate that the job allows the site."""


class SetContention(msgspec.Struct, frozen=True, gc=False):
    """Sites wait for a connection: from now on at most so many may make no progress. None: any number."""

    most_stalled: int | None


class DeadlineForecast(msgspec.Struct, frozen=True, gc=False):
    """A deadline will be missed according to the forecast, or will be met again after such a message."""

    site: Site
    deadline_at: Instant
    forecast_at: Instant
    is_late: bool
    needed_bytes_per_s: BytesPerSecond | None = None
    """The least bandwidth that would meet this deadline and all that can be met; None if none would, or none
    is needed."""
    limited_by: Limit = Limit.NONE
    """Of a late site."""


class OrderAnswered(msgspec.Struct, frozen=True):
    """A user's order was carried out, or refused with a reason."""

    order: Order
    refusal: str = ""


class SetCapacity(msgspec.Struct, frozen=True, gc=False):
    """The bound on the link from now on."""

    capacity_bytes_per_s: BytesPerSecond


class NoteYield(msgspec.Struct, frozen=True, gc=False):
    """For the decision log: what a crawl that yields to other users of the link does."""

    rate_bytes_per_s: BytesPerSecond
    delivered_bytes_per_s: float
    queue_s: float | None
    doing: str


class WakeAt(msgspec.Struct, frozen=True, gc=False):
    """Send a `Tick` at this instant. It replaces the instant of the last `WakeAt`."""

    at: Instant


class Finished(msgspec.Struct, frozen=True):
    """No page is waiting or being fetched."""


class PageState(enum.StrEnum):
    """The states of a known page; `engine.frontier` has the transitions."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    EXCLUDED = "excluded"


class SaveTasks(msgspec.Struct, frozen=True, tag=True, array_like=True):
    tasks: tuple[Task, ...]


class SaveFound(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Pages found for the first time, to be stored as waiting."""

    pages: tuple[Page, ...]
    is_elsewhere: bool = False
    """The sites may belong to other collectors, which must be notified of the pages."""


NOT_COUNTED = 0xFFFF
"""The links of the page were added in parts, or there are as many."""


class SaveSettled(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The new state of a page, with its outcome. WAITING: to be retried, not before `retry_at`."""

    page: Page
    outcome: Outcome
    state: PageState
    attempt: int
    at: Instant
    retry_at: Instant | None = None
    capture: Capture | None = None
    links: tuple[Page, ...] = ()
    sighting: Sighting | None = None
    turnaround_s: float = 0.0
    """How long the site was idle because of our own processing: from the command to the request, and from
    the end of the answer to this instant. Pauses for politeness are not part of it."""
    found: int = NOT_COUNTED
    """How many of the links led to new pages."""
    forgiven: int = 0
    """How many of the attempts do not count, because the server was in trouble."""

    @property
    def next_attempt(self) -> int:
        """As it is stored."""
        return self.attempt + 1 - self.forgiven


class SaveAgain(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Settled pages that are queued again, to be fetched from `not_before` on."""

    pages: tuple[Page, ...]
    not_before: Instant


class SaveSite(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The state of a site that a restart needs, so that the site is not requested too early."""

    site: Site
    free_at: Instant
    failures_in_a_row: int
    robots_text: str | None = None
    """None: unchanged. A restart parses the text again."""
    robots_expires_at: Instant | None = None
    ended_at: Instant | None = None
    """When its last page settled; None while pages are waiting."""
    robots_bytes: int = 0
    """Bytes on the wire of a robots.txt just fetched, which are not counted with any page."""


class SaveServers(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The predicted rates of servers, 48 each, as `Prediction.changed_rows` packs them."""

    rows: tuple[tuple[str, bytes], ...]


class SaveNotice(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A trap or mirror found on a site, for the user and for the next run."""

    site: Site
    at: Instant
    what: str
    subject: str
    """The address pattern of a trap, or the site that a mirror copies."""


class SaveLeftOut(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Links of a site's pages that were left out and not stored one by one, because there may be very many:
    only their number, by the reason."""

    site: Site
    reason: str
    pages: int


Saving = SaveLeftOut | SaveTasks | SaveFound | SaveAgain | SaveSettled | SaveSite | SaveServers | SaveNotice
Command = (
    FetchPage
    | FetchRobots
    | FindServer
    | CutRequests
    | LoadPages
    | SetRates
    | SetCapacity
    | NoteYield
    | SetContention
    | DeadlineForecast
    | OrderAnswered
    | WakeAt
    | Finished
    | Saving
)


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the decision log."""

    at: Instant
    decision: str
    site: str = ""
    url: str = ""
    depth: int = 0
    attempt: int = 0
    reason: str = ""
    until: Instant | None = None
    """For a retry: not before this instant. For a forecast: when the site will end."""
    deadline_at: Instant | None = None
    needed_bytes_per_s: float | None = None
    rates_bytes_per_s: dict[str, float] | None = None
    capacity_bytes_per_s: float | None = None
    """None in a set-capacity entry: no bound."""
    rate_bytes_per_s: float | None = None
    delivered_bytes_per_s: float | None = None
    queue_s: float | None = None


NO_SIGHTING = Sighting()


class Copy(msgspec.Struct, frozen=True, gc=False):
    """The last visit to a page, and whether it waits for another."""

    state: PageState
    kind: Kind | None
    """None: it has not been fetched yet."""
    status: int
    content_type: str
    digest: str
    fetched_at: Instant
    depth: int = 0
    sighting: Sighting = NO_SIGHTING
    is_waiting: bool = False
    """It is queued or being fetched now."""

    @property
    def was_answered(self) -> bool:
        """Whether its site has ever answered for it. A page that was left out without a request counts as
        new."""
        return self.kind in SUCCESS or self.kind in {Kind.MISSING, Kind.LISTING, Kind.REFUSED}


class SiteRecord(msgspec.Struct, frozen=True):
    """A site as of the last commit, with the sums from which the statistics continue."""

    site: Site
    free_at: Instant
    failures_in_a_row: int = 0
    robots_text: str | None = None
    robots_expires_at: Instant | None = None
    ended_at: Instant | None = None
    started_at: Instant | None = None
    """When its first page settled."""
    done: int = 0
    failed: int = 0
    excluded: int = 0
    wire_bytes: int = 0
    content_bytes: int = 0


class WaitingRecord(msgspec.Struct, frozen=True, gc=False):
    page: Page
    attempt: int = 0
    retry_at: Instant | None = None


class Snapshot(msgspec.Struct, frozen=True):
    started_at: Instant
    """When the crawl first started. Deadlines are relative to it."""
    tasks: Sequence[Task]
    sites: Sequence[SiteRecord]
    waiting: Sequence[WaitingRecord]
    """In the order found."""
    seen: Sequence[PageKey]
    """Every key ever saved, including those of waiting pages."""
    unloaded: Mapping[Site, int] = {}
    """How many more pages of a site wait in the store, if not all were loaded."""
    first_ranks: Mapping[Site, float] = {}
    """Of sites without a loaded page: the rank of the first one, by the order of the store."""
    servers: Sequence[tuple[str, bytes]] = ()
    """The rows of `SaveServers`."""
    seen_checks: Sequence[int] = ()
    """The check bits of each key in `seen`; empty: they are not known."""
    notices: Sequence[SaveNotice] = ()
