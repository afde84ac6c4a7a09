"""What an ordering decides: the place of a page among the pages of its site, and of a site among the
sites that are free. Lower keys go first; equal keys go in the order in which they came, so that a run
can be repeated."""

from __future__ import annotations

from typing import Protocol

from headway.model.page import Page, Site

Key = float


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
