"""Listening to a proxy beside a crawl. While another process crawls, it fetches what we spool; while none
does, the crawl rests here, and the announced pages are fetched by us."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from headway.app.clock import WallClock
from headway.app.crawling import CrawlRun
from headway.app.parasite import TALLY as COLLECTOR_TALLY
from headway.config.job import Job
from headway.squid.address import Place
from headway.squid.intake import Intake
from headway.squid.listener import TALLY as LISTENER_TALLY
from headway.squid.listener import Listener
from headway.squid.privacy import PrivacyRules
from headway.squid.settings import ProxySettings, save_settings
from headway.squid.spool import FOLDER
from headway.squid.table import Listened, listened
from headway.squid.tally import load_tally
from headway.store.reader import DATABASE
from headway.units import Seconds

_LOOK_EVERY_S = 1.0
_OWN_ECHO_S = 60.0


class Listening:
    def __init__(
        self,
        job: Job,
        folder: Path,
        places: Sequence[Place],
        *,
        settings: ProxySettings,
        privacy: PrivacyRules,
        on_second: Callable[[], None] | None = None,
    ) -> None:
        self._job = job
        self._folder = folder
        self._places = places
        self._settings = settings
        self._privacy = privacy
        self._on_second = on_second
        self._stopping = asyncio.Event()
        self._run: CrawlRun | None = None
        self.interrupted = False

    async def listen(self) -> None:
        """Until `drain` or `stop`."""
        save_settings(self._folder, self._settings)
        tally = load_tally(self._folder / FOLDER / LISTENER_TALLY)
        # A page is not worth a second look as long as its copy is fresh; and what we ask of the proxy for it
        # is announced as well, which must not make us ask for it once more.
        settings = self._settings
        repeat_after_s = Seconds(max(min(3600.0, settings.refresh_after_s), settings.delay_s + _OWN_ECHO_S))
        intake = Intake(self._job.scope, self._privacy, tally, repeat_after_s=repeat_after_s)
        async with Listener(self._folder, self._places, intake, WallClock()):
            while not self._stopping.is_set():
                if self._is_crawled_by_another():
                    await self._wait()
                    continue
                self._run = CrawlRun(self._job, self._folder, stays=True)
                try:
                    await self._run.run(on_second=self._on_second)
                finally:
                    self._run = None

    def drain(self) -> None:
        self.interrupted = True
        self._stopping.set()
        if self._run is not None:
            self._run.drain()

    def stop(self) -> None:
        self._stopping.set()
        if self._run is not None:
            self._run.stop()

    def result(self) -> Listened:
        folder = self._folder / FOLDER
        return listened(load_tally(folder / LISTENER_TALLY), load_tally(folder / COLLECTOR_TALLY))

    async def _wait(self) -> None:
        if self._on_second is not None:
            self._on_second()
        try:
            await asyncio.wait_for(self._stopping.wait(), _LOOK_EVERY_S)
        except TimeoutError:
            return

    def _is_crawled_by_another(self) -> bool:
        try:
            descriptor = os.open(self._folder / f"{DATABASE}-lock", os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False
