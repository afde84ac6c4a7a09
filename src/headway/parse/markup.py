"""What the markup of a page says."""

from __future__ import annotations

import msgspec

from headway.parse.directives import NOTHING_ASKED, Directives
from headway.parse.fingerprint import NO_FINGERPRINT


class Markup(msgspec.Struct):
    """What was found, hrefs still as they are written."""

    links: list[tuple[str, bool]]
    """The href and whether it is marked `rel=nofollow`, in document order."""
    base: str | None = None
    canonical: str | None = None
    title: str = ""
    asked: Directives = NOTHING_ASKED
    feeds: list[str] = msgspec.field(default_factory=list)
    moves_on: bool = False
    """It has a refresh to another page: what it says itself is beside the point."""
    fingerprint: int = NO_FINGERPRINT
