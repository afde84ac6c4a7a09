"""The two-level frontier as arrays: a heap of pages for each site, and heaps of the sites themselves.

The same order as in `engine.frontier`, for webs of millions of pages: a page never moves between sites, so
the heaps of all sites share one array, each in its own range.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.sim.link import compiled
from headway.sim.web import Web

BY_FIRST_PAGE, BY_LENGTH, BY_FIRST_SERIAL = 0, 1, 2
"""How an ordering ranks sites: `Depth` and the ranked ones, `Length`, `LongestWait`."""


class Pages(NamedTuple):
    key: NDArray[np.float64]
    serial: NDArray[np.int32]
    """When the page was found; 0 if it is not known yet."""
    depth: NDArray[np.int32]
    line: NDArray[np.int32]
    place: NDArray[np.int32]
    """The position of the page in its site's range of the queue; -1 if it does not wait."""


class Sites(NamedTuple):
    stretch: NDArray[np.int64]
    """Where each site's range of the queue begins."""
    waiting: NDArray[np.int32]
    is_busy: NDArray[np.bool_]
    free_at: NDArray[np.float64]
    key: NDArray[np.float64]
    ready: NDArray[np.int32]
    ready_place: NDArray[np.int32]
    sleeping: NDArray[np.int32]
    sleeping_place: NDArray[np.int32]
    counts: NDArray[np.int64]
    """How many sites are ready, and how many sleep."""


def new_pages(count: int) -> Pages:
    serial, depth, line, place = (np.zeros(count, dtype=np.int32) for _ in range(4))
    place[:] = -1
    return Pages(np.zeros(count), serial, depth, line, place)


def new_sites(web: Web) -> Sites:
    count = len(web.sites)
    stretch = np.concatenate(([0], np.cumsum(web.site_sizes())))
    waiting = np.zeros(count, dtype=np.int32)
    is_busy = np.zeros(count, dtype=np.bool_)
    ready, ready_place, sleeping, sleeping_place = (np.full(count, -1, dtype=np.int32) for _ in range(4))
    free_at, key, counts = np.zeros(count), np.zeros(count), np.zeros(2, dtype=np.int64)
    return Sites(
        stretch, waiting, is_busy, free_at, key, ready, ready_place, sleeping, sleeping_place, counts
    )


# -- pages of a site --------------------------------------------------------------------------------------


@compiled
def _page_before(pages: Pages, one: int, other: int) -> bool:
    if pages.key[one] != pages.key[other]:
        return bool(pages.key[one] < pages.key[other])
    return bool(pages.serial[one] < pages.serial[other])


@compiled
def raise_page(pages: Pages, begin: int, place: int) -> None:
    """Move a page towards the front of its queue as far as its key requires."""
    page = int(pages.line[begin + place])
    while place > 0:
        above = (place - 1) >> 1
        other = int(pages.line[begin + above])
        if not _page_before(pages, page, other):
            break
        pages.line[begin + place] = other
        pages.place[other] = place
        place = above
    pages.line[begin + place] = page
    pages.place[page] = place


@compiled
def sink_page(pages: Pages, begin: int, place: int, count: int) -> None:
    page = int(pages.line[begin + place])
    while True:
        below = 2 * place + 1
        if below >= count:
            break
        other = int(pages.line[begin + below])
        if below + 1 < count and _page_before(pages, int(pages.line[begin + below + 1]), other):
            below += 1
            other = int(pages.line[begin + below])
        if not _page_before(pages, other, page):
            break
        pages.line[begin + place] = other
        pages.place[other] = place
        place = below
    pages.line[begin + place] = page
    pages.place[page] = place


@compiled
def join_line(pages: Pages, sites: Sites, site: int, page: int) -> None:
    begin, place = sites.stretch[site], int(sites.waiting[site])
    pages.line[begin + place] = page
    sites.waiting[site] += 1
    raise_page(pages, begin, place)


@compiled
def take_first(pages: Pages, sites: Sites, site: int) -> int:
    begin = sites.stretch[site]
    first = pages.line[begin]
    pages.place[first] = -1
    sites.waiting[site] -= 1
    count = int(sites.waiting[site])
    if count > 0:
        pages.line[begin] = pages.line[begin + count]
        sink_page(pages, begin, 0, count)
    return int(first)


@compiled
def order_all_lines(pages: Pages, sites: Sites) -> None:
    """Restore the heap after all keys have changed."""
    for site in range(len(sites.waiting)):
        begin, count = sites.stretch[site], int(sites.waiting[site])
        for place in range(count // 2 - 1, -1, -1):
            sink_page(pages, begin, place, count)


# -- sites ------------------------------------------------------------------------------------------------


@compiled
def place_site(pages: Pages, sites: Sites, site: int, now: float, by: int) -> None:
    """Place a site after any change of it: ready, sleeping or in neither heap."""
    is_ready = False
    is_sleeping = False
    if not sites.is_busy[site] and sites.waiting[site] > 0:
        first = int(pages.line[sites.stretch[site]])
        if pages.key[first] < math.inf:
            is_ready = sites.free_at[site] <= now
            is_sleeping = not is_ready
            if by == BY_FIRST_PAGE:
                sites.key[site] = pages.key[first]
            elif by == BY_LENGTH:
                sites.key[site] = -sites.waiting[site]
            else:
                sites.key[site] = pages.serial[first]
    if is_ready:
        place = int(sites.ready_place[site])
        if place < 0:
            place = sites.counts[0]
            sites.counts[0] += 1
            sites.ready[place] = site
            sites.ready_place[site] = place
        _settle_ready(pages, sites, place)
    elif sites.ready_place[site] >= 0:
        _leave_ready(pages, sites, site)
    if is_sleeping:
        if sites.sleeping_place[site] < 0:
            place = sites.counts[1]
            sites.counts[1] += 1
            sites.sleeping[place] = site
            sites.sleeping_place[site] = place
            _raise_sleeper(sites, place)
    elif sites.sleeping_place[site] >= 0:
        _leave_sleeping(sites, site)


@compiled
def wake_sites(pages: Pages, sites: Sites, now: float, by: int) -> None:
    """Sleeping sites that are due become ready."""
    while sites.counts[1] > 0 and sites.free_at[sites.sleeping[0]] <= now:
        place_site(pages, sites, int(sites.sleeping[0]), now, by)


@compiled
def _site_before(pages: Pages, sites: Sites, one: int, other: int) -> bool:
    if sites.key[one] != sites.key[other]:
        return bool(sites.key[one] < sites.key[other])
    first, second = pages.line[sites.stretch[one]], pages.line[sites.stretch[other]]
    return bool(pages.serial[first] < pages.serial[second])


@compiled
def _settle_ready(pages: Pages, sites: Sites, place: int) -> None:
    """Move an entry up, or else down, to its place."""
    site = int(sites.ready[place])
    begun = place
    while place > 0:
        above = (place - 1) >> 1
        other = int(sites.ready[above])
        if not _site_before(pages, sites, site, other):
            break
        sites.ready[place] = other
        sites.ready_place[other] = place
        place = above
    if place == begun:
        count = sites.counts[0]
        while True:
            below = 2 * place + 1
            if below >= count:
                break
            other = int(sites.ready[below])
            if below + 1 < count and _site_before(pages, sites, int(sites.ready[below + 1]), other):
                below += 1
                other = int(sites.ready[below])
            if not _site_before(pages, sites, other, site):
                break
            sites.ready[place] = other
            sites.ready_place[other] = place
            place = below
    sites.ready[place] = site
    sites.ready_place[site] = place


@compiled
def _leave_ready(pages: Pages, sites: Sites, site: int) -> None:
    place = int(sites.ready_place[site])
    sites.ready_place[site] = -1
    sites.counts[0] -= 1
    last = int(sites.ready[sites.counts[0]])
    if last != site:
        sites.ready[place] = last
        sites.ready_place[last] = place
        _settle_ready(pages, sites, place)


@compiled
def _raise_sleeper(sites: Sites, place: int) -> None:
    site = int(sites.sleeping[place])
    while place > 0:
        above = (place - 1) >> 1
        other = int(sites.sleeping[above])
        if not sites.free_at[site] < sites.free_at[other]:
            break
        sites.sleeping[place] = other
        sites.sleeping_place[other] = place
        place = above
    sites.sleeping[place] = site
    sites.sleeping_place[site] = place


@compiled
def _leave_sleeping(sites: Sites, site: int) -> None:
    place = int(sites.sleeping_place[site])
    sites.sleeping_place[site] = -1
    sites.counts[1] -= 1
    count = sites.counts[1]
    last = int(sites.sleeping[count])
    if last == site:
        return
    sites.sleeping[place] = last
    sites.sleeping_place[last] = place
    _raise_sleeper(sites, place)
    place = int(sites.sleeping_place[last])
    while True:
        below = 2 * place + 1
        if below >= count:
            break
        if below + 1 < count and (
            sites.free_at[sites.sleeping[below + 1]] < sites.free_at[sites.sleeping[below]]
        ):
            below += 1
        other = int(sites.sleeping[below])
        if not sites.free_at[other] < sites.free_at[last]:
            break
        sites.sleeping[place] = other
        sites.sleeping_place[other] = place
        place = below
    sites.sleeping[place] = last
    sites.sleeping_place[last] = place
