"""What an ordering decides: the place of a page among the pages of its site, and of a site among the
sites that are free. Lower keys go first; equal keys go in the order in which they came, so that a run
can be repeated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from headway.model.page import Page, Site

Key = float
HELD: Key = math.inf
"""The key of a page that is not handed out until a `LearningOrdering` has given it another one."""


class SiteQueue(Protocol):
    """What an ordering may know of a site: its waiting pages, as the frontier counts them."""

    @property
    def site(self) -> Site: ...

    @property
    def waiting(self) -> int:
        """How many pages of the site wait."""
        ...

    @property
    def first_key(self) -> Key:
        """The key of the page that would be taken next."""
        ...

    @property
    def first_serial(self) -> int:
        """When that page came, as a running number over the whole crawl."""
        ...


class Ordering(Protocol):
    @property
    def name(self) -> str: ...

    def page_key(self, page: Page) -> Key: ...

    def site_key(self, queue: SiteQueue) -> Key: ...


@runtime_checkable
class LearningOrdering(Ordering, Protocol):
    """An ordering that learns from the links of the pages fetched, and so changes keys already given."""

    def settled(self, page: Page, links: Sequence[Page]) -> Sequence[Page]:
        """A page that had been handed out is done with. Returns known pages whose keys are new now."""
        ...

    def is_due(self) -> bool:
        """Whether all that wait must be ordered anew before the next page is handed out."""
        ...

    def reorder(self, waiting: Sequence[Page]) -> None:
        """Learn anew. `waiting` has every page that waits, in the order in which they were found; their
        keys, and only theirs, are asked for afterwards."""
        ...
