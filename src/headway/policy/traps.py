"""Crawler traps, recognised by URLs, parameters and near-duplicates, and left out with a reason; and mirrors.

Some traps show in a URL alone: a path that repeats itself, a session id, a date far in the future. Checking a
URL takes time linear in its length, whatever it contains. Other traps show only in the pages: each leads to
more pages of the same kind (see `Family`). Near-duplicate pages and mirrored sites are recognised by
fingerprints in bounded memory.
"""

from __future__ import annotations

import enum
import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from itertools import islice
from typing import TypeVar

import msgspec

from headway.model.command import Command, SaveNotice, SaveSettled
from headway.model.page import Kind, Outcome, Page, PageKey, Site
from headway.policy.scope import SITE_LIMIT
from headway.units import Instant

Key = TypeVar("Key")
V = TypeVar("V")

_PARTS = 8


def number_of(text: str) -> int:
    """A 64-bit hash of a text. Unlike `hash` it is the same in every process, so that the same events give
    the same commands. It is cryptographic, so that collisions are hard to construct."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def keep_last(entries: dict[Key, V], most: int) -> None:
    """If there are more than `most` entries, delete the oldest eighth.

    They are not deleted one at a time, because a dictionary finds its first entry by skipping all deleted
    ones. With tens of thousands of entries that takes tens of microseconds each time.
    """
    if len(entries) > most:
        for key in list(islice(entries, most // _PARTS + 1)):
            del entries[key]


NEAR_BITS = 3
"""Two pages that share nine words of ten differ in about this many bits, unrelated pages in about 30."""

EVERY_BIT = (1 << 64) - 1
"""Masks a fingerprint, which is a signed number, so that its bits can be counted."""


def distance(one: int, other: int) -> int:
    """The number of bits in which two fingerprints differ."""
    return ((one ^ other) & EVERY_BIT).bit_count()


def near(fingerprint: int, others: Iterable[int], bits: int = NEAR_BITS) -> int | None:
    """The first of `others` that differs in at most `bits` bits. All fingerprints are unsigned."""
    if _near_in_c is not None:
        return _near_in_c(fingerprint, others, bits)
    return near_in_python(fingerprint, others, bits)


def _load() -> Callable[[int, Iterable[int], int], int | None] | None:
    try:
        found: Callable[[int, Iterable[int], int], int | None] = importlib.import_module(
            "headway.policy._near"
        ).near
    except ImportError:
        return None
    return found


_near_in_c = _load()


def near_in_python(fingerprint: int, others: Iterable[int], bits: int) -> int | None:
    for other in others:
        if (fingerprint ^ other).bit_count() <= bits:
            return other
    return None


class Mirrors:
    """Finds sites with the same content at the same paths, among the last `most_pages` pages of all sites."""

    def __init__(self, *, fewest_pages: int = 30, share: float = 0.9, most_pages: int = 65_536) -> None:
        self._fewest_pages = fewest_pages
        self._share = share
        self._most_pages = most_pages
        self._first: dict[int, Site] = {}
        """The first site with a path and content, by a hash of both: a small key, because there are many."""
        self._pages: dict[Site, int] = {}
        self._met: dict[Site, int] = {}
        self._common: dict[tuple[Site, Site], int] = {}
        self.mirrors: dict[Site, Site] = {}
        """Each mirror with its original, the site that was seen first."""

    def learn(self, site: Site, path: str, fingerprint: int) -> Site | None:
        """Record a fetched page. Returns a site that this page shows to be a mirror, or None."""
        self._met.setdefault(site, len(self._met))
        self._pages[site] = self._pages.get(site, 0) + 1
        first = self._first.setdefault(number_of(f"{fingerprint:x} {path}"), site)
        keep_last(self._first, self._most_pages)
        if self._home(first) == self._home(site):
            return None
        original, mirror = sorted((first, site), key=self._met.__getitem__)
        common = self._common.pop((original, mirror), 0) + 1
        self._common[original, mirror] = common
        keep_last(self._common, self._most_pages)
        fewer = min(self._pages[first], self._pages[site])
        if common < self._fewest_pages or common < self._share * fewer:
            return None
        self.mirrors[mirror] = self._home(original)
        return mirror

    def _home(self, site: Site) -> Site:
        return self.mirrors.get(site, site)


LONGEST_PERIOD = 8
REPEATS = 3
MOST_OF_ONE = 4
"""A segment that occurs this often in a path is a loop too, even if the occurrences are not adjacent."""

_LETTER = re.compile(r"[^\W\d_]")
_VARYING = re.compile(r"[0-9a-fA-F]{12,}|\d+")

# Names used only for session ids, and names that need a value that looks like a session id.
_SURE = r"phpsessid|jsessionid|aspsessionid\w*|cfid|cftoken|zenid|oscsid|xtcsid|sessionid|session_id|sessid"
_LIKELY = r"sid|sess|session|s"
_TOKEN = r"(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{16,}"  # noqa: S105
_SESSION = re.compile(
    rf"(?P<lead>[?&;])(?:(?:{_SURE})=[^&;?#/]*|(?:{_LIKELY})={_TOKEN}(?![\w-]))|/\(S\([a-z0-9]{{16,}}\)\)",
    re.IGNORECASE,
)

_DATE = re.compile(
    r"(?<!\d)(?P<year>[12]\d{3})(?P<between>[-/_.])(?:0[1-9]|1[0-2])(?!\d)"
    r"|[?&;](?:y|yr|year|jahr|annee|anno)=(?P<named>[12]\d{3})(?!\d)",
    re.IGNORECASE,
)


def path_of(url: str, site: str) -> str:
    """The path and query of a URL."""
    return url[len(site) :]


def repeats_itself(path: str) -> bool:
    """Whether a run of segments occurs three times in a row, or one segment occurs four times.

    Segments without letters do not count: sites use paths such as /1/1/1/ for numbering.
    """
    if path.count("/") < REPEATS:
        return False
    names = path.partition("?")[0].strip("/").split("/")
    if len(set(names)) == len(names):
        return False
    if any(count >= MOST_OF_ONE and _LETTER.search(name) for name, count in Counter(names).items()):
        return True
    return any(_has_run(names, period) for period in range(1, min(LONGEST_PERIOD, len(names) // REPEATS) + 1))


def _has_run(names: list[str], period: int) -> bool:
    same = 0
    for position in range(period, len(names)):
        same = same + 1 if names[position] == names[position - period] else 0
        if same >= (REPEATS - 1) * period:
            run = names[position - period + 1 : position + 1]
            if any(_LETTER.search(name) for name in run):
                return True
    return False


def shape_of(path: str) -> str:
    """The path with `#` for each number and each long hexadecimal name, so that numbered pages have one
    shape."""
    return _VARYING.sub("#", path)


def without_session(path: str) -> str | None:
    """The path without its session ids, or None if it has none."""
    if "=" not in path and "(" not in path:
        return None
    bare, count = _SESSION.subn(_lead_of_next, path)
    return bare if count else None


def _lead_of_next(match: re.Match[str]) -> str:
    # The next parameter keeps its &: the result is only used as a key, never as a URL.
    return match["lead"] or "/"


def year_of(path: str) -> int | None:
    """The year of the first date in a path, such as /2030/05/, ?date=2030-05-17 or ?year=2030."""
    match = _DATE.search(path)
    return int(match["year"] or match["named"]) if match else None


def pairs_of(path: str) -> tuple[str, list[str]]:
    """The path without the query, and the parameters of the query as written."""
    bare, _, query = path.partition("?")
    return bare, query.replace(";", "&").split("&") if query else []


FEWEST_ADDRESSES = 512
COMBINED = 8
"""Addresses per distinct value from which they count as combinations: a list has a new value per address."""
_MOST_VALUES = 4096
_MOST_PATHS = 64


class _Tally:
    __slots__ = ("addresses", "values")

    def __init__(self) -> None:
        self.addresses = 0
        self.values: set[int] | None = set()
        """None: so many that the addresses must be a list, not combinations."""


class QueryWatch:
    """Counts combinations of query parameters, for each path of a site with two parameters or more."""

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: dict[str, _Tally] = {}

    def is_combination(self, path: str, pairs: list[str]) -> bool:
        """Count an address. True if it only combines known values and enough such addresses were followed."""
        tally = self._paths.get(path)
        if tally is None:
            tally = self._paths[path] = _Tally()
            keep_last(self._paths, _MOST_PATHS)
        if tally.values is None:
            return False
        values = {number_of(pair) for pair in pairs}
        if tally.addresses >= FEWEST_ADDRESSES and tally.addresses >= COMBINED * len(tally.values | values):
            return True
        tally.addresses += 1
        tally.values |= values
        if len(tally.values) > _MOST_VALUES:
            tally.values = None
        return False


CREDIT = 50
NEW_PAGE = 10
_MOST_LIKENESSES = 4


class Family:
    """Similar pages that each lead to more of the same kind.

    A family has a credit. A page that was found on a page of the family costs one if it is similar, and gives
    ten back if it is new. So more than nine of ten pages must be similar, for fifty pages or more, before the
    family is barren. From then on the pages that it leads to are left out. A page to which other pages lead
    as well does not belong to the family, and is always fetched.
    """

    __slots__ = ("_drifts", "_likenesses", "_tolerance", "credit", "is_reported", "reason", "subject")

    def __init__(
        self, reason: str, subject: str, tolerance: int, fingerprint: int, *, drifts: bool = False
    ) -> None:
        """`drifts`: a page must be similar to one of the latest pages; otherwise to one of the first few,
        because the very first may be an exception."""
        self.reason = reason
        self.subject = subject
        """The common shape of the addresses, or the common fingerprint."""
        self._tolerance = tolerance
        self._drifts = drifts
        self._likenesses = [fingerprint]
        self.credit = CREDIT
        self.is_reported = False

    @classmethod
    def barren(cls, reason: str, subject: str, tolerance: int, fingerprint: int = 0) -> Family:
        """A family that an earlier run gave up."""
        family = cls(reason, subject, tolerance, fingerprint)
        family.credit, family.is_reported = 0, True
        return family

    @property
    def is_barren(self) -> bool:
        return self.credit <= 0

    @property
    def has_grown(self) -> bool:
        """Whether it has similar pages beyond the first."""
        return len(self._likenesses) > 1

    def is_like(self, fingerprint: int) -> bool:
        return near(fingerprint, self._likenesses, self._tolerance) is not None

    def update(self, fingerprint: int) -> None:
        """Update the credit for a page found on one of its pages, with this fingerprint."""
        if self.is_like(fingerprint):
            self.credit -= 1
            if not self._drifts and len(self._likenesses) < _MOST_LIKENESSES:
                self._likenesses.append(fingerprint)
        else:
            self.credit = min(CREDIT, self.credit + NEW_PAGE)
        if self._drifts:
            first, *last = self._likenesses
            self._likenesses = [first, *last[2 - _MOST_LIKENESSES :], fingerprint]


class Mirroring(enum.StrEnum):
    REPORT = "report"
    SKIP = "skip"
    IGNORE = "ignore"


class Lesson(msgspec.Struct, frozen=True):
    """What a fetched page means for its links."""

    site: Site
    shape: str
    by_shape: Family | None
    """The pages whose addresses have the same shape; None if the address has no variable part."""
    by_content: Family | None
    """The pages with almost the same content; None if there are no others."""


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
"""Pages whose addresses differ only in numbers are similar if three of four words are the same."""
SAME_BITS = 6
""""Not found" pages with varying suggestions differ in one word of ten: in three bits on average, but often
in more."""
YEARS_AHEAD = 10
"""A calendar is followed this far into the future."""

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
        """By the fingerprint of the first page. None: only one such page so far, as for most pages."""
        self.queries = QueryWatch()


class TrapWatch:
    """Watches all sites for traps and mirrors, in bounded memory.

    `learn` records each settled page, `judge` says why one of its links should not be followed, and
    `judge_waiting` why a page that is already queued should not be fetched. `news` returns each new notice
    once, for the user and for the next run.
    """

    def __init__(self, *, watches_traps: bool = True, mirroring: Mirroring = Mirroring.REPORT) -> None:
        self._watches_traps = watches_traps
        self._mirroring = mirroring
        self._sites: dict[Site, _SiteWatch] = {}
        self._offspring: dict[PageKey, Family] = {}
        """Waiting pages, with the family on whose pages they were found."""
        self._session_pages: dict[tuple[Site, int], None] = {}
        self._mirrors = Mirrors()
        self._news: list[SaveNotice] = []

    def restore(self, notices: Iterable[SaveNotice]) -> None:
        for notice in notices:
            if notice.what.startswith(SITE_LIMIT):
                continue
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
        """Learn from a settled page. Returns the function that judges its links."""
        lesson = self.learn(now, settled.page, settled.outcome)
        commands += self.news()
        return lambda link: self.judge(now, link, lesson)

    def learn(self, now: Instant, page: Page, outcome: Outcome) -> Lesson | None:
        """Record a settled page. Returns None if it has no content to compare."""
        parents = self._offspring.pop(page.key, None)
        fingerprint = outcome.fingerprint & EVERY_BIT
        if not fingerprint or outcome.kind not in _COUNTED:
            return None
        path = path_of(page.url, page.site)
        if self._mirroring is not Mirroring.IGNORE:
            self._look_for_mirror(now, page.site, path, fingerprint)
        if not self._watches_traps:
            return None
        if parents is not None:
            parents.update(fingerprint)
            if parents.is_barren and not parents.is_reported:
                parents.is_reported = True
                self._news.append(SaveNotice(page.site, now, parents.reason, parents.subject))
        return self._lesson(page.site, path, fingerprint)

    def judge(self, now: Instant, link: Page, lesson: Lesson | None) -> str | None:
        """Why a new link is not followed, or None. `lesson` is that of the page with the link."""
        if self._mirroring is Mirroring.SKIP and link.site in self._mirrors.mirrors:
            return f"{MIRROR} of {self._mirrors.mirrors[link.site]}"
        if not self._watches_traps:
            return None
        path = path_of(link.url, link.site)
        return self._judge_address(link.site, path) or (
            self._judge_birth(now, link, path, lesson)
            if lesson is not None and link.site == lesson.site
            else None
        )

    def judge_waiting(self, page: Page) -> str | None:
        """Why a queued page is not fetched after all, or None."""
        if self._mirroring is Mirroring.SKIP and page.site in self._mirrors.mirrors:
            return f"{MIRROR} of {self._mirrors.mirrors[page.site]}"
        parents = self._offspring.get(page.key)
        if parents is None or not parents.is_barren:
            return None
        del self._offspring[page.key]
        return parents.reason

    # -- addresses --------------------------------------------------------------------------------------

    def _judge_address(self, site: Site, path: str) -> str | None:
        if repeats_itself(path):
            return REPEATING_PATH
        bare = without_session(path)
        if bare is not None:
            known = (site, number_of(bare))
            if known in self._session_pages:
                return SESSION_ID
            self._session_pages[known] = None
            keep_last(self._session_pages, _MOST_SESSION_PAGES)
        if "&" in path or ";" in path:
            asked, pairs = pairs_of(path)
            if len(pairs) > 1 and self._site(site).queries.is_combination(asked, pairs):
                return COMBINED_QUERY
        return None

    # -- families ---------------------------------------------------------------------------------------

    def _judge_birth(self, now: Instant, link: Page, path: str, lesson: Lesson) -> str | None:
        """The reason if the link was found on a barren family; otherwise it is recorded with its family."""
        if lesson.by_shape is not None and shape_of(path) == lesson.shape:
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
        shape = shape_of(path)
        by_shape = None
        if shape != path:
            by_shape = watch.by_shape.get(shape)
            if by_shape is None:
                reason = CALENDAR if year_of(path) is not None else NUMBERING
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
    """The key of the family that a page belongs to, the fingerprint of its first page; None if there is none.

    A family with several pages is compared by a few of them. Otherwise pages far from the first would start
    families of their own, and each would have to use up its credit.
    """
    centre = near(fingerprint, families, SAME_BITS)
    if centre is None:
        for first, family in families.items():
            if family is not None and family.has_grown and family.is_like(fingerprint):
                return first
    return centre


def _put(families: dict[K, F], name: K, family: F) -> None:
    """Add as the latest. If there are too many, the oldest that is not barren is dropped."""
    families.pop(name, None)
    families[name] = family
    if len(families) > _MOST_FAMILIES:
        spared = (name for name, each in families.items() if each is None or not each.is_barren)
        del families[next(spared, next(iter(families)))]


def _is_far_ahead(now: Instant, path: str) -> bool:
    year = year_of(path)
    return year is not None and now > _CLOCKS_SHOW_A_DATE_FROM and year > 1970 + now / _YEAR_S + YEARS_AHEAD
