"""Run folders made without crawling, through the store itself: for those who test what reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.model.command import PageState, SaveFound, SaveSettled, SaveSite, SaveTasks, Saving
from headway.model.page import Kind, Outcome, Page, PageKey, Site, Task
from headway.store.rows import Gauges, SiteSample
from headway.store.run_folder import RunFolder
from headway.units import BytesPerSecond, Instant, Seconds

STARTED_AT = 1_700_000_000.0
PAGE_BYTES = 10_000
BOUND = BytesPerSecond(50_000.0)


def make_run(
    folder: Path,
    sites: Sequence[str],
    *,
    pages: int = 20,
    waiting: int = 0,
    deadline_s: float | None = 60.0,
    started_at: float = STARTED_AT,
    path: str = "/page",
    detail: str = "",
) -> list[Page]:
    """A page a second of each site, the last of every ten failed, each linking to the one before; then
    `waiting` pages that were found and not asked for. The k-th site has k times the deadline."""
    job = {
        "crawl": {"interval": "1 s", "bandwidth": "50 KB/s"},
        "site": [{"url": f"{site}/"} for site in sites],
    }
    settled: list[Page] = []
    with RunFolder.open(folder, job, Instant(started_at)) as run:
        run.save(_beginning(sites, pages + waiting, deadline_s, started_at, path))
        run.store.record_sample(Instant(started_at), 0, BOUND, Gauges(0.0, 0, len(sites) * pages))
        for number in range(pages):
            at = Instant(started_at + number + 1)
            batch: list[Saving] = []
            course = []
            for place, name in enumerate(sites):
                site = Site(name)
                page = _page(site, place, number, path)
                batch.append(_settled(page, number, at, detail, settled[-len(sites) :]))
                settled.append(page)
                is_last = number == pages - 1 and not waiting
                batch.append(SaveSite(site, at, 0, ended_at=at if is_last else None))
                left, share = pages + waiting - number - 1, BOUND / len(sites)
                course.append(
                    SiteSample(site, at, (number + 1) * PAGE_BYTES, left, left * float(PAGE_BYTES), share,
                               at + 0.8 * left, at + 1.3 * left)
                )  # fmt: skip
            run.save(batch)
            gauges = Gauges(
                0.9 * BOUND, len(sites), (pages + waiting - number - 1) * len(sites), len(settled)
            )
            run.store.record_sample(at, (number + 1) * len(sites) * PAGE_BYTES, BOUND, gauges, course)
    return settled


def _beginning(
    sites: Sequence[str], pages: int, deadline_s: float | None, started_at: float, path: str
) -> list[Saving]:
    tasks = tuple(
        Task(
            Site(site), (f"{site}/",), Instant(started_at + (place + 1) * deadline_s) if deadline_s else None
        )
        for place, site in enumerate(sites)
    )
    found = tuple(
        _page(Site(site), place, number, path) for number in range(pages) for place, site in enumerate(sites)
    )
    return [SaveTasks(tasks), SaveFound(found)]


def _page(site: Site, place: int, number: int, path: str) -> Page:
    url = f"{site}{path}-{number}" if number else f"{site}/"
    return Page(url, site, PageKey((place + 1) << 32 | number + 1), depth=min(number, 4))


def _settled(page: Page, number: int, at: Instant, detail: str, links: Sequence[Page]) -> SaveSettled:
    if number % 10 == 9:
        outcome = Outcome(Kind.SERVER_ERROR, 500, PAGE_BYTES, Seconds(0.5), detail=detail or "it said so")
        return SaveSettled(page, outcome, PageState.FAILED, 2, at)
    outcome = Outcome(
        Kind.FETCHED, 200, PAGE_BYTES, Seconds(0.5), "text/html", 3 * PAGE_BYTES, f"sha256:{page.key:064x}"
    )
    return SaveSettled(page, outcome, PageState.DONE, 0, at, links=tuple(links))
