"""What a site has of its own, beside its task: interval, scope, order of pages, hours, robots.txt.

A job gives most sites none of it, so the rules are kept by site and shared by the sites of a group. The rules
of a site hold for the same host with another scheme or with `www.`, and for the site to which its first page
leads: a person means one site by all of these.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from headway.model.page import Page, Site
from headway.policy.timetable import Timetable
from headway.units import FOREVER, Instant, Seconds

if TYPE_CHECKING:
    from headway.policy.politeness import Politeness

T = TypeVar("T")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


class SiteScope(msgspec.Struct, frozen=True):
    """Which pages of a site belong to the crawl. None: as `Scope` says."""

    prefixes: tuple[str, ...] = ()
    """Their paths begin with one of these; none given: any path."""
    is_prefix_given: bool = False
    """By a person; otherwise it is the folder of the start page, and goes with it when that redirects."""
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None
    max_depth: int | None = None
    queries: bool | None = None


class SiteHours(msgspec.Struct, frozen=True):
    """When a site may be asked."""

    windows: Timetable | None = None
    """Open where its capacity is not zero. None: at any time."""
    grace_s: Seconds = Seconds(30.0)
    """How long requests under way may go on after a window has closed."""
    stops_at_deadline: bool = False

    def is_open(self, now: Instant) -> bool:
        return self.windows is None or self.windows.capacity_at(now) > 0

    def opens_at(self, now: Instant) -> Instant:
        """Now, or when the next window opens."""
        if self.windows is None or self.is_open(now):
            return now
        at = self.windows.next_change_after(now)
        return FOREVER if at is None else at

    def closes_at(self, now: Instant) -> Instant:
        """When the window that is open now closes; FOREVER without windows, or while none is open."""
        if self.windows is None or not self.is_open(now):
            return FOREVER
        at = self.windows.next_change_after(now)
        return FOREVER if at is None else at

    def wall_s(self, now: Instant, open_s: float) -> float:
        """How long it takes from now until windows were open for so long."""
        if self.windows is None or not open_s < FOREVER:
            return open_s
        at, left_s = float(now), open_s
        for begin_at, end_at in _shut_from(self.windows, int(now // 3600)):
            if end_at <= at:
                continue
            if left_s <= begin_at - at:
                break
            left_s -= max(0.0, begin_at - at)
            at = end_at
        return at + left_s - now

    def shut_s(self, now: Instant, until: float) -> float:
        """For how long no window is open from now until an instant."""
        if self.windows is None or until <= now or until >= FOREVER:
            return 0.0
        shut_s = 0.0
        for begin_at, end_at in _shut_from(self.windows, int(now // 3600)):
            shut_s += max(0.0, min(end_at, until) - max(begin_at, now))
        if until > (horizon_at := now // 3600 * 3600 + _HORIZON_S):
            # The weeks after that are like the ones before.
            shut_s *= (until - now) / (horizon_at - now)
        return shut_s


_HORIZON_S = 14 * 86400.0


@functools.lru_cache(maxsize=256)
def _shut_from(windows: Timetable, hour: int) -> list[tuple[float, float]]:
    """When no window is open, in the two weeks from an hour on. The sites of a group share it."""
    begin = Instant(hour * 3600.0)
    segments = windows.segments(begin, Seconds(_HORIZON_S))
    return [(begin + from_s, begin + to_s) for from_s, to_s, rate in segments if not rate]


ALWAYS_OPEN = SiteHours()


class SiteRules(msgspec.Struct, frozen=True):
    """The rules of one site, or of all sites of a group. None: those of the crawl."""

    politeness: Politeness | None = None
    scope: SiteScope | None = None
    hours: SiteHours = ALWAYS_OPEN
    ignores_robots: bool | None = None
    strategy: str | None = None
    """The order of its pages."""
    sitemaps: tuple[Page, ...] = ()
    """Addresses to read beside those in robots.txt."""


NO_RULES = SiteRules()


class BySite(Generic[T]):
    """Values by the sites of a job, for these sites and what is meant by them."""

    def __init__(self, given: Mapping[Site, T] = MappingProxyType({})) -> None:
        self.given = given
        self._names = {_name_of(site): site for site in reversed(list(given))}
        """Of each host, the first site in the job."""
        self._taken: dict[Site, Site] = {}
        """By a site to which the first page of another one leads: that one."""

    def __bool__(self) -> bool:
        return bool(self.given)

    def of(self, site: Site) -> T | None:
        if not self.given:
            return None
        return self.given.get(site) or self._of_like(site)

    def _of_like(self, site: Site) -> T | None:
        source = self.source_of(site)
        return None if source is None else self.given.get(source)

    def source_of(self, site: Site) -> Site | None:
        """The site of the job whose value holds for this site."""
        if site in self.given:
            return site
        return self._taken.get(site) or self._names.get(_name_of(site))

    def take_over(self, source: Site, target: Site) -> None:
        """The first page of `source` leads to `target`, so the same site is meant. If that is a site of the
        job itself, its own value counts."""
        origin = self.source_of(source)
        if origin is not None and self.source_of(target) is None:
            self._taken[target] = origin


def _name_of(site: Site) -> str:
    """The host without `www.`, with the port unless it is the default one of the scheme."""
    scheme, _, authority = site.partition("://")
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = authority, ""
    if port == _DEFAULT_PORTS.get(scheme):
        port = ""
    return f"{host.removeprefix('www.')}:{port}"
