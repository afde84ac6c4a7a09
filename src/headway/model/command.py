"""Orders that come out of the machine. A driver turns each into I/O, and what follows into an event."""

from __future__ import annotations

import enum

import msgspec

from headway.model.order import Order
from headway.model.outcome import Capture, Outcome, Sighting
from headway.model.page import Lease, Page, Site
from headway.model.task import Task
from headway.units import BytesPerSecond, Instant


class FetchPage(msgspec.Struct, frozen=True, gc=False):
    lease: Lease
    close_after: bool = False
    """True on the last page of a connection (castillo2004's k)."""


class FetchRobots(msgspec.Struct, frozen=True, gc=False):
    site: Site
    url: str
    """The site's own, or where that one leads."""


class LoadPages(msgspec.Struct, frozen=True, gc=False):
    """The first pages of a site that wait in the store are wanted, once all savings until now are in it."""

    site: Site
    most: int


class SetRates(msgspec.Struct, frozen=True):
    """What each site may read from now on while it reads; those not named have no claim of their own, and
    live on what is left. A site that pauses lends its claim, so the sum may exceed the capacity."""

    rates_bytes_per_s: dict[Site, BytesPerSecond]


class Foresee(msgspec.Struct, frozen=True, gc=False):
    """A deadline can no longer be met, as far as is known; or, told so before, it can again."""

    site: Site
    deadline_at: Instant
    forecast_at: Instant
    is_late: bool
    needed_bytes_per_s: BytesPerSecond | None = None
    """The least bandwidth that would meet all deadlines; None when none would, or none is needed."""


class Obeyed(msgspec.Struct, frozen=True):
    """A person's order was carried out, or refused for a reason."""

    order: Order
    refusal: str = ""


class SetCapacity(msgspec.Struct, frozen=True, gc=False):
    """The bound on the whole link from now on."""

    capacity_bytes_per_s: BytesPerSecond


class WakeAt(msgspec.Struct, frozen=True, gc=False):
    """Send a Tick then, replacing the instant asked for before."""

    at: Instant


class Finished(msgspec.Struct, frozen=True):
    """Nothing is waiting and nothing is under way."""


class PageState(enum.StrEnum):
    """The states of a known page; `frontier` says which may follow which."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    EXCLUDED = "excluded"


class SaveTasks(msgspec.Struct, frozen=True):
    tasks: tuple[Task, ...]


class SaveFound(msgspec.Struct, frozen=True):
    """Pages seen for the first time, to be kept as waiting."""

    pages: tuple[Page, ...]
    is_elsewhere: bool = False
    """Of sites that another collector may hold: they are for whoever does."""


class SaveSettled(msgspec.Struct, frozen=True):
    """A page's new state with what made it so. WAITING means: to be tried again, not before `retry_at`."""

    page: Page
    outcome: Outcome
    state: PageState
    attempt: int
    at: Instant
    retry_at: Instant | None = None
    capture: Capture | None = None
    links: tuple[Page, ...] = ()
    sighting: Sighting | None = None


class SaveAgain(msgspec.Struct, frozen=True):
    """Settled pages that wait once more, to be fetched from an instant on."""

    pages: tuple[Page, ...]
    not_before: Instant


class SaveSite(msgspec.Struct, frozen=True):
    """What a site needs to go on after a restart without being asked too soon."""

    site: Site
    free_at: Instant
    failures_in_a_row: int
    robots_text: str | None = None
    """None: unchanged. The text is parsed again on restart."""
    robots_expires_at: Instant | None = None
    ended_at: Instant | None = None
    """When its last page settled; None while it has pages to come."""
    robots_bytes: int = 0
    """What a robots.txt has just taken of the link, which no page stands for."""


class SaveServers(msgspec.Struct, frozen=True):
    """What was learnt of servers: each with its 48 predicted rates, packed."""

    rows: tuple[tuple[str, bytes], ...]


class SaveNotice(msgspec.Struct, frozen=True):
    """Something about a site that a person should know, and the next run too: a trap, a mirror."""

    site: Site
    at: Instant
    what: str
    subject: str
    """The addresses that a trap has, or the site that a mirror copies."""


Saving = SaveTasks | SaveFound | SaveAgain | SaveSettled | SaveSite | SaveServers | SaveNotice
Command = (
    FetchPage
    | FetchRobots
    | LoadPages
    | SetRates
    | SetCapacity
    | Foresee
    | Obeyed
    | WakeAt
    | Finished
    | Saving
)
