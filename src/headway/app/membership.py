"""A session of a fleet, built from a job: the same for a machine's collector and for a worker process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from headway.app.building import (
    build_collector,
    build_fetcher,
    build_machine,
    build_politeness,
    build_revisit,
)
from headway.config.job import Job
from headway.fetch.http import HttpFetcher
from headway.fetch.robots import rules_from_text
from headway.fleet.clock import SharedClock
from headway.fleet.coordinator import Coordinator
from headway.fleet.folder import CollectorFolder, WorkerFolder
from headway.fleet.lookups import Lookups
from headway.fleet.rhythm import QUICK_BEAT_S
from headway.fleet.session import Session
from headway.live.driver import COMMIT_EVERY_S
from headway.model.decision import Decision
from headway.model.page import Site
from headway.policy.revisit import AdaptiveRevisit
from headway.units import Seconds


def build_session(
    job: Job,
    coordinator: Coordinator,
    folder: CollectorFolder | WorkerFolder,
    clock: SharedClock,
    *,
    measures_round_trips: bool = False,
    on_decision: Callable[[Decision], None] | None = None,
    has_rounds: bool = False,
    may_be_limited: bool = False,
    most_held: int | None = None,
    may_be_known: Callable[[str], bool] | None = None,
    quickest_beat_s: float = QUICK_BEAT_S,
    commit_every_s: Seconds = COMMIT_EVERY_S,
) -> tuple[Session, HttpFetcher]:
    """`has_rounds`: all pages have been queued more than once. `most_held`: of the pages that wait, about so
    many are in memory; None: as many as the job says."""
    fetcher = build_fetcher(job, clock)
    revisit = build_revisit(job)
    recrawls = has_rounds or revisit is not None
    most_held = most_held or job.file.crawl.waiting_in_memory
    crawl = build_machine(job, is_part=True, revisit=revisit, recrawls=recrawls, most_held=most_held)
    sessions: list[Session] = []

    def make_room() -> Awaitable[object] | None:
        return sessions[0].make_room()

    def round_trips() -> Iterator[tuple[Site, float]]:
        """Of the sites that we are connected to."""
        by_peer = dict(fetcher.round_trips()) if measures_round_trips else {}
        for site, book in crawl.ledger.books.items() if by_peer else ():
            seconds = by_peer.get(book.server.partition(" ")[0])
            if seconds is not None:
                yield site, seconds

    lookups = Lookups(coordinator, folder.contents, may_be_known=may_be_known)
    collector = build_collector(
        job,
        fetcher,
        folder.archive,
        folder.contents.find_digest,
        clock,
        make_room=make_room,
        find_copy=lookups.find_copy,
        look_up=lookups.look_up,
        recrawls=recrawls,
    )
    session = Session(
        coordinator,
        folder,
        clock,
        crawl,
        collector,
        politeness=build_politeness(job),
        is_bounded=job.is_bounded or bool(job.quotas) or may_be_limited,
        measure=fetcher.measure_round_trip if measures_round_trips else None,
        delays=fetcher.round_trips if job.file.crawl.background else None,
        rules_of=lambda text: rules_from_text(text, job.file.crawl.user_agent),
        received_bytes=fetcher.bytes_received,
        set_asks_until=fetcher.set_asks_until,
        round_trips=round_trips,
        on_decision=on_decision,
        on_end=lookups.close,
        learns_from_visits=isinstance(revisit, AdaptiveRevisit),
        quickest_beat_s=quickest_beat_s,
        commit_every_s=commit_every_s,
    )
    sessions.append(session)
    return session, fetcher
