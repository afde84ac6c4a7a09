"""What watching for traps is told, and what it says of a page. Apart from `watch`, which is compiled."""

from __future__ import annotations

import enum

import msgspec

from headway.model.page import Site
from headway.policy.traps.family import Family


class Mirroring(enum.StrEnum):
    REPORT = "report"
    SKIP = "skip"
    IGNORE = "ignore"


class Lesson(msgspec.Struct, frozen=True):
    """What a page that has come means for its links."""

    site: Site
    shape: str
    by_shape: Family | None
    """The pages whose addresses have the same shape; None if nothing varies in it."""
    by_content: Family | None
    """The pages that hardly differ from it; None if there are no others."""
