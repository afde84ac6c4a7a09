"""What a list of pages says: which pages, when each was changed, and where there is more of the list."""

from __future__ import annotations

import datetime as dt
import email.utils
from typing import NamedTuple

import msgspec

from headway.units import Instant

MAX_ENTRIES = 50_000
"""As sitemaps.org has it. The first so many count."""


class Entry(NamedTuple):
    href: str
    modified_at: Instant | None = None


class Listing(msgspec.Struct):
    pages: list[Entry]
    lists: list[Entry]
    """Further lists: the parts of an index, the next page of a feed."""
    is_feed: bool = False
    base: str | None = None
    problem: str = ""
    """What was wrong with it, where the rest could not be read."""

    @property
    def is_full(self) -> bool:
        return len(self.pages) + len(self.lists) >= MAX_ENTRIES


def instant_of(text: str) -> Instant | None:
    """A date as sitemaps and feeds write it: `2005`, `2005-01-01T07:30Z`, `Thu, 05 Jan 2017 12:34:50 GMT`."""
    text = text.strip()
    if not text or len(text) > 64:
        return None
    try:
        if text[:4].isdigit():
            date = dt.datetime.fromisoformat(text + {4: "-01-01", 7: "-01"}.get(len(text), ""))
        else:
            date = email.utils.parsedate_to_datetime(text)
        if date.tzinfo is None:
            date = date.replace(tzinfo=dt.UTC)
        return Instant(date.timestamp())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
