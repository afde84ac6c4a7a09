"""What a site's robots.txt allows, as a value that the machine can ask without I/O."""

from __future__ import annotations

from typing import Protocol

from headway.units import Seconds


class RobotsRules(Protocol):
    """Rules for our user agent, parsed by `fetch.robots` (or made up by a test)."""

    @property
    def crawl_delay_s(self) -> Seconds | None: ...

    @property
    def sitemaps(self) -> tuple[str, ...]: ...

    def allows(self, url: str) -> bool: ...


class AllowAll:
    """No robots.txt, or one that says nothing to us."""

    crawl_delay_s: Seconds | None = None
    sitemaps: tuple[str, ...] = ()

    def allows(self, url: str) -> bool:
        return True
