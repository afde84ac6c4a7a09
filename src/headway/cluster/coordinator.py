"""The messages between a collector and its coordinator: clock, progress of sites, leases and shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

import msgspec
import numpy as np
from msgspec import structs

from headway.cluster.rpc import Codec, RpcError
from headway.engine.machine import Engine
from headway.errors import HeadwayError
from headway.model.command import Copy, Order, SaveSettled, Saving, Snapshot, WaitingRecord
from headway.model.event import GroupLease
from headway.model.page import Page, PageKey, Site
from headway.planning.allocator import Allocation, SiteDemand
from headway.planning.estimate import Remaining, forecast_range
from headway.policy.yielding import LinkUse
from headway.ports import Notes, Original, PackedLinks
from headway.store import rows
from headway.store.rows import SiteSample
from headway.units import BytesPerSecond, Instant, Seconds

MOST_REPORTED = 2000
"""Sites that a collector names in a report; of the others it reports the sums."""
_ROWS_A_TURN = 150
_LEAST_S = Seconds(1.0)
_PART_OF_ELAPSED = 0.05
_NOTHING = Remaining(0.0, 0.0, 0.0)


class SiteOutlook(msgspec.Struct, frozen=True, gc=False, array_like=True):
    waiting: int
    remaining: Remaining


def outlooks_of(crawl: Engine, demands: Sequence[SiteDemand]) -> tuple[SiteOutlook, ...]:
    """Outlooks of the sites with a demand, in the order of `demands`."""
    planner, waiting_of = crawl.planner, crawl.frontier.waiting_of
    assert planner is not None
    return tuple(
        SiteOutlook(waiting_of(demand.site), planner.remaining_of(demand.site) or _NOTHING)
        for demand in demands
    )


def demands_of(
    now: Instant, crawl: Engine, collector: int
) -> tuple[tuple[SiteDemand, ...], tuple[SiteOutlook, ...]]:
    """What the sites of a collector want of the link. With very many sites, the most urgent demands each by
    itself with its outlook, then the others as a few sums, which have none."""
    if crawl.planner is None:
        return (), ()
    each, sums = crawl.planner.most_urgent(now, MOST_REPORTED, f"other sites of collector {collector}:")
    return (*each, *sums), outlooks_of(crawl, each)


class FleetChronicle:
    """Samples of the progress of sites. The longer the crawl has lasted, the longer the time between two
    samples of a site, as in a crawl by one process."""

    def __init__(self, began_at: Instant, wire_bytes_of: Callable[[Site], int]) -> None:
        self._began_at = began_at
        self._wire_bytes_of = wire_bytes_of
        self._due_at: dict[Site, float] = {}

    def course(
        self, now: Instant, standing: Iterable[tuple[SiteDemand, SiteOutlook]], plan: Allocation | None
    ) -> list[SiteSample]:
        pause_s = max(_LEAST_S, _PART_OF_ELAPSED * (now - self._began_at))
        rows = []
        for demand, outlook in islice(self._due(now, standing), _ROWS_A_TURN):
            self._due_at[demand.site] = now + pause_s
            rows.append(self._row(now, demand, outlook, plan))
        return rows

    def _due(
        self, now: Instant, standing: Iterable[tuple[SiteDemand, SiteOutlook]]
    ) -> Iterator[tuple[SiteDemand, SiteOutlook]]:
        return (each for each in standing if self._due_at.get(each[0].site, 0.0) <= now)

    def _row(
        self, now: Instant, demand: SiteDemand, outlook: SiteOutlook, plan: Allocation | None
    ) -> SiteSample:
        site = demand.site
        row = SiteSample(
            site, now, self._wire_bytes_of(site), outlook.waiting, left_bytes=demand.remaining_bytes
        )
        if plan is None or site not in plan.forecast:
            return row
        ends = forecast_range(now, plan.forecast[site], outlook.remaining)
        share = plan.rates.get(site, 0.0)
        return msgspec.structs.replace(
            row, share_bytes_per_s=share, forecast_from_at=ends[0], forecast_to_at=ends[1]
        )


# The calls between a collector and its coordinator, and the messages that they carry.
#
# A collector joins, and from then on sends heartbeats: each reports its state and returns the news. It
# commits the results of its sites, returns sites, and leaves. A collector is a worker process, which calls
# its supervisor (`local`), or a process on any machine of a fleet, which works on the rows of a PostgreSQL
# server (`postgres`).


class LeaseOver(HeadwayError):  # noqa: N818 - an expected condition rather than an error
    """The collector's lease has expired, so its sites may belong to other collectors. Results that it has not
    committed are lost. It may join again."""


class Lines(msgspec.Struct, frozen=True):
    """Lines for the logs of the run folder, where another process writes them."""

    pages: bytes = b""
    log: bytes = b""
    decisions: bytes = b""


class CommitBatch(msgspec.Struct, frozen=True):
    """Savings in the order in which they happened, with everything that must be committed in the same
    transaction."""

    savings: Sequence[Saving]
    file_lengths: Mapping[str, int] = {}
    notes: Notes = {}
    lines: Lines = Lines()


class Report(msgspec.Struct, frozen=True):
    """The state of a collector."""

    active: tuple[Site, ...] = ()
    """Sites held that have waiting pages; if they are very many, some of them, others each time."""
    demands: tuple[SiteDemand, ...] = ()
    """The demands of the held sites for bandwidth, if the link is bounded or there are deadlines: see
    `demands_of`."""
    round_trips_s: tuple[tuple[Site, float], ...] = ()
    """Measured since the last report."""
    outlooks: tuple[SiteOutlook, ...] = ()
    """One for each of `demands` that is of a single site, in the same order."""
    waiting: int = 0
    in_flight: int = 0
    second: int = 0
    received_bytes: int = 0
    """All bytes received since it joined, until this whole second of the shared clock."""
    taken_share: int = 0
    """The newest share that it applies."""
    left_s: float | None = None
    """How long its known pages last at the present speed. None: unknown."""
    link_use: LinkUse | None = None
    """What it does on its link, if it yields to other users."""
    wanted: tuple[str, ...] = ()
    """Servers and domains that its sites wait for."""
    released: tuple[tuple[str, Instant], ...] = ()
    """The ones it gives up, and when each may be requested again."""
    active_in_all: int = 0
    """If `active` has not all of them, how many there are."""

    @property
    def active_sites(self) -> int:
        return max(len(self.active), self.active_in_all)


class Portion(msgspec.Struct, frozen=True):
    """How much data of a site is sent to the collector that takes it."""

    most_waiting: int | None = None
    """About how many of the due pages are sent, the first of each site; the collector requests the others
    later. None: all. Pages that are due later are all sent at once, since only the holder of a page knows
    when it is due."""
    histories: bool = False
    """Whether the outcomes of earlier visits are sent, for a collector that decides when pages are
    revisited."""


ALL = Portion()


class Joined(msgspec.Struct, frozen=True):
    collector: int
    started_at: Instant
    """Of the crawl."""
    now: Instant
    """The coordinator's clock, which all collectors follow."""
    read_at: float
    """When that clock was read, on the monotonic clock of this machine: at that moment or slightly later."""
    lease_s: Seconds
    """Counted from before the call, as all durations here: so the lease ends here no later than at the
    coordinator."""


class Taken(msgspec.Struct, frozen=True):
    """Sites that belong to this collector from now on."""

    sites: frozenset[Site]
    snapshot: Snapshot
    unclean_until: Mapping[Site, Instant] = {}
    """Sites whose last holder died. It may have sent requests to them until then."""
    histories: Sequence[tuple[Site, bytes]] = ()
    """For every page that may be revisited: its visits so far."""


class NewShare(msgspec.Struct, frozen=True):
    number: int
    rate_bytes_per_s: BytesPerSecond
    lasts_s: Seconds


class News(msgspec.Struct, frozen=True):
    lease_s: Seconds
    share: NewShare | None = None
    """The newest; None if no share is valid."""
    taken: Taken | None = None
    asked_back: tuple[Site, ...] = ()
    mail: tuple[Page, ...] = ()
    """Pages of this collector's sites that other collectors have found."""
    orders: tuple[Order, ...] = ()
    """Orders of people; an order for one site goes to its holder."""
    is_over: bool = False
    """No page waits anywhere: the crawl has finished."""
    is_sent_away: bool = False
    """All collectors have to finish the requests in flight and leave."""
    to_measure: tuple[Site, ...] = ()
    """Sites of other collectors whose round trip from this place is not known."""
    collectors: int = 1
    """The number of collectors, this one included."""
    link_uses: tuple[LinkUse, ...] = ()
    """What the other collectors behind the same link do."""
    granted: tuple[GroupLease, ...] = ()
    """Of `Report.wanted`: it alone may request these until it releases them."""
    recalled: tuple[str, ...] = ()
    """Servers and domains that it has and others want."""


class Coordinator(Protocol):
    """The coordinator as one collector sees it. LeaseOver from any method means that it is no longer a
    member.

    A StoreError that `is_passing` means: try again; nothing has happened, or the same has happened already.
    """

    async def join(self, portion: Portion = ALL) -> Joined: ...

    async def beat(self, report: Report) -> News: ...

    async def commit(self, number: int, batch: CommitBatch) -> bool:
        """Batches are numbered from 1; a batch that was committed already is not committed again. True: there
        is news, so the next heartbeat should follow at once."""
        ...

    async def first_waiting(self, site: Site, most: int) -> Sequence[WaitingRecord]:
        """The first due pages of a site of this collector, as of the last batch or later."""
        ...

    async def find_originals(self, digests: Sequence[str]) -> Mapping[str, tuple[Original, str]]:
        """The first captures of these contents by any collector, and the digests of the archived payloads;
        unknown contents are left out."""
        ...

    async def find_copies(self, pages: Sequence[Page]) -> Mapping[tuple[Site, PageKey], Copy]:
        """The stored state of these pages from earlier visits."""
        ...

    async def give_back(self, sites: Sequence[Site]) -> None:
        """Return these sites. No request to them is in flight, and all their results are committed."""
        ...

    async def leave(self) -> None:
        """Return all sites; the collector receives nothing from now on."""
        ...


# -- how messages cross between processes -------------------------------------------------------------------


def _pack_batch(batch: CommitBatch) -> tuple[CommitBatch, list[bytes | None]]:
    """Links are sent as the store keeps them, packed, in the order of the settled pages: their URLs would be
    most of the message."""
    links: list[bytes | None] = []
    savings: list[Saving] = []
    for saving in batch.savings:
        if isinstance(saving, SaveSettled):
            links.append(rows.links_blob(saving.links))
            savings.append(_sendable(saving))
        else:
            savings.append(saving)
    return structs.replace(batch, savings=savings), links


def _sendable(saving: SaveSettled) -> SaveSettled:
    outcome = saving.outcome
    if not (outcome.detail.isascii() and outcome.content_type.isascii()):
        # Text from a server may contain half a surrogate pair, which no encoding can represent.
        detail, content_type = rows.clean_text(outcome.detail), rows.clean_text(outcome.content_type)
        outcome = structs.replace(outcome, detail=detail, content_type=content_type)
        return structs.replace(saving, outcome=outcome, links=())
    return structs.replace(saving, links=()) if saving.links else saving


def _unpack_batch(packed: tuple[CommitBatch, list[bytes | None]]) -> CommitBatch:
    batch, links = packed
    if len(links) != sum(isinstance(saving, SaveSettled) for saving in batch.savings):
        raise RpcError(f"a batch has the links of {len(links)} pages, which is not the number of its pages")
    blobs = iter(links)
    savings: list[Saving] = []
    for saving in batch.savings:
        if isinstance(saving, SaveSettled) and (blob := next(blobs)) is not None:
            savings.append(structs.replace(saving, links=PackedLinks.of(blob)))
        else:
            savings.append(saving)
    return structs.replace(batch, savings=savings)


def _pack_news(news: News) -> tuple[News, bytes, bytes]:
    """The keys of a site's pages are sent as blocks: there may be millions."""
    if news.taken is None:
        return news, b"", b""
    snapshot = news.taken.snapshot
    seen = np.asarray(snapshot.seen, dtype=np.int64).tobytes()
    return _with_seen(news, (), ()), seen, np.asarray(snapshot.seen_checks, dtype=np.uint16).tobytes()


def _unpack_news(packed: tuple[News, bytes, bytes]) -> News:
    news, seen, checks = packed
    if news.taken is None:
        return news
    keys: Sequence[PageKey] = np.frombuffer(seen, dtype=np.int64)  # type: ignore[assignment]
    return _with_seen(news, keys, np.frombuffer(checks, dtype=np.uint16))  # type: ignore[arg-type]


def _with_seen(news: News, seen: Sequence[PageKey], checks: Sequence[int]) -> News:
    assert news.taken is not None
    snapshot = structs.replace(news.taken.snapshot, seen=seen, seen_checks=checks)
    return structs.replace(news, taken=structs.replace(news.taken, snapshot=snapshot))


CODECS = {
    CommitBatch: Codec(tuple[CommitBatch, list[bytes | None]], _pack_batch, _unpack_batch),
    News: Codec(tuple[News, bytes, bytes], _pack_news, _unpack_news),
}


# -- leases of servers and domains, where one process coordinates --------------------------------------------


class _GroupState:
    __slots__ = ("free_at", "holder", "is_unclean", "waiting")

    def __init__(self) -> None:
        self.holder: int | None = None
        self.free_at = Instant(0.0)
        self.is_unclean = False
        self.waiting: dict[int, None] = {}
        """Who waits for it, in order."""


class GroupLeases:
    """Which collector may request which server and domain. Each belongs to the first that wants it, until
    another one wants it too: then its holder releases it after the request under way."""

    def __init__(self) -> None:
        self._groups: dict[str, _GroupState] = {}
        self._held: dict[int, set[str]] = {}
        self._recalled: dict[int, dict[str, None]] = {}

    def exchange(
        self, number: int, wanted: Sequence[str], released: Sequence[tuple[str, Instant]]
    ) -> tuple[tuple[GroupLease, ...], tuple[str, ...]]:
        """What a collector is granted, and what it has to release."""
        held = self._held.setdefault(number, set())
        for key, free_at in released:
            group = self._groups.get(key)
            if group is not None and group.holder == number:
                group.holder, group.free_at, group.is_unclean = None, free_at, False
                held.discard(key)
        granted = []
        for key in wanted:
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _GroupState()
            if group.holder is None and next(iter(group.waiting), number) == number:
                group.holder = number
                held.add(key)
            if group.holder == number:
                granted.append(GroupLease(key, group.free_at, group.is_unclean))
                group.waiting.pop(number, None)
            else:
                group.waiting[number] = None
            if group.waiting and group.holder is not None:
                self._recalled.setdefault(group.holder, {})[key] = None
        recalled = self._recalled.pop(number, {})
        return tuple(granted), tuple(key for key in recalled if key in held)

    def has_news(self, number: int) -> bool:
        """Whether others want what this collector holds."""
        return number in self._recalled

    def left(self, now: Instant, number: int) -> None:
        """A collector has left or died."""
        self._recalled.pop(number, None)
        for key in self._held.pop(number, set()):
            group = self._groups[key]
            group.holder, group.free_at, group.is_unclean = None, now, True
        for group in self._groups.values():
            group.waiting.pop(number, None)
