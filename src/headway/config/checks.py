"""What a text or number in a job must look like. Each check gives its value back, or says what is wrong."""

from __future__ import annotations

import math
import re

from headway.errors import JobError, UnitError
from headway.fetch.proxy import parse_proxy
from headway.parse.url import page_of
from headway.units import Bytes, BytesPerSecond, Seconds, parse_duration, parse_rate, parse_size

LONGEST_S = 100 * 365 * 86400.0
"""A hundred years: what is longer was meant otherwise."""
_LARGEST = 2**63 - 1
"""The largest whole number that the store keeps."""
_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+", re.ASCII)
_VISIBLE = re.compile(r"[\x20-\x7e]+")


def rate(text: str) -> BytesPerSecond:
    value = parse_rate(text)
    if not value > 0:
        raise UnitError(f"{text!r} would let nothing through; it must be above zero")
    return value


def size(text: str) -> Bytes:
    value = parse_size(text)
    if not 0 < value <= _LARGEST:
        raise UnitError(f"{text!r} is " + ("too large to be a size" if value else "not above zero"))
    return value


def pause(text: str) -> Seconds:
    """A time to wait, which may be none."""
    value = parse_duration(text)
    if value > LONGEST_S:
        raise UnitError(f"{text!r} is more than a hundred years")
    return value


def timeout(text: str) -> Seconds:
    value = pause(text)
    if not value > 0:
        raise UnitError(f"{text!r} leaves no time at all")
    return value


def count(number: int) -> int:
    if not 1 <= number <= _LARGEST:
        raise UnitError(
            f"{number} is not a whole number above zero" + (" and below 2^63" if number > 0 else "")
        )
    return number


def depth(number: int) -> int:
    if not 0 <= number <= _LARGEST:
        raise UnitError(
            f"{number} is not a number of links from a seed: 0 takes the seeds alone, 1 what they link to"
        )
    return number


def weight(number: float) -> float:
    if not (number > 0 and math.isfinite(number)):
        raise UnitError(f"{number:g} is not a number above zero")
    return number


def user_agent(text: str) -> str:
    """It goes into a header as it is, and its first word is what robots.txt knows us by."""
    if not _VISIBLE.fullmatch(text) or text != text.strip():
        raise UnitError(
            f"{text!r} is not one line of plain ASCII such as 'mybot/1.0 (+https://example.org/bot)'"
        )
    return text


def proxy(url: str) -> str:
    try:
        parse_proxy(url)
    except JobError:
        raise UnitError(
            f"{without_login(url)!r} is not a proxy such as 'http://proxy.example:3128'; "
            "only http:// proxies are spoken to (they carry https as well)"
        ) from None
    return url


def without_login(url: str) -> str:
    """A URL as others may see it: without user and password, if it has them."""
    scheme = url[: url.find("://") + 3] if "://" in url else ""
    return scheme + url.removeprefix(scheme).rpartition("@")[2]


def regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as problem:
        raise UnitError(f"{text!r} is not a regular expression: {problem}") from None
    return text


def media_type(text: str) -> str:
    if text != "*" and not _MEDIA_TYPE.fullmatch(text):
        raise UnitError(f"{text!r} is not a media type such as 'text/html', nor '*' for all")
    return text.lower()


def host(text: str) -> str:
    """A host with or without a port, as it stands in a URL."""
    page = page_of(f"http://{text}/") if text and not re.search(r"[/\\?#@\s]", text) else None
    if page is None:
        raise UnitError(f"{text!r} is not a host such as 'www.example.org' or 'www.example.org:8080'")
    return page.site.partition("://")[2]


def suffix(text: str) -> str:
    """A domain with all that lies under it, with or without a dot in front."""
    return host(text.removeprefix("."))


def pattern(text: str) -> str:
    """Scope's path rules speak robots.txt, in which a rule begins at the path."""
    if not text.startswith(("/", "*")):
        raise UnitError(f"{text!r} is not a path such as '/papers/' or '*.pdf$'; it begins with / or *")
    return text
