"""robots.txt files that are huge, late, circular or rubbish, and sitemaps that explode."""

from __future__ import annotations

import functools
import gzip
import itertools
from collections.abc import Callable

from tests.support.chaos.line import Line, head, html, whole
from tests.support.chaos.scripts import goes_on, says, says_and_resets, says_and_stalls
from tests.support.chaos.site import ChaosSite, Script

from headway.model.page import Kind

_TEXT = "Content-Type: text/plain"
_HUGE_BYTES = 100_000_000
_RULES = b"User-agent: *\nDisallow: /secret\n"
_FILLER = b"Disallow: /nowhere/in/particular\n" * 1000
_RULE_COUNT = 12_000
_ENTITY_BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE urlset [
<!ENTITY a "http://127.0.0.1/never/"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;"><!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;">
<!ENTITY e "&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;"><!ENTITY f "&e;&e;&e;&e;&e;&e;&e;&e;&e;&e;">
<!ENTITY g SYSTEM "file:///etc/passwd">]>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>&f;&g;</loc></url></urlset>
"""


async def _home(line: Line) -> None:
    """Leads to what the rules forbid, to see whether they were read."""
    await line.send(whole(html("Home", f"<a href=/secret>{line.path}</a>")))


def _with_sitemap(make: Callable[[], bytes], content_type: str = "application/xml") -> Script:
    async def answer(line: Line) -> None:
        if line.path.startswith("/sitemap"):
            await line.send(whole(make(), f"Content-Type: {content_type}"))
        else:
            await line.send(whole(html("Home", line.path)))

    return answer


@functools.cache
def _packed_sitemap() -> bytes:
    return gzip.compress(b"<urlset>" + bytes(64 * 1024 * 1024), 6, mtime=0)


@functools.cache
def _nested_sitemap() -> bytes:
    return b"<urlset>" + b"<url>" * 100_000


@functools.cache
def _long_sitemap() -> bytes:
    return b"<urlset>" + b"<url><loc>http://127.0.0.1/never</loc></url>" * 200_000 + b"</urlset>"


async def _endless_index(line: Line) -> None:
    """Each list names a further one, and itself."""
    if line.path.startswith("/sitemap"):
        hop = int(line.path.removeprefix("/sitemap").removesuffix(".xml") or 0)
        names = "".join(
            f"<sitemap><loc>{line.origin}/sitemap{number}.xml</loc></sitemap>" for number in (hop, hop + 1)
        )
        await line.send(whole(f"<sitemapindex>{names}</sitemapindex>".encode(), "Content-Type: text/xml"))
    else:
        await line.send(whole(html("Home", line.path)))


def _names_sitemap(path: str) -> Script:
    async def answer(line: Line) -> None:
        await line.send(whole(f"Sitemap: {line.origin}{path}\n".encode(), _TEXT))

    return answer


def _mapped(
    name: str,
    does: str,
    make: Callable[[], bytes],
    path: str = "/sitemap.xml",
    content_type: str = "application/xml",
    *,
    ends: Kind = Kind.LISTING,
) -> ChaosSite:
    return ChaosSite(
        name=name,
        does=does,
        bad=Kind.FETCHED,
        robots=_names_sitemap(path),
        answer=_with_sitemap(make, content_type),
        prepare=make,
        leads_to={path: ends},
        is_heavy=ends is Kind.LISTING,
    )


def _text(body: bytes) -> Script:
    return says(whole(body, _TEXT))


def _leads(location: str) -> Script:
    async def answer(line: Line) -> None:
        await line.send(whole(b"", f"Location: {location}", status="301 Moved Permanently"))

    return answer


async def _circle(line: Line) -> None:
    """Only the first of it is at /robots.txt; the site's other answers are below."""
    await line.send(whole(b"", "Location: /rules/1", status="302 Found"))


async def _circle_beyond(line: Line) -> None:
    if line.path.startswith("/rules/"):
        hop = int(line.path.removeprefix("/rules/"))
        await line.send(whole(b"", f"Location: /rules/{hop + 1}", status="302 Found"))
    else:
        await line.send(whole(html("Home", line.path)))


async def _trickle(line: Line) -> None:
    rules = _RULES * 20  # more than anybody waits for
    await line.send(head(_TEXT, length=len(rules)))
    await line.trickle(rules, 0.2)


def _lost(name: str, does: str, robots: Script, because: Kind) -> ChaosSite:
    return ChaosSite(
        name=name,
        does=does,
        bad=Kind.ROBOTS_UNREACHABLE,
        after=Kind.ROBOTS_UNREACHABLE,
        because=because,
        robots=robots,
        answer=_home,
    )


def _read(name: str, does: str, robots: Script, secret: Kind, *, is_heavy: bool = False) -> ChaosSite:
    return ChaosSite(
        name=name,
        does=does,
        bad=Kind.FETCHED,
        robots=robots,
        answer=_home,
        leads_to={"/secret": secret},
        is_heavy=is_heavy,
    )


SITES = (
    _lost("robots-stall", "never answers for robots.txt", says_and_stalls(b""), Kind.TIMEOUT_FIRST_BYTE),
    _lost("robots-trickle", "sends robots.txt a byte at a time", _trickle, Kind.TIMEOUT_TOTAL),
    _lost("robots-reset", "resets when asked for robots.txt", says_and_resets(b""), Kind.RESET),
    _lost("robots-error", "fails to give robots.txt", says(whole(b"", status="500 Oops")), Kind.SERVER_ERROR),
    _read(
        "robots-huge",
        f"has a robots.txt of {_HUGE_BYTES // 10**6} MB",
        goes_on(
            head(_TEXT, length=_HUGE_BYTES) + _RULES, itertools.repeat(_FILLER, _HUGE_BYTES // len(_FILLER))
        ),
        Kind.ROBOTS_DENIED,
        is_heavy=True,
    ),
    _read(
        "robots-many-rules",
        f"has a robots.txt of {_RULE_COUNT:,} wildcard rules",
        _text(_RULES + b"".join(b"Disallow: /%d*a*b*c*d*e$\n" % number for number in range(_RULE_COUNT))),
        Kind.ROBOTS_DENIED,
        is_heavy=True,
    ),
    _read("robots-to-itself", "redirects robots.txt to itself", _leads("/robots.txt"), Kind.FETCHED),
    _read("robots-binary", "sends octets as robots.txt", _text(bytes(range(256)) * 40), Kind.FETCHED),
    _read("robots-page", "sends a page as robots.txt", says(whole(html("Home"))), Kind.FETCHED),
    _read(
        "robots-bare-returns",
        "ends the lines of robots.txt with CR, and has NULs",
        _text(b"\xef\xbb\xbf" + _RULES.replace(b"\n", b"\r").replace(b"gent", b"g\0ent")),
        Kind.ROBOTS_DENIED,
    ),
    ChaosSite(
        name="robots-redirects-endless",
        does="redirects robots.txt to ever new places",
        bad=Kind.FETCHED,
        robots=_circle,
        answer=_circle_beyond,
    ),
    _mapped(
        "sitemap-entity-bomb",
        "names a sitemap of a million URLs made of entities",
        lambda: _ENTITY_BOMB,
        ends=Kind.UNWANTED_TYPE,
    ),
    _mapped("sitemap-nested", "names a sitemap nested 100,000 deep", _nested_sitemap),
    _mapped("sitemap-long", "names a sitemap of the same URL 200,000 times", _long_sitemap),
    _mapped(
        "sitemap-gzip-bomb",
        "names a sitemap of 64 MiB in a few KB",
        _packed_sitemap,
        "/sitemap.xml.gz",
        "application/gzip",
    ),
    ChaosSite(
        name="sitemap-endless-index",
        does="names lists of lists without end",
        bad=Kind.FETCHED,
        robots=_names_sitemap("/sitemap0.xml"),
        answer=_endless_index,
        leads_to={f"/sitemap{number}.xml": Kind.LISTING for number in range(6)},
    ),
)
