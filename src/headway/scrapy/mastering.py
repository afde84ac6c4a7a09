"""The master of zhu2020's figure 1: collects the URLs of the sites into the database, and says how much data
each site may hold. What an earlier run in the same folder measured is believed before any guess."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from headway.config.job import Job, SiteWish
from headway.config.kept import without_password
from headway.fetch.http import HttpFetcher
from headway.fetch.robots import MAX_ROBOTS_BYTES, judge
from headway.model.command import SaveFound, SaveTasks
from headway.model.outcome import Kind
from headway.model.page import Page, Site
from headway.parse.document import parse
from headway.parse.parsed import ParseOptions
from headway.parse.url import page_of
from headway.policy.estimate import PRIOR_PAGE_BYTES, Evidence, remaining_bytes
from headway.ports import Request
from headway.store.sqlite import SqliteStore
from headway.units import Bytes, Instant

_MOST_SITEMAPS = 200
_USUAL_PAGES = 300
"""Of a site that nobody knows anything of."""


class SiteTask(msgspec.Struct, frozen=True):
    """What the task configuration makes of a site: the paper's task."""

    wish: SiteWish
    urls: tuple[str, ...]
    """To begin with: the seeds, and what the sitemaps list."""
    data_bytes: float


async def collect_urls(job: Job, fetcher: HttpFetcher) -> dict[Site, list[Page]]:
    """What the sites' sitemaps list, site by site; a site that cannot be asked has none."""
    found = await asyncio.gather(*(_pages_of(wish, job, fetcher) for wish in job.sites))
    return {wish.site: pages for wish, pages in zip(job.sites, found, strict=True)}


def configure(
    started_at: Instant,
    job: Job,
    collected: Mapping[Site, Sequence[Page]],
    measured_bytes: Mapping[str, int],
    store: SqliteStore,
) -> list[SiteTask]:
    """The tasks, saved with all URLs that are known; `measured_bytes`: what sites held in an earlier run."""
    snapshot = store.load()
    if snapshot is None:
        store.create(started_at, without_password(job))
    tasks = job.tasks(started_at)
    pages = tuple(
        {page.key: page for wish in job.sites for page in (*wish.seeds, *collected[wish.site])}.values()
    )
    seen = set() if snapshot is None else set(snapshot.seen)
    store.commit([SaveTasks(tasks), SaveFound(tuple(page for page in pages if page.key not in seen))], {})
    made = []
    for wish in job.sites:
        urls = tuple(dict.fromkeys(page.url for page in (*wish.seeds, *collected[wish.site])))
        data = _data_bytes(wish, len(collected[wish.site]), measured_bytes.get(wish.site, 0))
        made.append(SiteTask(wish, urls, data))
    return made


def _data_bytes(wish: SiteWish, listed: int, measured_bytes: int) -> float:
    if wish.expected_bytes is not None:
        return float(wish.expected_bytes)
    if measured_bytes:
        return float(measured_bytes)
    if listed:
        pages = listed if wish.max_pages is None else min(listed, wish.max_pages)
        return min(pages * PRIOR_PAGE_BYTES, float(wish.max_bytes or Bytes(1 << 62)))
    evidence = Evidence(waiting_pages=_USUAL_PAGES, max_pages=wish.max_pages, max_bytes=wish.max_bytes)
    return max(1.0, remaining_bytes(evidence).expected)


async def _pages_of(wish: SiteWish, job: Job, fetcher: HttpFetcher) -> list[Page]:
    crawl = job.file.crawl
    if not crawl.sitemaps:
        return []
    robots = await fetcher.fetch(
        Request(f"{wish.site}/robots.txt", wish.site, max_body_bytes=MAX_ROBOTS_BYTES)
    )
    rules = judge(robots.status, robots.body, crawl.user_agent) if robots.kind is Kind.FETCHED else None
    waiting = list(rules.sitemaps) if rules is not None else []
    pages: dict[str, Page] = {}
    asked: set[str] = set()
    options = ParseOptions(user_agent=crawl.user_agent, read_sitemaps=True)
    while waiting and len(asked) < _MOST_SITEMAPS:
        sitemap = page_of(waiting.pop(0), base=wish.site)
        if sitemap is None or sitemap.url in asked or sitemap.site != wish.site:
            continue
        asked.add(sitemap.url)
        response = await fetcher.fetch(Request(sitemap.url, wish.site))
        if response.kind is not Kind.FETCHED or response.status != 200:
            continue
        parsed = parse(response, sitemap, options)
        if parsed.is_list:
            pages |= {page.url: page for page in parsed.links if page.site == wish.site}
            waiting += [page.url for page in parsed.lists]
    allowed = [page for page in pages.values() if rules is None or rules.allows(page.url)]
    return [page for page in allowed if job.scope.judge(page) is None]
