"""robots.txt by RFC 9309: the rules for us, what a missing file means, and matching in bounded time.

Patterns and paths are compared in one spelling (percent-encoded where needed, upper case), as Protego does;
tests compare the matches with Protego's. Of the rules that match, the one with the most octets as written
holds (RFC 9309 2.2.2).
"""

from __future__ import annotations

import codecs
import math
import re
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import structs

from headway.model.command import FetchRobots
from headway.model.event import RobotsSettled
from headway.model.page import ROBOTS_CUT, AllowAll, Kind, Outcome, RobotsRules
from headway.pages.document import REDIRECT_STATUSES
from headway.pages.headers import fresh_for_s
from headway.pages.url import page_of
from headway.policy.politeness import preferences_of, stricter
from headway.policy.scope import product_token
from headway.ports import Clock, Fetcher, Request, Response
from headway.units import Instant, Seconds

_ANY_AGENT = "*"
_SPELT = re.compile(r"/(?!/)[A-Za-z0-9_.~/=-]*")
_SPELT_PATTERN = re.compile(r"[A-Za-z0-9_.~/=*-]+\$?")
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_REMOVED = {ord(blank): None for blank in "\t\n\r"}

_MOST_STEPS = 300_000
"""Characters compared for one URL: up to 1 ms. A file of 500 KB has room for 50,000 rules."""
_OF_PATTERN = 200
"""Steps of asking one pattern, in addition to the characters of the path and of the pattern."""
_FEW_PATTERNS = 16
"""So many with stars are asked one after the other."""
_LONGEST_KEY = 16
"""Characters. Keys have 1, 2, 4, 8 or 16, so that a path of 2,000 has 10,000 keys at most."""


class _Pattern(NamedTuple):
    """A rule with stars."""

    rank: int
    """Its place among the rules: the longest first, of equal ones the allowing ones."""
    parts: tuple[str, ...]
    """What stands between the stars."""
    ends: bool
    """Whether the last part has to be at the end of the path."""
    length: int

    def fits(self, path: str) -> bool:
        first, *middle, last = self.parts
        if not path.startswith(first):
            return False
        position = len(first)
        for part in middle:
            position = path.find(part, position)
            if position < 0:
                return False
            position += len(part)
        if self.ends:
            return path.endswith(last) and len(path) - len(last) >= position
        return path.find(last, position) >= 0


class _Matcher:
    """The rules of a robots.txt, compiled once.

    The time for a URL depends on its length and on the rules that have a part in common with it, not on the
    number of rules.
    """

    __slots__ = ("_allows", "_exact", "_key_lengths", "_lengths", "_patterns", "_prefixes", "problem")

    def __init__(self, rules: Iterable[tuple[bool, str]]) -> None:
        """Each rule: whether it allows, and its pattern as written."""
        spelt = sorted(
            {(octets, allows, pattern) for rule in rules for octets, allows, pattern in _variants(*rule)},
            key=lambda rule: (-rule[0], not rule[1], rule[2]),
        )
        self.problem = ""
        self._allows = [allows for _, allows, _ in spelt]
        self._exact: dict[str, int] = {}
        self._prefixes: dict[str, int] = {}
        patterns: list[_Pattern] = []
        for rank, (_, _, pattern) in enumerate(spelt):
            body, ends = pattern.removesuffix("$"), pattern.endswith("$")
            if "*" in body:
                patterns.append(_Pattern(rank, tuple(re.split(r"\*+", body)), ends, len(pattern)))
            else:
                (self._exact if ends else self._prefixes).setdefault(body, rank)
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})
        self._patterns = _by_key(patterns)
        self._key_lengths = sorted({len(key) for key in self._patterns})

    def allows(self, path: str) -> bool:
        """Whether a path may be fetched. False, with `problem`, if comparing it would take too long."""
        self.problem = ""
        best = self._exact.get(path, len(self._allows))
        for length in self._lengths:
            if length > len(path):
                break
            best = min(best, self._prefixes.get(path[:length], best))
        steps = 0
        for pattern in self._candidates(path):
            if pattern.rank >= best:
                continue
            steps += _OF_PATTERN + len(path) + pattern.length
            if steps > _MOST_STEPS:
                self.problem = "comparing it with the rules of robots.txt would take too long"
                return False
            if pattern.fits(path):
                best = pattern.rank
        return self._allows[best] if best < len(self._allows) else True

    def _candidates(self, path: str) -> Iterator[_Pattern]:
        """The patterns whose key is in the path. Those of a key come with the longest first."""
        known = self._patterns
        for length in self._key_lengths:
            keys = (
                {path[begin : begin + length] for begin in range(len(path) - length + 1)} if length else {""}
            )
            for key in sorted(keys & known.keys()) if len(keys) < len(known) else keys & known.keys():
                yield from known[key]


def _by_key(patterns: list[_Pattern]) -> dict[str, list[_Pattern]]:
    """Patterns by the beginning of their longest part, which a path has to have in it."""
    if len(patterns) <= _FEW_PATTERNS:
        return {"": patterns} if patterns else {}
    by_key: dict[str, list[_Pattern]] = {}
    for pattern in patterns:
        part = max(pattern.parts, key=len)
        length = min(len(part), _LONGEST_KEY)
        by_key.setdefault(part[: 1 << length.bit_length() - 1] if length else "", []).append(pattern)
    return by_key


def _variants(allows: bool, written: str) -> Iterator[tuple[int, bool, str]]:
    """The rules that a line stands for, each with the octets that decide which rule is the most specific."""
    octets = _octets(written)
    spellings = [written, written.replace("$", "%24")] if "$" in written else [written]
    for spelling in spellings:  # a $ may be meant literally
        if not (pattern := _spelt_pattern(spelling)):
            continue
        yield octets, allows, pattern
        if allows and pattern.endswith("/index.html"):
            yield octets, allows, pattern.removesuffix("index.html") + "$"


def _octets(written: str) -> int:
    """The length of a pattern as RFC 9309 2.2.2 compares it: characters outside ASCII count as their escapes,
    and those of ASCII as one, also where our own spelling escapes them."""
    return sum(1 if character < "\x80" else 3 * len(character.encode()) for character in written)


def _spelt_pattern(written: str) -> str:
    if _SPELT_PATTERN.fullmatch(written):
        return written
    if written.startswith(("http://", "https://")):
        written = f"/{written}"
    body, ends = written.removesuffix("$"), written.endswith("$")
    return _spelt(body, "/%*", "/%*=") + ("$" if ends else "")


def _spelt_path(path: str) -> str:
    """Path and query in the spelling of patterns."""
    if _SPELT.fullmatch(path):
        return path
    return _spelt(path.partition("#")[0].translate(_REMOVED), "/%", "/%=")


def _spelt(text: str, kept: str, safe: str) -> str:
    """Escapes are decoded, but for those of `kept`, and what needs one is encoded, but for `safe`."""
    kept_escapes = {f"%{ord(character):02X}" for character in kept}

    def decoded(match: re.Match[str]) -> str:
        escapes = match[0].upper()
        each = [escapes[begin : begin + 3] for begin in range(0, len(escapes), 3)]
        octets = b"".join(
            escape.encode() if escape in kept_escapes else bytes.fromhex(escape[1:]) for escape in each
        )
        return octets.decode("utf-8", "replace")

    return urllib.parse.quote(_ESCAPES.sub(decoded, text), safe=safe, errors="replace")


MAX_ROBOTS_BYTES = 500 * 1024
"""RFC 9309 2.5. Everything beyond is ignored."""
CUT = f"{ROBOTS_CUT}: rules after the first 500 KiB are ignored"

ROBOTS_LIFETIME_S = Seconds(24 * 3600.0)
"""RFC 9309 2.4: no copy is used for longer."""
_LEAST_LIFETIME_S = 3600.0
"""Caches in front of rarely changed files often state a short age, and fetching them more often would cost
every site requests."""

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LINE_END = re.compile(r"\r\n|\r|\n")
_LONGEST_LINE = 2083 * 8
"""Characters of a line that count, as in Google's parser: eight times the longest URL that browsers once
accepted."""
_AGENT, _ALLOW, _DISALLOW, _DELAY, _SITEMAP = "user-agent", "allow", "disallow", "crawl-delay", "sitemap"
_RATE, _VISIT, _SIGNAL, _USAGE = "request-rate", "visit-time", "content-signal", "content-usage"
_EXTENSIONS = frozenset({_DELAY, _RATE, _VISIT, _SIGNAL, _USAGE})
"""Not defined by the RFC, so they do not end the user-agent lines of a group (2.2.4)."""
_FIELDS = {
    **{word: word for word in (_AGENT, _ALLOW, _DISALLOW, _DELAY, _SITEMAP)},
    **{word: word for word in (_RATE, _VISIT, _SIGNAL, _USAGE)},
    **dict.fromkeys(("content-signals",), _SIGNAL),
    **dict.fromkeys(("useragent", "user agent"), _AGENT),
    **dict.fromkeys(("dissallow", "dissalow", "disalow", "diasllow", "disallaw"), _DISALLOW),
    **dict.fromkeys(("crawl delay", "crawldelay"), _DELAY),
    **dict.fromkeys(("sitemaps", "site-map"), _SITEMAP),
}
"""The fields that are used, with their common misspellings."""
_WITHOUT_COLON = re.compile(rf"({'|'.join(sorted(_FIELDS, key=len, reverse=True))})\s+(\S.*)", re.IGNORECASE)


class ParsedRules:
    """The rules of one site for one user agent. Implements `model.page.RobotsRules`."""

    __slots__ = ("_matcher", "_usage", "crawl_delay_s", "sitemaps", "visit_minutes")

    def __init__(
        self, rules: list[tuple[str, str]], extensions: list[tuple[str, str]], sitemaps: tuple[str, ...]
    ) -> None:
        delays_s = [delay_s for field, value in extensions for delay_s in _delays_s(field, value)]
        self.crawl_delay_s = max(delays_s, default=None)
        self.sitemaps = sitemaps
        visits = [_minutes(value) for field, value in extensions if field == _VISIT]
        self.visit_minutes = next((minutes for minutes in visits if minutes is not None), None)
        """The minutes of the day (UTC) between which the site wants to be visited."""
        by_path = _usage_of(extensions)
        self._usage = _UsageByPath(by_path) if by_path else None
        self._matcher = _Matcher((field == _ALLOW, value) for field, value in rules if value)

    @property
    def problem(self) -> str:
        """Why the last URL was denied, if not by a rule."""
        return self._matcher.problem

    def preferences(self, url: str) -> Mapping[str, bool]:
        """What the page may be used for, where the file says so: of the longest path that it names."""
        return _NO_PREFERENCES if self._usage is None else self._usage.of(_path_of(url))

    def allows(self, url: str) -> bool:
        """Whether a URL of the site, or a path, may be fetched."""
        path = _path_of(url)
        if path.partition("?")[0] == "/robots.txt":
            return True
        return self._matcher.allows(_spelt_path(path))


def judge(status: int, body: bytes, user_agent: str) -> RobotsRules | None:
    """The rules that a response to a request for robots.txt stands for. None: nothing may be fetched until
    robots.txt can be fetched.

    The caller follows up to five redirects (2.3.1.2); one more means that there are no rules. So does a
    status 4xx (2.3.1.3) except 429, which limits our request rate and says nothing about rules.
    """
    if 200 <= status < 300:
        return rules_from_text(decode_robots(body), user_agent)
    if 300 <= status < 500 and status != 429:
        return AllowAll()
    return None


def decode_robots(body: bytes) -> str:
    """The text of a robots.txt, cut after the last whole line within the limit. Never raises."""
    if len(body) > MAX_ROBOTS_BYTES:
        body = body[:MAX_ROBOTS_BYTES]
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    for mark, encoding in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace")
    # A part of a mark would hide the first line.
    part = codecs.BOM_UTF8[: 2 if body.startswith(codecs.BOM_UTF8[:2]) else 1]
    return body.removeprefix(part).decode("utf-8", "replace")


def rules_from_text(text: str, user_agent: str) -> RobotsRules:
    """The merged rules of all groups for our user agent, or else of the groups for any user agent."""
    ours = product_token(user_agent)
    rules: dict[str, list[tuple[str, str]]] = {ours: [], _ANY_AGENT: []}
    extensions: dict[str, list[tuple[str, str]]] = {ours: [], _ANY_AGENT: []}
    sitemaps: dict[str, None] = {}
    named: set[str] = set()
    group: set[str] = set()
    group_has_rules = False
    for field, value in _records(text.removeprefix("\ufeff")):
        if field == _AGENT:
            if group_has_rules:
                group, group_has_rules = set(), False
            agent = product_token(value).rstrip("*") or _ANY_AGENT
            group.add(agent)
            named.add(agent)
        elif field == _SITEMAP:
            sitemaps.setdefault(value)
        elif field in _EXTENSIONS:
            for name in group & extensions.keys():
                extensions[name].append((field, value))
        else:
            group_has_rules = True
            for name in group & rules.keys():
                rules[name].append((field, value))
    us = ours if ours in named else _ANY_AGENT
    return ParsedRules(rules[us], extensions[us], tuple(sitemaps))


def _records(text: str) -> Iterator[tuple[str, str]]:
    for line in _LINE_END.split(text):
        content = line[:_LONGEST_LINE].partition("#")[0].strip().replace("\0", "")
        name, colon, value = content.partition(":")
        field = _FIELDS.get(name.strip().lower()) if colon else None
        if field is not None:
            yield field, value.strip()
        elif match := _WITHOUT_COLON.fullmatch(content):
            yield _FIELDS[match[1].lower()], match[2].strip()


_REQUEST_RATE = re.compile(r"(\d{1,9})\s*/\s*(\d{1,9})\s*([smhd]?)\w*")
_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_VISIT_TIME = re.compile(r"([01]\d|2[0-4]):?([0-5]\d)\s*-\s*([01]\d|2[0-4]):?([0-5]\d)(?:\s*(?:UTC|GMT|Z))?")
_MOST_PATHS = 1000
_NO_PREFERENCES: Mapping[str, bool] = {}


def _delays_s(field: str, value: str) -> list[Seconds]:
    """Of a Crawl-delay, or of a Request-rate for the whole day, such as `1/10s`."""
    try:
        if field == _DELAY:
            delay_s = float(value)
        elif field == _RATE and (match := _REQUEST_RATE.fullmatch(value)) is not None:
            delay_s = float(match[2]) * _UNITS_S[match[3]] / float(match[1])
        else:
            return []
    except (ValueError, ZeroDivisionError):
        return []
    # robots.txt is fetched again after a day, so a longer delay has no meaning.
    return [Seconds(min(delay_s, ROBOTS_LIFETIME_S))] if math.isfinite(delay_s) and delay_s >= 0 else []


def _minutes(value: str) -> tuple[int, int] | None:
    match = _VISIT_TIME.fullmatch(value.strip())
    if match is None:
        return None
    begin, end = (int(match[place]) * 60 + int(match[place + 1]) for place in (1, 3))
    return (begin, end) if begin != end and max(begin, end) <= 24 * 60 else None


def _usage_of(extensions: list[tuple[str, str]]) -> dict[str, dict[str, bool]]:
    """Preferences by path. A path may stand before those of Content-Usage."""
    by_path: dict[str, dict[str, bool]] = {}
    for field, value in extensions:
        if field not in {_SIGNAL, _USAGE}:
            continue
        path, _, rest = value.partition(" ") if value.startswith("/") else ("/", "", value)
        if preferences := preferences_of(rest):
            by_path[path] = stricter(by_path.get(path, {}), preferences)
            if len(by_path) >= _MOST_PATHS:
                break
    return by_path


class _UsageByPath:
    """Finds the preferences of the longest path that a page's path begins with, by halving its length: of
    1,000 paths, ten are looked up. So that a shorter path leads to a longer one, the beginnings of paths are
    in the table, too, each with the preferences of the longest path that it begins with itself."""

    __slots__ = ("_found", "_lengths")

    def __init__(self, by_path: Mapping[str, Mapping[str, bool]]) -> None:
        self._lengths = sorted({len(path) for path in by_path})
        beginnings = {path[:length] for path in by_path for length in self._halves(len(path))}
        self._found: dict[str, Mapping[str, bool]] = {}
        around: list[str] = []
        for beginning in sorted(beginnings | by_path.keys()):
            while around and not beginning.startswith(around[-1]):
                around.pop()
            if beginning in by_path:
                around.append(beginning)
            self._found[beginning] = by_path[around[-1]] if around else _NO_PREFERENCES

    def _halves(self, length: int) -> Iterator[int]:
        """The shorter lengths that are looked up on the way to this one."""
        low, high = 0, len(self._lengths) - 1
        while low <= high:
            middle = (low + high) // 2
            if self._lengths[middle] < length:
                yield self._lengths[middle]
                low = middle + 1
            elif self._lengths[middle] > length:
                high = middle - 1
            else:
                return

    def of(self, path: str) -> Mapping[str, bool]:
        best, low, high = _NO_PREFERENCES, 0, len(self._lengths) - 1
        while low <= high:
            middle = (low + high) // 2
            length = self._lengths[middle]
            found = self._found.get(path[:length]) if length <= len(path) else None
            if found is None:
                high = middle - 1
            else:
                best, low = found, middle + 1
        return best


def _path_of(url: str) -> str:
    """Path and query of an absolute URL; a path is returned unchanged."""
    if url.startswith("/"):
        return url
    slash = url.find("/", url.find("://") + 3)
    return url[slash:] if slash >= 0 else "/"


# Asking a site for its robots.txt, and for how long the answer holds.

Work = Callable[..., Awaitable[RobotsRules | None]]
_RULES_READ_IN_PLACE_BYTES = 16 * 1024
"""Larger rules of a hostile site could block the event loop for a second."""
_MOST_SITEMAPS = 1000

Headers = tuple[tuple[str, str], ...]


class RobotsAsker:
    """Fetches and parses a site's robots.txt."""

    def __init__(
        self,
        fetcher: Fetcher,
        clock: Clock,
        work: Work,
        outcome_of: Callable[[Instant, Response], Outcome],
        user_agent: str,
        *,
        greet: Callable[[FetchRobots], tuple[Headers, str | None]],
        reads_sitemaps: bool,
        secret: bytes,
    ) -> None:
        """`work` carries out a function in a thread. `greet`: the headers and the user agent of a site that
        has its own. `secret`: of the crawl, for the keys of pages."""
        self._greet = greet
        self._fetcher = fetcher
        self._clock = clock
        self._work, self._outcome_of = work, outcome_of
        self._user_agent = user_agent
        self._reads_sitemaps = reads_sitemaps
        self._secret = secret

    async def ask(self, command: FetchRobots) -> RobotsSettled:
        site = command.site
        headers, own_user_agent = self._greet(command)
        user_agent = own_user_agent or self._user_agent
        request = Request(command.url, site, headers, max_body_bytes=MAX_ROBOTS_BYTES)
        response = await self._fetcher.fetch(request)
        outcome = self._outcome_of(self._clock.now(), response)
        is_answer = response.kind is Kind.FETCHED
        if is_answer and len(response.body) >= MAX_ROBOTS_BYTES:
            outcome = structs.replace(outcome, detail=CUT)
        rules = await self._judge(response, user_agent) if is_answer else None
        now = self._clock.now()
        fresh_s = fresh_for_s(now, response.headers)
        lifetime_s = ROBOTS_LIFETIME_S if fresh_s is None else max(fresh_s, _LEAST_LIFETIME_S)
        expires_at = Instant(now + min(lifetime_s, ROBOTS_LIFETIME_S))
        text = decode_robots(response.body) if is_answer and 200 <= response.status < 300 else ""
        named = rules.sitemaps[:_MOST_SITEMAPS] if rules is not None and self._reads_sitemaps else ()
        found = (page_of(url, response.url, secret=self._secret) for url in named)
        lists = tuple(page for page in found if page is not None)
        return RobotsSettled(site, rules, expires_at, outcome, text, _leads_to(response), lists)

    async def _judge(self, response: Response, user_agent: str) -> RobotsRules | None:
        if len(response.body) <= _RULES_READ_IN_PLACE_BYTES:
            return judge(response.status, response.body, user_agent)
        return await self._work(judge, response.status, response.body, user_agent)


def _leads_to(response: Response) -> str | None:
    """The target of a redirect of robots.txt. Too many redirects count as an answer without rules."""
    location = response.header("location")
    if response.status not in REDIRECT_STATUSES or not location:
        return None
    target = page_of(location, base=response.url)
    return target.url if target is not None and target.url != response.url else None
