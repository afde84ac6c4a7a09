"""One worker's questions, as they come through its pipes, and the office's answers to them."""

from __future__ import annotations

from collections.abc import Callable

from headway.fleet.coordinator import LeaseOver
from headway.fleet.office import Office
from headway.fleet.wire import (
    DONE,
    DONE_AND_NEWS,
    NO_MEMBER,
    AskForMore,
    Beat,
    Commit,
    GiveBack,
    Join,
    Leave,
    LookBack,
    LookUp,
    PackedNews,
    PackedTaken,
    pack,
    read_question,
)
from headway.units import Instant


class Desk:
    def __init__(self, office: Office, now: Callable[[], Instant]) -> None:
        self._office = office
        self._now = now
        self.number = 0

    def answer(self, asked: bytes) -> bytes:
        try:
            match read_question(asked):
                case Commit(consignment):
                    return DONE_AND_NEWS if self._office.commit(self.number, consignment) else DONE
                case Beat(report):
                    news = self._office.beat(self._now(), self.number, report)
                    taken = None if news.taken is None else PackedTaken.pack(news.taken)
                    return pack(
                        PackedNews(
                            news.lease_s,
                            news.share,
                            taken,
                            news.asked_back,
                            news.mail,
                            news.orders,
                            news.is_over,
                            news.is_sent_away,
                            news.collectors,
                        )
                    )
                case Join(portion):
                    joined = self._office.join(self._now(), portion)
                    self.number = joined.collector
                    return pack(joined)
                case LookUp(digests):
                    return pack(self._office.find_originals(digests))
                case LookBack(pages):
                    copies = self._office.find_copies(pages)
                    return pack([(*which, copy) for which, copy in copies.items()])
                case AskForMore(site, most):
                    return pack(self._office.first_waiting(self._now(), self.number, site, most))
                case GiveBack(sites):
                    self._office.give_back(self.number, sites)
                case Leave():
                    self._office.leave(self.number)
        except LeaseOver:
            return NO_MEMBER
        return DONE

    def died(self) -> None:
        self._office.died(self._now(), self.number)
