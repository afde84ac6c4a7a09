"""A collector returns a quiet site when its results are committed, whatever else happens in that moment."""

from __future__ import annotations

import asyncio
import time

import pytest

from headway.cluster.calls import SharedClock
from headway.cluster.collecting import build_session
from headway.cluster.coordinator import Joined, News, Taken
from headway.cluster.folder import WorkerFolder
from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.model.command import Snapshot
from headway.model.page import Site

SITE = Site("http://127.0.0.1:9")


class Script:
    """A coordinator that gives one site, asks it back, and sends other news with the same heartbeat."""

    def __init__(self, *with_the_request: dict[str, object]) -> None:
        self.returned = asyncio.Event()
        now = time.time()
        taken = Taken(frozenset({SITE}), Snapshot(now, (), (), (), ()))
        self._news = [{"taken": taken}, {}, *with_the_request]

    async def join(self, portion):
        return Joined(1, time.time(), time.time(), time.monotonic(), 10.0)

    async def beat(self, report):
        return News(10.0, **(self._news.pop(0) if self._news else {"collectors": 2}))

    async def commit(self, number, batch):
        return False

    async def give_back(self, sites):
        assert sites == [SITE]
        self.returned.set()

    async def leave(self):
        pass


@pytest.mark.parametrize(
    "other",
    [{}, {"collectors": 2}, {"collectors": 3, "is_over": False}],
    ids=["alone", "joined", "more joined"],
)
async def test_a_quiet_site_is_returned_whatever_news_comes_with_the_request(tmp_path, other):
    (tmp_path / "archive").mkdir()
    source = Source("test")
    job = build_job(
        convert({"crawl": {"allow_private": True}, "site": [{"url": f"{SITE}/"}]}, source), source
    )
    script = Script({"asked_back": (SITE,), **other})
    folder = WorkerFolder(tmp_path)
    session, _ = build_session(job, script, folder, SharedClock(), quickest_beat_s=0.001)
    running = asyncio.ensure_future(session.run())
    try:
        await asyncio.wait_for(script.returned.wait(), 20)
    finally:
        session.stop()
        await running
        folder.close()
