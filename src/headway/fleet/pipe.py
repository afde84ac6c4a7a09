"""A worker's side of the coordination with the office of its machine, through pipes.

Two of them, so that a beat does not wait for a commit. A pipe that closes means that the office is gone, and
with it everything that was not committed: the worker can only end.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection

import msgspec

from headway.fleet.coordinator import ALL, Joined, LeaseOver, News, Parcel, Portion, Report
from headway.fleet.wire import (
    DONE_AND_NEWS,
    AskForMore,
    Beat,
    Commit,
    Consignment,
    GiveBack,
    Join,
    Leave,
    LookBack,
    LookUp,
    PackedNews,
    Question,
    pack,
)
from headway.model.command import SaveSettled
from headway.model.copy import Copy
from headway.model.page import Page, PageKey, Site
from headway.model.snapshot import WaitingRecord
from headway.ports import Original
from headway.store import rows

_read_joined = msgspec.msgpack.Decoder(Joined).decode
_read_originals = msgspec.msgpack.Decoder(dict[str, tuple[Original, str]]).decode
_read_copies = msgspec.msgpack.Decoder(list[tuple[Site, PageKey, Copy]]).decode
_read_waiting = msgspec.msgpack.Decoder(list[WaitingRecord]).decode
_read_news = msgspec.msgpack.Decoder(PackedNews).decode


class PipeCoordinator:
    def __init__(self, beats: Connection, commits: Connection) -> None:
        self._beats = beats
        self._commits = commits
        self._one_at_a_time = threading.Lock()

    def join(self, portion: Portion = ALL) -> Joined:
        return _read_joined(self._ask_beats(Join(portion)))

    def beat(self, report: Report) -> News:
        news = _read_news(self._ask_beats(Beat(report)))
        return News(
            news.lease_s,
            news.share,
            None if news.taken is None else news.taken.unpack(),
            news.asked_back,
            news.mail,
            news.orders,
            is_over=news.is_over,
            is_sent_away=news.is_sent_away,
            collectors=news.collectors,
        )

    def commit(self, number: int, parcel: Parcel) -> bool:
        try:
            packed = pack(Commit(Consignment.pack(number, parcel)))
        except UnicodeEncodeError:
            # A server's message with half a surrogate pair in it.
            clean = [_cleaned(each) if isinstance(each, SaveSettled) else each for each in parcel.batch]
            parcel = msgspec.structs.replace(parcel, batch=clean)
            packed = pack(Commit(Consignment.pack(number, parcel)))
        return _exchange(self._commits, packed) == DONE_AND_NEWS

    def find_originals(self, digests: Sequence[str]) -> dict[str, tuple[Original, str]]:
        return _read_originals(self._ask_beats(LookUp(tuple(digests))))

    def find_copies(self, pages: Sequence[Page]) -> dict[tuple[Site, PageKey], Copy]:
        found = _read_copies(self._ask_beats(LookBack(tuple(pages))))
        return {(site, key): copy for site, key, copy in found}

    def first_waiting(self, site: Site, most: int) -> list[WaitingRecord]:
        return _read_waiting(_ask(self._commits, AskForMore(site, most)))

    def give_back(self, sites: Sequence[Site]) -> None:
        _ask(self._commits, GiveBack(tuple(sites)))

    def leave(self) -> None:
        _ask(self._commits, Leave())

    def close(self) -> None:
        self._beats.close()
        self._commits.close()

    def _ask_beats(self, question: Question) -> bytes:
        with self._one_at_a_time:
            return _ask(self._beats, question)


def _ask(pipe: Connection, question: Question) -> bytes:
    return _exchange(pipe, pack(question))


def _exchange(pipe: Connection, packed: bytes) -> bytes:
    try:
        pipe.send_bytes(packed)
        answer = pipe.recv_bytes()
    except (EOFError, OSError) as problem:
        raise LeaseOver("the process that coordinates the workers is gone") from problem
    if not answer:
        raise LeaseOver("the process that coordinates the workers has another in our place")
    return answer


def _cleaned(saving: SaveSettled) -> SaveSettled:
    outcome = saving.outcome
    clean = msgspec.structs.replace(
        outcome, detail=rows.clean_text(outcome.detail), content_type=rows.clean_text(outcome.content_type)
    )
    return msgspec.structs.replace(saving, outcome=clean)
