"""A calendar without end: every month links to the next one. Its pages come to be when they are asked for."""

from __future__ import annotations

import re
import zlib

from headway.testing.demoweb.page import Layout, Link, PageDesign, Place

FIRST_YEAR, FIRST_MONTH = 2026, 11
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_PATH = re.compile(r"/calendar/(?P<year>[1-9]\d{3,})/(?P<month>0[1-9]|1[0-2])/(?:(?P<day>[0-3]\d)\.html)?")


def first_month(site: str) -> Link:
    return _month_link(site, FIRST_YEAR, FIRST_MONTH)


def calendar_page(site: str, path: str) -> PageDesign | None:
    """The month or the day at this path, if the calendar has it."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    year, month = int(match["year"]), int(match["month"])
    months_on = (year - FIRST_YEAR) * 12 + month - FIRST_MONTH
    if months_on < 0:
        return None
    days = _days_with_events(year, month)
    up = _month_link(site, year, month)
    if match["day"] is not None:
        if int(match["day"]) not in days:
            return None
        return _page(path, f"{int(match['day'])} {up.text}", months_on + 2, (up,))
    links = [_month_link(site, *_step(year, month, 1))]
    if months_on > 0:
        links.append(_month_link(site, *_step(year, month, -1)))
    links += [Link(Place(site, f"{up_path(year, month)}{day:02}.html"), f"{day} {up.text}") for day in days]
    return _page(path, up.text, months_on + 1, tuple(links))


def up_path(year: int, month: int) -> str:
    return f"/calendar/{year}/{month:02}/"


def _page(path: str, title: str, depth: int, links: tuple[Link, ...]) -> PageDesign:
    size_bytes = 2_500 + zlib.crc32(path.encode()) % 3_000
    return PageDesign(
        path=path, title=title, layout=Layout.ARTICLE, size_bytes=size_bytes, links=links, depth=depth
    )


def _month_link(site: str, year: int, month: int) -> Link:
    return Link(Place(site, up_path(year, month)), f"{_MONTHS[month - 1]} {year}")


def _step(year: int, month: int, by: int) -> tuple[int, int]:
    months = year * 12 + month - 1 + by
    return months // 12, months % 12 + 1


def _days_with_events(year: int, month: int) -> tuple[int, int]:
    seed = zlib.crc32(f"{year}-{month}".encode())
    return 1 + seed % 14, 15 + (seed >> 8) % 14
