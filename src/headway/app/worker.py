"""One worker process of a crawl: started by `headway crawl --processes`, coordinated through two pipes."""

from __future__ import annotations

import asyncio
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from headway.app.garbage import look_for_garbage_seldom
from headway.app.membership import build_session
from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.fleet.clock import SharedClock
from headway.fleet.folder import WorkerFolder
from headway.fleet.pipe import PipeCoordinator
from headway.fleet.session import End
from headway.parse.heap import keep_freed_memory
from headway.store.known import KnownContents
from headway.store.rows import fingerprint_of
from headway.units import Seconds

_QUICKEST_BEAT_S = 0.02
"""Through a pipe a question costs little."""


class Order(msgspec.Struct, frozen=True):
    """What a worker is told when it is started, through the first pipe."""

    job: dict[str, Any]
    folder: str
    has_rounds: bool
    most_held: int
    commit_every_s: Seconds


def main() -> int:
    beats, commits = (Connection(int(text)) for text in sys.argv[1:3])
    known = KnownContents.shared(int(sys.argv[3]))
    # Interrupts are for the process that coordinates us; it sends us away in good order.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    keep_freed_memory()
    look_for_garbage_seldom()
    order = msgspec.msgpack.decode(beats.recv_bytes(), type=Order)
    return asyncio.run(_work(order, PipeCoordinator(beats, commits), known))


async def _work(order: Order, coordinator: PipeCoordinator, known: KnownContents) -> int:
    source = Source("the job")
    job = build_job(convert(order.job, source), source)
    folder = WorkerFolder(Path(order.folder))
    try:
        session, _ = build_session(
            job,
            coordinator,
            folder,
            SharedClock(),
            has_rounds=order.has_rounds,
            may_be_limited=True,
            most_held=order.most_held,
            quickest_beat_s=_QUICKEST_BEAT_S,
            commit_every_s=order.commit_every_s,
            may_be_known=lambda digest: known.may_have(fingerprint_of(digest)),
        )
        end = await session.run()
    finally:
        folder.close()
        coordinator.close()
    return 0 if end is not End.LOST else 1


if __name__ == "__main__":
    sys.exit(main())
