"""What a page asks of robots: META robots and X-Robots-Tag, read alike.

A directive for all robots and one for us count together, so that the stricter holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_WITH_VALUE = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_SEPARATORS = re.compile(r"[\s,;]+")


class Directives(NamedTuple):
    noindex: bool = False
    nofollow: bool = False

    def __or__(self, other: object) -> Directives:
        if not isinstance(other, Directives):
            return NotImplemented
        return Directives(self.noindex or other.noindex, self.nofollow or other.nofollow)


NOTHING_ASKED = Directives()


def of_words(content: str) -> Directives:
    """The directives in `noindex, nofollow`, whatever their case and separators."""
    words = _SEPARATORS.split(content.lower())
    if "none" in words:
        return Directives(noindex=True, nofollow=True)
    return Directives("noindex" in words, "nofollow" in words)


def of_meta(name: str, content: str, product_token: str) -> Directives:
    """Those of a META element, if its name means all robots or us."""
    called = name.strip().lower()
    if called == "robots" or called == product_token.lower():
        return of_words(content)
    return NOTHING_ASKED


def of_headers(values: Iterable[str], product_token: str) -> Directives:
    """Those of X-Robots-Tag headers. A robot's name before a colon holds until the header ends."""
    asked = NOTHING_ASKED
    for value in values:
        is_for_us = True
        for part in value.split(","):
            words = part
            name, colon, rest = part.partition(":")
            name = name.strip().lower()
            # A directive's own value, or the time of day in a date, has a colon as well.
            if colon and name not in _WITH_VALUE and " " not in name:
                is_for_us = name in {"robots", "*", product_token.lower()}
                words = rest
            if is_for_us:
                asked |= of_words(words)
    return asked
