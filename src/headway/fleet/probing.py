"""How far sites are that others hold: a connection to each, opened and closed again without a request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from headway.model.page import Site

_OUT_OF_REACH_S = 60.0
"""What cannot be reached from here is farther than anything, and is not tried again."""

Measure = Callable[[Site], Awaitable[float | None]]


class Probes:
    def __init__(self, measure: Measure | None) -> None:
        self._measure = measure
        self._under_way: dict[Site, asyncio.Task[None]] = {}
        self._found: list[tuple[Site, float]] = []

    def ask(self, sites: Iterable[Site]) -> None:
        if self._measure is None:
            return
        for site in sites:
            if site not in self._under_way:
                self._under_way[site] = asyncio.get_running_loop().create_task(self._probe(site))

    def take(self) -> list[tuple[Site, float]]:
        """What was measured since."""
        found, self._found = self._found, []
        return found

    def close(self) -> None:
        for task in self._under_way.values():
            task.cancel()

    async def _probe(self, site: Site) -> None:
        assert self._measure is not None
        try:
            seconds = await self._measure(site)
            self._found.append((site, _OUT_OF_REACH_S if seconds is None else seconds))
        finally:
            del self._under_way[site]
