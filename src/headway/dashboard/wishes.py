"""What a person orders over the API, checked and handed to the crawl through its folder."""

from __future__ import annotations

import datetime as dt
import time
import zoneinfo
from pathlib import Path

from headway.app.limit import write_limit
from headway.app.orderfile import write_order
from headway.config.deadline import deadline_at
from headway.config.job import machine_zone
from headway.dashboard.answers import (
    Accepted,
    AddSite,
    Pause,
    Resume,
    SetBandwidth,
    SetDeadline,
    StopSite,
    Wish,
)
from headway.dashboard.watching import Watching
from headway.errors import HeadwayError
from headway.model import order as orders
from headway.model.page import Site
from headway.model.task import Task
from headway.parse.url import page_of
from headway.units import Instant


class RefusedError(HeadwayError):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def grant(run: Path | str, watching: Watching, wish: Wish) -> Accepted:
    """Carry a wish to the crawl; RefusedError or another HeadwayError when it makes no sense."""
    if not isinstance(run, Path) or not watching.picture().run.takes_orders:
        raise RefusedError(409, "a crawl on a server or by Scrapy spiders takes no orders from here")
    now = Instant(time.time())
    name: str = wish.__struct_config__.tag  # type: ignore[assignment]
    if isinstance(wish, SetBandwidth):
        write_limit(run, wish.bandwidth)
    else:
        write_order(run, now, _order(now, watching, wish))
    is_running = watching.is_running()
    return Accepted(name, "within a second" if is_running else "when the crawl is started again")


def _order(
    now: Instant, watching: Watching, wish: Pause | Resume | SetDeadline | StopSite | AddSite
) -> orders.Order:
    match wish:
        case Pause() | Resume():
            if not watching.is_running():
                raise RefusedError(409, "the crawl is not running, so there is nothing to pause or resume")
            return orders.Pause() if isinstance(wish, Pause) else orders.Resume()
        case SetDeadline(site, deadline):
            return orders.SetDeadline(_known(watching, site), _instant(now, watching, deadline))
        case StopSite(site):
            return orders.StopSite(_known(watching, site))
        case AddSite(url, deadline, max_pages):
            page = page_of(url.strip())
            if page is None:
                raise RefusedError(
                    422, f"{url!r} is not an http or https URL such as 'https://www.example.org/'"
                )
            due = _instant(now, watching, deadline)
            return orders.AddSite(Task(page.site, (page.url,), due, max_pages=max_pages), (page,))


def _known(watching: Watching, site: str) -> Site:
    if not watching.knows(site):
        raise RefusedError(404, f"there is no site {site!r} in this crawl")
    return Site(site)


def _instant(now: Instant, watching: Watching, deadline: str | None) -> Instant | None:
    return deadline_at(deadline, now, _zone(watching)) if deadline is not None else None


def _zone(watching: Watching) -> dt.tzinfo:
    crawl = watching.job.get("crawl")
    name = crawl.get("timezone") if isinstance(crawl, dict) else None
    if name is not None:
        try:
            return zoneinfo.ZoneInfo(str(name))
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            pass
    return machine_zone()
