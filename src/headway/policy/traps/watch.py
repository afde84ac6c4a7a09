"""Watches all sites for traps and mirrors, in bounded memory.

`learn` takes in each page that has come, `judge` says why one of its links should not be followed, and
`judge_waiting` why a page that was queued meanwhile should not be fetched after all. What a person should
know, and the next run too, comes out of `news` once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from headway.model.command import Command, SaveNotice, SaveSettled
from headway.model.outcome import Kind, Outcome
from headway.model.page import Page, PageKey, Site
from headway.policy.duplicates import EVERY_BIT, Mirrors, near
from headway.policy.forgetting import keep_last
from headway.policy.traps import addresses
from headway.policy.traps.family import Family
from headway.policy.traps.lesson import Lesson, Mirroring
from headway.policy.traps.queries import QueryWatch
from headway.units import Instant

K = TypeVar("K")
F = TypeVar("F", bound=Family | None)

REPEATING_PATH = "trap: repeating path"
SESSION_ID = "trap: session id"
COMBINED_QUERY = "trap: combined parameters"
CALENDAR = "trap: endless calendar"
NUMBERING = "trap: endless numbering"
SAME_PAGE = "trap: same page everywhere"
MIRROR = "mirror"

SHAPE_BITS = 8
"""Pages whose addresses differ in numbers only are alike if three words in four are the same."""
SAME_BITS = 6
"""Pages that are not found, each with its own suggestions, differ in a word of ten: in three bits on average,
but often in more."""
YEARS_AHEAD = 10
"""A calendar that leads to itself may go on so far into the future."""

_COUNTED = frozenset({Kind.FETCHED, Kind.DUPLICATE})
_MOST_SITES = 4096
_MOST_FAMILIES = 32
_MOST_OFFSPRING = 100_000
_MOST_SESSION_PAGES = 100_000
_CLOCKS_SHOW_A_DATE_FROM = 1e9
_YEAR_S = 31_556_952.0


class _SiteWatch:
    __slots__ = ("by_content", "by_shape", "queries")

    def __init__(self) -> None:
        self.by_shape: dict[str, Family] = {}
        self.by_content: dict[int, Family | None] = {}
        """Most pages are like no other: such a one is no family yet."""
        self.queries = QueryWatch()


class TrapWatch:
    def __init__(self, *, watches_traps: bool = True, mirroring: Mirroring = Mirroring.REPORT) -> None:
        self._watches_traps = watches_traps
        self._mirroring = mirroring
        self._sites: dict[Site, _SiteWatch] = {}
        self._offspring: dict[PageKey, Family] = {}
        """Pages that wait, with the family on whose pages they were found."""
        self._session_pages: dict[tuple[Site, int], None] = {}
        self._mirrors = Mirrors()
        self._news: list[SaveNotice] = []

    def restore(self, notices: Iterable[SaveNotice]) -> None:
        for notice in notices:
            if notice.what == MIRROR:
                self._mirrors.mirrors[notice.site] = Site(notice.subject)
            elif notice.what == SAME_PAGE:
                fingerprint = int(notice.subject, 16)
                family = Family.barren(notice.what, notice.subject, SAME_BITS, fingerprint)
                self._site(notice.site).by_content[fingerprint] = family
            else:
                family = Family.barren(notice.what, notice.subject, SHAPE_BITS)
                self._site(notice.site).by_shape[notice.subject] = family

    def news(self) -> list[SaveNotice]:
        news, self._news = self._news, []
        return news

    def judge_of(
        self, now: Instant, settled: SaveSettled, commands: list[Command]
    ) -> Callable[[Page], str | None]:
        """Learn from a page that has settled, and get what judges its links."""
        lesson = self.learn(now, settled.page, settled.outcome)
        commands += self.news()
        return lambda link: self.judge(now, link, lesson)

    def learn(self, now: Instant, page: Page, outcome: Outcome) -> Lesson | None:
        """A page has settled; None if it teaches nothing."""
        parents = self._offspring.pop(page.key, None)
        fingerprint = outcome.fingerprint & EVERY_BIT
        if not fingerprint or outcome.kind not in _COUNTED:
            return None
        path = addresses.path_of(page.url, page.site)
        if self._mirroring is not Mirroring.IGNORE:
            self._look_for_mirror(now, page.site, path, fingerprint)
        if not self._watches_traps:
            return None
        if parents is not None:
            parents.has_bred(fingerprint)
            if parents.is_barren and not parents.is_told:
                parents.is_told = True
                self._news.append(SaveNotice(page.site, now, parents.reason, parents.subject))
        return self._lesson(page.site, path, fingerprint)

    def judge(self, now: Instant, link: Page, lesson: Lesson | None) -> str | None:
        """Why a newly found link is not to be followed, or None. `lesson` is that of the page it is on."""
        if self._mirroring is Mirroring.SKIP and link.site in self._mirrors.mirrors:
            return f"{MIRROR} of {self._mirrors.mirrors[link.site]}"
        if not self._watches_traps:
            return None
        path = addresses.path_of(link.url, link.site)
        return self._judge_address(link.site, path) or (
            self._judge_birth(now, link, path, lesson)
            if lesson is not None and link.site == lesson.site
            else None
        )

    def judge_waiting(self, page: Page) -> str | None:
        """Why a page that was queued is not to be fetched after all, or None."""
        if self._mirroring is Mirroring.SKIP and page.site in self._mirrors.mirrors:
            return f"{MIRROR} of {self._mirrors.mirrors[page.site]}"
        parents = self._offspring.get(page.key)
        if parents is None or not parents.is_barren:
            return None
        del self._offspring[page.key]
        return parents.reason

    # -- addresses --------------------------------------------------------------------------------------

    def _judge_address(self, site: Site, path: str) -> str | None:
        if addresses.repeats_itself(path):
            return REPEATING_PATH
        bare = addresses.without_session(path)
        if bare is not None:
            known = (site, hash(bare))
            if known in self._session_pages:
                return SESSION_ID
            self._session_pages[known] = None
            keep_last(self._session_pages, _MOST_SESSION_PAGES)
        if "&" in path or ";" in path:
            asked, pairs = addresses.pairs_of(path)
            if len(pairs) > 1 and self._site(site).queries.is_combination(asked, pairs):
                return COMBINED_QUERY
        return None

    # -- families ---------------------------------------------------------------------------------------

    def _judge_birth(self, now: Instant, link: Page, path: str, lesson: Lesson) -> str | None:
        """Whether the link comes of a family that breeds nothing but its like."""
        if lesson.by_shape is not None and addresses.shape_of(path) == lesson.shape:
            if _is_far_ahead(now, path):
                return CALENDAR
            parents = lesson.by_shape
        elif lesson.by_content is not None:
            parents = lesson.by_content
        else:
            return None
        if parents.is_barren:
            return parents.reason
        self._offspring[link.key] = parents
        keep_last(self._offspring, _MOST_OFFSPRING)
        return None

    def _lesson(self, site: Site, path: str, fingerprint: int) -> Lesson:
        watch = self._site(site)
        shape = addresses.shape_of(path)
        by_shape = None
        if shape != path:
            by_shape = watch.by_shape.get(shape)
            if by_shape is None:
                reason = CALENDAR if addresses.year_of(path) is not None else NUMBERING
                by_shape = Family(reason, shape, SHAPE_BITS, fingerprint, drifts=True)
            _put(watch.by_shape, shape, by_shape)
        alike = watch.by_content
        centre = fingerprint if fingerprint in alike else _centre_of(fingerprint, alike)
        by_content = None
        if centre is not None:
            by_content = alike[centre] or Family(SAME_PAGE, f"{centre:x}", SAME_BITS, centre)
        _put(alike, fingerprint if centre is None else centre, by_content)
        return Lesson(site, shape, by_shape, by_content)

    def _site(self, site: Site) -> _SiteWatch:
        watch = self._sites.pop(site, None) or _SiteWatch()
        self._sites[site] = watch
        keep_last(self._sites, _MOST_SITES)
        return watch

    def _look_for_mirror(self, now: Instant, site: Site, path: str, fingerprint: int) -> None:
        mirror = self._mirrors.learn(site, path, fingerprint)
        if mirror is not None:
            self._news.append(SaveNotice(mirror, now, MIRROR, self._mirrors.mirrors[mirror]))


def _centre_of(fingerprint: int, families: Mapping[int, Family | None]) -> int | None:
    """The first page of the family that a page belongs to. A family that has grown is known by a few of its
    pages: those far from its first would else be families of their own, each to be given up anew."""
    centre = near(fingerprint, families, SAME_BITS)
    if centre is None:
        for first, family in families.items():
            if family is not None and family.has_grown and family.is_like(fingerprint):
                return first
    return centre


def _put(families: dict[K, F], name: K, family: F) -> None:
    """As the latest; of too many the oldest that was not given up goes."""
    families.pop(name, None)
    families[name] = family
    if len(families) > _MOST_FAMILIES:
        spared = (name for name, each in families.items() if each is None or not each.is_barren)
        del families[next(spared, next(iter(families)))]


def _is_far_ahead(now: Instant, path: str) -> bool:
    year = addresses.year_of(path)
    return year is not None and now > _CLOCKS_SHOW_A_DATE_FROM and year > 1970 + now / _YEAR_S + YEARS_AHEAD
