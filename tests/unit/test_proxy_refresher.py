"""The proxy collector beside a crawl."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import headway as hw
from headway.runtime.driver import WallClock
from headway.runtime.proxy_refresher import ProxyRefresher
from headway.squid.spool import ProxySettings
from headway.store.run_folder import RunFolder

_LONG_S = 20.0


async def test_a_crawl_that_ends_at_once_need_not_wait_for_it(tmp_path: Path) -> None:
    clock, main = WallClock(), SimpleNamespace(tell=lambda event: None, fail=lambda problem: None)
    job = hw.Plan(tasks=[hw.Task("http://a.test/")]).job
    settings = ProxySettings("http://127.0.0.1:1")
    with RunFolder.open(tmp_path / "run", {}, clock.now()) as folder:
        beside: Any = main
        refresher = ProxyRefresher(job, folder, clock, settings, beside)
        async with asyncio.timeout(_LONG_S):
            await refresher.aclose()
