"""robots.txt by RFC 9309: what it says to us, and what its absence means.

The groups that concern us are chosen and merged here, because protego takes a prefix of a name for a match;
what their patterns mean (longest match, wildcards, escapes) is protego's affair.
"""

from __future__ import annotations

import codecs
import math
import re
import urllib.parse
from collections.abc import Iterator

from protego import Protego

from headway.fetch.manyrules import MANY, ManyRules
from headway.model.robots import AllowAll, RobotsRules
from headway.policy.identity import product_token
from headway.units import Seconds

MAX_ROBOTS_BYTES = 500 * 1024
"""As much is read (RFC 9309 2.5); what lies beyond counts as if it were not there."""

ROBOTS_LIFETIME_S = Seconds(24 * 3600.0)
"""RFC 9309 2.4. Cache-Control is not heeded: the files that state a short age are the rarely changed ones
behind caches, and every site would pay for them with more requests."""

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LINE_END = re.compile(r"\r\n|\r|\n")
_OTHER_LINE_ENDS = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_AGENT, _ALLOW, _DISALLOW, _DELAY, _SITEMAP = "user-agent", "allow", "disallow", "crawl-delay", "sitemap"
_FIELDS = {
    **{word: word for word in (_AGENT, _ALLOW, _DISALLOW, _DELAY, _SITEMAP)},
    **dict.fromkeys(("useragent", "user agent"), _AGENT),
    **dict.fromkeys(("dissallow", "dissalow", "disalow", "diasllow", "disallaw"), _DISALLOW),
    **dict.fromkeys(("crawl delay", "crawldelay"), _DELAY),
    **dict.fromkeys(("sitemaps", "site-map"), _SITEMAP),
}
"""The fields that count, with the misspellings that robots.txt files are full of."""
_WITHOUT_COLON = re.compile(rf"({'|'.join(sorted(_FIELDS, key=len, reverse=True))})\s+(\S.*)", re.IGNORECASE)
_EVERYBODY = "*"


class ParsedRules:
    """The rules of one site for one robot. Implements `model.robots.RobotsRules`."""

    __slots__ = ("_many", "_patterns", "crawl_delay_s", "sitemaps")

    def __init__(
        self, rules: list[tuple[str, str]], delay_s: Seconds | None, sitemaps: tuple[str, ...]
    ) -> None:
        self.crawl_delay_s = delay_s
        self.sitemaps = sitemaps
        # Protego ends a line at more characters than the RFC does; escaped, they mean the same.
        lines = [f"{field}: {_OTHER_LINE_ENDS.sub(_escaped, value)}" for field, value in rules]
        self._many = ManyRules.sorted_out(lines) if len(lines) > MANY else None
        is_few = bool(lines) and self._many is None
        self._patterns = Protego.parse("\n".join(["User-agent: *", *lines])) if is_few else None

    def allows(self, url: str) -> bool:
        """Whether a URL of the site, or a path, may be asked for."""
        path = _path_of(url)
        # Protego gets a host that it cannot stumble over; only path and query matter.
        if self._many is not None:
            return self._many.can_fetch("http://site" + path, path)
        if self._patterns is None:
            return True
        allowed: bool = self._patterns.can_fetch("http://site" + path, _EVERYBODY)
        return allowed


def judge(status: int, body: bytes, user_agent: str) -> RobotsRules | None:
    """What an answer to a request for robots.txt means; None denies everything until it can be had.

    The caller follows up to five redirects (2.3.1.2); one more means that there are no rules. So do the
    4xx (2.3.1.3), except 429, which says nothing about rules but that we are too quick.
    """
    if 200 <= status < 300:
        return rules_from_text(decode_robots(body), user_agent)
    if 300 <= status < 500 and status != 429:
        return AllowAll()
    return None


def decode_robots(body: bytes) -> str:
    """The text of a robots.txt, cut behind the last whole line within the limit. Never raises."""
    if len(body) > MAX_ROBOTS_BYTES:
        body = body[:MAX_ROBOTS_BYTES]
        body = body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1]
    for mark, encoding in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace")
    return body.decode("utf-8", "replace")


def rules_from_text(text: str, user_agent: str) -> RobotsRules:
    """The rules for us: of the groups that name us, merged, or else of those for everybody."""
    ours = product_token(user_agent)
    rules: dict[str, list[tuple[str, str]]] = {ours: [], _EVERYBODY: []}
    delays_s: dict[str, list[Seconds]] = {ours: [], _EVERYBODY: []}
    sitemaps: dict[str, None] = {}
    named: set[str] = set()
    group: set[str] = set()
    group_has_rules = False
    for field, value in _records(text.removeprefix("\ufeff")):
        if field == _AGENT:
            if group_has_rules:
                group, group_has_rules = set(), False
            group.add(product_token(value).rstrip("*") or _EVERYBODY)
            named.update(group)
        elif field == _SITEMAP:
            sitemaps.setdefault(value)
        elif field == _DELAY:
            # Not a rule of the RFC, so it must not end a run of user-agent lines (2.2.4).
            for name in group & delays_s.keys():
                delays_s[name] += _delay_s(value)
        else:
            group_has_rules = True
            for name in group & rules.keys():
                rules[name].append((field, value))
    us = ours if ours in named else _EVERYBODY
    return ParsedRules(rules[us], max(delays_s[us], default=None), tuple(sitemaps))


def _records(text: str) -> Iterator[tuple[str, str]]:
    for line in _LINE_END.split(text):
        content = line.partition("#")[0].strip().replace("\0", "")
        name, colon, value = content.partition(":")
        field = _FIELDS.get(name.strip().lower()) if colon else None
        if field is not None:
            yield field, value.strip()
        elif match := _WITHOUT_COLON.fullmatch(content):
            yield _FIELDS[match[1].lower()], match[2].strip()


def _delay_s(value: str) -> list[Seconds]:
    try:
        delay_s = float(value)
    except ValueError:
        return []
    # After a day the rules are asked for anew, so that nothing longer has a meaning.
    return [Seconds(min(delay_s, ROBOTS_LIFETIME_S))] if math.isfinite(delay_s) and delay_s >= 0 else []


def _escaped(match: re.Match[str]) -> str:
    return urllib.parse.quote(match[0])


def _path_of(url: str) -> str:
    """Path and query of an absolute URL; a path is given back."""
    if url.startswith("/"):
        return url
    slash = url.find("/", url.find("://") + 3)
    return url[slash:] if slash >= 0 else "/"
