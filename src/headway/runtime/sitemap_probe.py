"""What the sitemaps of a site list: asked for before a crawl by `headway plan --probe` and by `run-scrapy`.

Only robots.txt and sitemaps are requested, one after the other with the pauses of a crawl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import aclosing

import msgspec
from msgspec import structs

from headway.config.job import Job, SiteWish
from headway.http.client import HttpFetcher
from headway.http.robots import MAX_ROBOTS_BYTES, judge
from headway.model.page import Kind, Page, RobotsRules, Site
from headway.pages.document import REDIRECT_STATUSES, parse
from headway.pages.parsed import ParseOptions
from headway.pages.url import page_of
from headway.planning.estimate import NO_FACTS, Knowledge
from headway.ports import Request, Response
from headway.runtime.driver import WallClock
from headway.runtime.runtime import build_fetcher, build_politeness

_USUAL_SITEMAP = "/sitemap.xml"
_MOST_SITEMAPS = 200
"""Read of one site."""
_MOST_PAGES = 1_000_000
_MOST_REDIRECTS = 5
_SITES_AT_ONCE = 16


class Listed(msgspec.Struct):
    """The pages of a site that are in scope and that its robots.txt allows."""

    pages: dict[str, Page]
    sitemaps_read: int = 0
    sitemaps_left: int = 0
    """Known, and not read for lack of time or because they are too many."""
    rules: RobotsRules | None = None
    problem: str = ""

    @property
    def expected_pages(self) -> int:
        """As if the sitemaps that were not read were as long as the others."""
        if not self.sitemaps_read:
            return len(self.pages)
        return round(len(self.pages) * (1 + self.sitemaps_left / self.sitemaps_read))

    def line(self) -> str:
        if not self.pages:
            return self.problem or "no sitemap"
        left = f", and {self.sitemaps_left} more that were not read" if self.sitemaps_left else ""
        read = "one sitemap" if self.sitemaps_read == 1 else f"{self.sitemaps_read} sitemaps"
        return f"{len(self.pages):,} pages in {read}{left}"


async def probe(job: Job, sites: Iterable[SiteWish], *, longest_s: float) -> dict[Site, Listed]:
    """Ask these sites. What has been read after `longest_s` seconds counts."""
    clock = WallClock()
    places = asyncio.Semaphore(_SITES_AT_ONCE)
    found = {wish.site: Listed({}, problem="no answer in time") for wish in sites}

    async def one(wish: SiteWish) -> None:
        async with places:
            await read_sitemaps(wish, job, fetcher, found[wish.site])

    async with aclosing(build_fetcher(job, clock)) as fetcher:
        tasks = [asyncio.create_task(one(wish)) for wish in sites]
        if tasks:
            await asyncio.wait(tasks, timeout=longest_s)
        for task in tasks:
            task.cancel()
        for problem in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(problem, Exception):
                raise problem
    return found


async def read_sitemaps(
    wish: SiteWish, job: Job, fetcher: HttpFetcher, listed: Listed, *, tries_usual: bool = True
) -> None:
    """Fill `listed` with what the sitemaps of a site list. `tries_usual`: also look for one at its usual
    place if robots.txt names none."""
    agent, pause_s = job.file.crawl.user_agent, build_politeness(job).pause_s
    robots = await _fetch(fetcher, f"{wish.site}/robots.txt", wish.site, pause_s(), MAX_ROBOTS_BYTES)
    if robots.kind is not Kind.FETCHED:
        listed.problem = f"robots.txt: {robots.detail or robots.kind}"
        return
    rules = judge(robots.status, robots.body, agent)
    if rules is None:
        listed.problem = f"robots.txt: status {robots.status}, so nothing may be asked"
        return
    listed.rules, listed.problem = rules, ""
    named = rules.sitemaps
    if not named and tries_usual:
        named = (_USUAL_SITEMAP,) if rules.allows(wish.site + _USUAL_SITEMAP) else ()
    waiting = {page.url for url in named if (page := page_of(url, base=wish.site)) is not None}
    options = ParseOptions(user_agent=agent, read_sitemaps=True)
    asked: set[str] = set()
    while waiting and len(asked) < _MOST_SITEMAPS and len(listed.pages) < _MOST_PAGES:
        sitemap = page_of(min(waiting))
        waiting.discard(min(waiting))
        if sitemap is None or sitemap.url in asked or sitemap.site != wish.site:
            continue
        asked.add(sitemap.url)
        listed.sitemaps_left = len(waiting) + 1
        await asyncio.sleep(pause_s(rules.crawl_delay_s))
        response = await _fetch(fetcher, sitemap.url, wish.site, pause_s(rules.crawl_delay_s))
        if response.kind is Kind.FETCHED and response.status == 200:
            parsed = await asyncio.to_thread(parse, response, sitemap, options)
            if parsed.is_list:
                waiting |= {page.url for page in parsed.lists} - asked
                _add(listed, parsed.links, wish, job, rules)
                # An index only leads to others.
                listed.sitemaps_read += bool(parsed.links)
        elif response.status not in {404, 410}:
            listed.problem = f"{sitemap.url}: {response.detail or f'status {response.status}'}"
        listed.sitemaps_left = len(waiting)


def _add(listed: Listed, links: Iterable[Page], wish: SiteWish, job: Job, rules: RobotsRules) -> None:
    respects = job.file.crawl.respect_robots
    for page in links:
        if page.site != wish.site or page.url in listed.pages or job.judge(page) is not None:
            continue
        if not respects or rules.allows(page.url):
            listed.pages[page.url] = page


async def _fetch(
    fetcher: HttpFetcher, url: str, site: Site, pause_s: float, most_bytes: int | None = None
) -> Response:
    """Redirects within the site are followed."""
    response = await fetcher.fetch(Request(url, site, max_body_bytes=most_bytes))
    for _ in range(_MOST_REDIRECTS):
        location = response.header("location") if response.status in REDIRECT_STATUSES else None
        target = page_of(location, base=response.url) if location else None
        if target is None or target.site != site:
            break
        await asyncio.sleep(pause_s)
        response = await fetcher.fetch(Request(target.url, site, max_body_bytes=most_bytes))
    return response


def unknown_sites(job: Job, knowledge: Knowledge) -> list[SiteWish]:
    """The sites of which neither the job nor an earlier run knows how much they have."""
    return [
        wish
        for wish in job.sites
        if wish.expected_bytes is None and not knowledge.sites.get(wish.site, NO_FACTS).data_bytes
    ]


def with_listed(knowledge: Knowledge, found: Mapping[Site, Listed]) -> Knowledge:
    """The knowledge with what sitemaps have said."""
    sites = dict(knowledge.sites)
    for site, listed in found.items():
        if listed.expected_pages:
            facts = sites.get(site, NO_FACTS)
            sites[site] = structs.replace(facts, listed_pages=listed.expected_pages)
    return structs.replace(knowledge, sites=sites)
