"""Reading the response headers that carry more than a word. Nothing here raises on what a server sends."""

from __future__ import annotations

import email.utils
import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from headway.units import Instant, Seconds

_TYPE = re.compile(r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*(?:;|,|$)")
_CHARSET = re.compile(r""";\s*charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;,"']+))""", re.IGNORECASE)
_SECONDS = re.compile(r"\s*\+?(\d{1,18})(?:\.\d*)?\s*", re.ASCII)
_LINK = re.compile(r"""<([^<>]*)>((?:\s*;\s*[^\s=;,<]+\s*(?:=\s*(?:"[^"]*"|[^\s;,"<]*))?)*)""")
_PARAMETER = re.compile(r""";\s*([^\s=;,]+)\s*(?:=\s*(?:"([^"]*)"|([^\s;,"]*)))?""")


class LinkHeader(NamedTuple):
    href: str
    rels: frozenset[str]
    media_type: str


@lru_cache(maxsize=256)
def media_type_of(content_type: str) -> str:
    """`text/html` of `Text/HTML; charset=utf-8`; empty when there is none."""
    match = _TYPE.match(content_type)
    return match[1].lower() if match else ""


@lru_cache(maxsize=256)
def charset_of(content_type: str) -> str:
    """The charset parameter as it is written; empty when there is none."""
    match = _CHARSET.search(content_type)
    return (match[match.lastindex or 0]).strip() if match and match.lastindex else ""


def retry_after_s(now: Instant, value: str) -> Seconds | None:
    """How long a Retry-After header asks us to wait: a number of seconds, or a date (past dates: 0)."""
    if match := _SECONDS.fullmatch(value):
        return Seconds(float(match[1]))
    try:
        date = email.utils.parsedate_to_datetime(value)
        wait_s = date.timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return Seconds(max(0.0, wait_s)) if math.isfinite(wait_s) else None


def links_of(values: Iterable[str]) -> list[LinkHeader]:
    """The links of Link headers (RFC 8288), in order."""
    found = []
    for value in values:
        for href, parameters in _LINK.findall(value):
            named: dict[str, str] = {}
            for name, quoted, plain in _PARAMETER.findall(parameters):
                named.setdefault(name.lower(), quoted or plain)
            rels = frozenset(named.get("rel", "").lower().split())
            found.append(LinkHeader(href.strip(), rels, media_type_of(named.get("type", ""))))
    return found
