"""What workers and their office send each other through pipes, packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import numpy as np
from msgspec.structs import replace

from headway.fleet.coordinator import Lines, NewShare, Parcel, Portion, Report, Taken
from headway.model.command import (
    SaveAgain,
    SaveFound,
    SaveNotice,
    SaveServers,
    SaveSettled,
    SaveSite,
    SaveTasks,
    Saving,
)
from headway.model.order import Order
from headway.model.page import Page, PageKey, Site
from headway.model.snapshot import SiteRecord, Snapshot, WaitingRecord
from headway.model.task import Task
from headway.store import rows
from headway.store.capture import CaptureNote
from headway.store.packedlinks import PackedLinks
from headway.units import Instant, Seconds


class Consignment(msgspec.Struct, frozen=True):
    """A batch on its way: savings by kind, since within each kind alone their order matters."""

    number: int
    tasks: list[SaveTasks]
    found: list[SaveFound]
    again: list[SaveAgain]
    again_after: list[int]
    """How many pages settle before each of those: a page that settles and waits again is in both."""
    settled: list[SaveSettled]
    links: list[bytes | None]
    """Of each of the settled, as the store keeps them: most of a page's weight would else be URLs."""
    sites: list[SaveSite]
    servers: list[SaveServers]
    notices: list[SaveNotice]
    file_lengths: dict[str, int]
    notes: list[tuple[str, int, CaptureNote]]
    lines: Lines

    @classmethod
    def pack(cls, number: int, parcel: Parcel) -> Consignment:
        kinds: dict[type, list[Any]] = {kind: [] for kind in get_args(Saving)}
        again_after = []
        for saving in parcel.batch:
            kinds[type(saving)].append(saving)
            if isinstance(saving, SaveAgain):
                again_after.append(len(kinds[SaveSettled]))
        return cls(
            number=number,
            tasks=kinds[SaveTasks],
            found=kinds[SaveFound],
            again=kinds[SaveAgain],
            again_after=again_after,
            settled=[replace(saving, links=()) for saving in kinds[SaveSettled]],
            links=[rows.links_blob(saving.links) for saving in kinds[SaveSettled]],
            sites=kinds[SaveSite],
            servers=kinds[SaveServers],
            notices=kinds[SaveNotice],
            file_lengths=dict(parcel.file_lengths),
            notes=[(name, offset, note) for (name, offset), note in parcel.notes.items()],
            lines=parcel.lines,
        )

    def unpack(self) -> Parcel:
        first: list[Saving] = [*self.tasks, *self.found]
        settled: list[Saving] = [
            saving if links is None else replace(saving, links=PackedLinks.of(links))
            for saving, links in zip(self.settled, self.links, strict=True)
        ]
        for place, saving in reversed(list(zip(self.again_after, self.again, strict=True))):
            settled.insert(place, saving)
        batch = [*first, *settled, *self.sites, *self.servers, *self.notices]
        notes = {(name, offset): note for name, offset, note in self.notes}
        return Parcel(batch, self.file_lengths, notes, self.lines)


class PackedTaken(msgspec.Struct, frozen=True):
    sites: list[Site]
    started_at: Instant
    tasks: list[Task]
    records: list[SiteRecord]
    waiting: list[WaitingRecord]
    unloaded: dict[Site, int]
    seen: bytes
    servers: list[tuple[str, bytes]]
    soiled_until: dict[Site, Instant]
    histories: list[tuple[Site, bytes]]

    @classmethod
    def pack(cls, taken: Taken) -> PackedTaken:
        snapshot = taken.snapshot
        return cls(
            sorted(taken.sites),
            snapshot.started_at,
            list(snapshot.tasks),
            list(snapshot.sites),
            list(snapshot.waiting),
            dict(snapshot.unloaded),
            np.asarray(snapshot.seen, dtype=np.int64).tobytes(),
            [(address, rates) for address, rates in snapshot.servers],
            dict(taken.soiled_until),
            list(taken.histories),
        )

    def unpack(self) -> Taken:
        seen: Sequence[PageKey] = np.frombuffer(self.seen, dtype=np.int64)  # type: ignore[assignment]
        snapshot = Snapshot(
            self.started_at,
            self.tasks,
            self.records,
            self.waiting,
            seen,
            unloaded=self.unloaded,
            servers=self.servers,
        )
        return Taken(frozenset(self.sites), snapshot, self.soiled_until, self.histories)


class PackedNews(msgspec.Struct, frozen=True):
    lease_s: Seconds
    share: NewShare | None
    taken: PackedTaken | None
    asked_back: tuple[Site, ...]
    mail: tuple[Page, ...]
    orders: tuple[Order, ...]
    is_over: bool
    is_sent_away: bool
    collectors: int


class Question(msgspec.Struct, frozen=True, tag=True):
    """The base of what a worker asks; each is answered before the next is asked through the same pipe."""


class Join(Question, frozen=True):
    portion: Portion


class Beat(Question, frozen=True):
    report: Report


class Commit(Question, frozen=True):
    consignment: Consignment


class GiveBack(Question, frozen=True):
    sites: tuple[Site, ...]


class LookUp(Question, frozen=True):
    digests: tuple[str, ...]


class LookBack(Question, frozen=True):
    pages: tuple[Page, ...]


class AskForMore(Question, frozen=True):
    site: Site
    most: int


class Leave(Question, frozen=True):
    pass


Asked = Join | Beat | Commit | GiveBack | LookUp | LookBack | AskForMore | Leave
read_question = msgspec.msgpack.Decoder(Asked).decode
pack = msgspec.msgpack.Encoder().encode

DONE = b"\x01"
DONE_AND_NEWS = b"\x02"
"""The answer to a commit that tells a worker to ask what is new."""
NO_MEMBER = b""
