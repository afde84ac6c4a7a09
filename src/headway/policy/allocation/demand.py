"""What a crawl asks for each site, and the same in columns, which is what is reckoned with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import is_not

import msgspec
import numpy as np

from headway.model.page import Site
from headway.policy.allocation.capacity import FloatArray, IntArray, Timetable
from headway.policy.allocation.feasibility import Work
from headway.units import BytesPerSecond, Instant


class SiteDemand(msgspec.Struct, frozen=True, gc=False):
    site: Site
    remaining_bytes: float
    """Still to come, xi and a margin for what is not known included; a site with nothing left is skipped."""
    deadline_at: Instant | None = None
    cap_bytes_per_s: BytesPerSecond = BytesPerSecond(math.inf)
    weight: float = 1.0


class DemandColumns:
    """Demands as arrays. A crawl asks again and again with mostly the same values, and those are kept:
    only a demand that is another object than last time, at the same place, is read anew."""

    def __init__(self) -> None:
        self._demands: Sequence[SiteDemand] = ()
        self._number_by_site: dict[Site, int] = {}
        self.sites: list[Site] = []
        self.numbers: IntArray = np.zeros(0, dtype=np.int64)
        """Numbers that stay with their sites, whoever comes and goes."""
        self._left = self._cap = self._due_at = self._weight = np.zeros(0)

    def read(self, demands: Sequence[SiteDemand]) -> None:
        """Take in what is asked for now; sites that want nothing or can take nothing are left out."""
        changed = self._changed(demands)
        if changed is None:
            self._read_all(demands)
        else:
            news = [demands[index] for index in changed.tolist()]
            if [demand.site for demand in news] != [self.sites[index] for index in changed.tolist()]:
                self._read_all(demands)
            else:
                self._left[changed], self._cap[changed], self._due_at[changed], self._weight[changed] = (
                    _columns(news)
                )
                self._demands = demands
        if not np.all((self._left > 0) & (self._cap > 0)):
            self._read_all([one for one in demands if one.remaining_bytes > 0 and one.cap_bytes_per_s > 0])

    def work(self, now: Instant, link: Timetable, seats: int | None) -> Work:
        return Work.of(
            self._left.copy(),
            self._cap,
            self._due_at - now,
            weight=self._weight.copy(),
            link=link,
            seats=max(len(self.sites), 1) if seats is None else seats,
        )

    @property
    def cap_bytes_per_s(self) -> FloatArray:
        return self._cap

    def _changed(self, demands: Sequence[SiteDemand]) -> IntArray | None:
        """The places whose demand is another object than last time; None when that is most of them."""
        if len(demands) != len(self._demands):
            return None
        fresh = np.fromiter(map(is_not, demands, self._demands), dtype=bool, count=len(demands))
        places = np.flatnonzero(fresh)
        return places if len(places) < len(demands) // 2 else None

    def _read_all(self, demands: Sequence[SiteDemand]) -> None:
        sites = [demand.site for demand in demands]
        if sites != self.sites:
            known = self._number_by_site
            self.numbers = np.array([known.setdefault(site, len(known)) for site in sites], dtype=np.int64)
            self.sites = sites
        self._left, self._cap, self._due_at, self._weight = _columns(demands)
        self._demands = demands


def _columns(demands: Sequence[SiteDemand]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    due_at = [math.inf if demand.deadline_at is None else demand.deadline_at for demand in demands]
    return (
        np.array([demand.remaining_bytes for demand in demands], dtype=np.float64),
        np.array([demand.cap_bytes_per_s for demand in demands], dtype=np.float64),
        np.array(due_at, dtype=np.float64),
        np.array([demand.weight for demand in demands], dtype=np.float64),
    )
