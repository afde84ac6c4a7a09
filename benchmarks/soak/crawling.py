"""Crawls of the chaos web through the same parts as `headway crawl`, and what came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec
from tests.support.chaos.server import ServedChaos
from tests.support.chaos.site import AFTER, BAD

from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.model.page import Kind, Site
from headway.runtime.crawling import CrawlRun
from headway.runtime.driver import WallClock
from headway.store.reader import RunReader


class Settled(msgspec.Struct, frozen=True):
    kind: Kind
    detail: str


def build(sites: list[dict[str, Any]], **crawl: Any) -> Job:
    """A job for loopback in a hurry: short time-outs, one attempt, hardly an interval."""
    tables = {
        "crawl": {
            "interval": "20 ms",
            "backoff": "20 ms",
            "retry_penalty": "100 ms",
            "max_attempts": 1,
            "allow_private": True,
            "timeouts": {"connect": "2 s", "first_byte": "2 s", "idle": "2 s", "total": "8 s"},
            "limits": {"body": "12 MB", "decoded": "24 MB"},
            "scope": {"max_depth": 5},
            **crawl,
        },
        "site": sites,
    }
    source = Source("chaos")
    return build_job(convert(tables, source), source, now=WallClock().now())


def chaos_sites(chaos: ServedChaos) -> list[dict[str, Any]]:
    return [{"url": chaos.url(name, BAD), "seeds": [chaos.url(name, AFTER)]} for name in chaos.sites]


def write_authority(chaos: ServedChaos, folder: Path) -> str:
    path = folder / "authority.pem"
    path.write_text(chaos.authority_pem)
    return str(path)


def crawl(job: Job, folder: Path) -> None:
    """To the end."""

    async def run() -> None:
        await CrawlRun(job, folder).run()

    asyncio.run(run())


def crawl_until_done(job: Job, folder: Path, sites: Collection[str]) -> None:
    """To the end of these sites; what is still open elsewhere is abandoned."""

    async def run() -> None:
        running = CrawlRun(job, folder)
        watch = asyncio.ensure_future(_stop_when_done(running, sites))
        await running.run()
        watch.cancel()

    asyncio.run(run())


async def _stop_when_done(running: CrawlRun, sites: Collection[str]) -> None:
    by_site = running.crawl.stats.by_site
    while True:
        await asyncio.sleep(0.02)
        if all((site_stats := by_site.get(Site(site))) and site_stats.ended_at is not None for site in sites):
            running.stop()


def settled_by_site(folder: Path, origins: Iterable[str]) -> dict[str, dict[str, Settled]]:
    """For each origin, the paths of its pages with how they ended; what was out of scope is left out.

    Many sites have the same page, so that being another's duplicate counts as being fetched.
    """
    found: dict[str, dict[str, Settled]] = {origin: {} for origin in origins}
    with RunReader(folder) as reader:
        for page in reader.pages():
            if page.site in found and page.kind != Kind.OUT_OF_SCOPE:
                path = page.url.removeprefix(page.site)
                kind = Kind.FETCHED if page.kind == Kind.DUPLICATE else Kind(page.kind)
                found[page.site][path] = Settled(kind, page.detail)
    return found
