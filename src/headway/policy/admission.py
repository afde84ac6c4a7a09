"""Which downloads may begin: admission by their predicted rates (diligenti2004), and connections as a budget.

A server that sends a byte now and then costs nothing, and could hold every connection of a crawl. So no
server and no registered domain has more than its share; once a server has stalled, part of the connections is
kept for sites with a good record; and while sites wait, only some of the connections may make no progress.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import heappop, heappush
from typing import Generic, TypeVar

from headway.model.page import SUCCESS, Kind, Outcome, Site
from headway.units import BytesPerSecond, Instant, Seconds

Id = TypeVar("Id", bound=Hashable)

PATIENCE_S = Seconds(30.0)
_LEAST_ROOM = 0.1
"""Of the bound: with less a download would only prolong the others."""


class Admission(Generic[Id]):
    """Chooses the downloads that may start so that the predicted rates stay under the bound (diligenti2004).

    CB is the sum of the predicted rates of all running downloads. The queue is searched from its head to a
    fixed depth, and every download that still fits is started. A download that does not fit is not skipped
    forever: after `patience_s` everything else waits until it can start, alone if necessary.

    With `paced` a pacer holds all downloads together to the bound, as in a crawl. A download then takes at
    most what the others leave, so the first in the queue starts where none fits and a part is left.
    """

    def __init__(
        self,
        bound_bytes_per_s: BytesPerSecond,
        *,
        max_depth: int = 6,
        patience_s: Seconds = PATIENCE_S,
        paced: bool = False,
    ) -> None:
        if max_depth < 1:
            raise ValueError(f"max_depth must be at least 1, not {max_depth}")
        self.bound_bytes_per_s = bound_bytes_per_s
        """May be changed at any time; running downloads continue."""
        self.max_depth = max_depth
        self._patience_s = patience_s
        self._least_room = _LEAST_ROOM if paced else 1.0
        self._under_way: dict[Id, float] = {}
        self._committed = 0.0
        self._passed_over_at: dict[Id, Instant] = {}

    @property
    def committed_bytes_per_s(self) -> BytesPerSecond:
        """The paper's CB."""
        return BytesPerSecond(self._committed)

    def admit(self, now: Instant, candidates: Sequence[tuple[Id, BytesPerSecond]]) -> list[int]:
        """The indexes of the candidates (best first, with their predicted rates) to start now.

        Only the first `max_depth` are considered. The caller confirms each download that it starts with
        `started`. As long as something was chosen, a further call may choose more.
        """
        # The paper prints "until CB <= L", but means that the scan continues while CB < L and d < maxd.
        window = candidates[: self.max_depth]
        starving = self._starving(now, window)
        if starving is not None:
            rate = window[starving][1]
            fits = self._committed + rate <= self.bound_bytes_per_s or self._has_room(self._committed)
            return [starving] if fits or not self._under_way else []
        chosen = []
        committed = self._committed
        alone = not self._under_way
        for index, (_, rate) in enumerate(window):
            # If nothing is running, the head starts whatever its rate: it would never fit otherwise.
            if committed + rate <= self.bound_bytes_per_s or (alone and index == 0):
                chosen.append(index)
                committed += rate
        if not chosen and window and self._has_room(committed):
            chosen.append(0)
        self._remember_passed_over(now, window, chosen)
        return chosen

    def started(self, download: Id, predicted_bytes_per_s: BytesPerSecond) -> None:
        if download in self._under_way:
            raise ValueError(f"{download!r} has already started")
        rate = float(predicted_bytes_per_s)
        if self._least_room < 1.0 and self._under_way:
            rate = min(rate, max(0.0, self.bound_bytes_per_s - self._committed))
        self._under_way[download] = rate
        self._committed += rate
        self._passed_over_at.pop(download, None)

    def ended(self, download: Id) -> None:
        self._committed -= self._under_way.pop(download)
        if not self._under_way:
            # Sums of floats drift, so the sum is reset whenever nothing is running.
            self._committed = 0.0

    def _has_room(self, committed: float) -> bool:
        """Whether a download can start at what is left of the bound."""
        return committed <= (1.0 - self._least_room) * self.bound_bytes_per_s and self._least_room < 1.0

    def _starving(self, now: Instant, window: Sequence[tuple[Id, BytesPerSecond]]) -> int | None:
        """The index of the download skipped for the longest time, if that is at least `patience_s`."""
        waited = [
            (self._passed_over_at[download], index)
            for index, (download, _) in enumerate(window)
            if download in self._passed_over_at
        ]
        if not waited:
            return None
        since, index = min(waited)
        return index if now - since >= self._patience_s else None

    def _remember_passed_over(
        self, now: Instant, window: Sequence[tuple[Id, BytesPerSecond]], chosen: Sequence[int]
    ) -> None:
        before = self._passed_over_at
        self._passed_over_at = {
            download: before.get(download, now)
            for index, (download, _) in enumerate(window)
            if index not in chosen
        }


class NaiveController:
    """The controller of Shkapenyuk and Suel, the baseline in figure 3 of diligenti2004.

    It stops a fetcher when the measured bandwidth is above the bound and starts one when it is below. It
    oscillates, because the measurement lags behind each change.
    """

    def __init__(self, bound_bytes_per_s: BytesPerSecond, *, most_fetchers: int) -> None:
        if most_fetchers < 1:
            raise ValueError(f"most_fetchers must be at least 1, not {most_fetchers}")
        self.bound_bytes_per_s = bound_bytes_per_s
        self._most = most_fetchers
        self._fetchers = 1

    @property
    def fetchers(self) -> int:
        """How many fetchers may run now."""
        return self._fetchers

    def measured(self, rate_bytes_per_s: BytesPerSecond) -> int:
        """Record the bandwidth of the last period. Returns the number of fetchers for the next one."""
        if rate_bytes_per_s > self.bound_bytes_per_s:
            self._fetchers = max(0, self._fetchers - 1)
        elif rate_bytes_per_s < self.bound_bytes_per_s:
            self._fetchers = min(self._most, self._fetchers + 1)
        return self._fetchers


_KEPT_PART = 4
"""One connection in this many is kept for sites with a good record."""
_LEAST_WITH_RESERVE = 8
_STALLS_COUNT_S = 600.0
"""How long after a stalled answer connections are kept. In a crawl without such servers none is idle."""
_SLOW_ANSWER_S = 20.0
_STALLED_PART = 4
"""While sites wait, one connection in this many may make no progress."""
_LEAST_SHARE = 16
_SHARE_PART = 4
_UNPROVEN = "unproven"

STALLS = frozenset({Kind.TIMEOUT_CONNECT, Kind.TIMEOUT_FIRST_BYTE, Kind.TIMEOUT_IDLE, Kind.TIMEOUT_TOTAL})
_GOOD = SUCCESS | {Kind.MISSING, Kind.LISTING, Kind.UNWANTED_TYPE, Kind.REFUSED}


def default_share(most: int) -> int:
    """The connections of one server or registered domain, where the job does not say."""
    return max(_LEAST_SHARE, most // _SHARE_PART)


def is_slow(outcome: Outcome) -> bool:
    """Whether an answer held its connection for long, other than because of our own bound."""
    return outcome.kind in STALLS or outcome.duration_s - outcome.held_s > _SLOW_ANSWER_S


def is_good(outcome: Outcome) -> bool:
    """Whether a site that answered like this has a good record."""
    return outcome.kind in _GOOD and not is_slow(outcome)


class ConnectionBudget:
    """Counts the connections of servers, of registered domains and of sites without a good record, and keeps
    the sites that wait because one of these groups has its share, in order.

    All costs are those of the site in question, however many wait.
    """

    def __init__(self, most: int, per_server: int | None = None, per_domain: int | None = None) -> None:
        """None: no limit."""
        self._most = most
        self._per_server = per_server
        self._per_domain = per_domain
        self._stalled_at = -_STALLS_COUNT_S
        self._in_use: dict[str, int] = {}
        self._groups: dict[Site, list[str]] = {}
        """Of the sites that have a connection."""
        self._waiting: dict[str, list[tuple[float, int, Site]]] = {}

    def learn(self, now: Instant, outcome: Outcome) -> None:
        if is_slow(outcome):
            self._stalled_at = now

    def full_group(self, now: Instant, domain: str, address: str, *, is_proven: bool) -> str | None:
        """The group that has its share already, so that the site has to wait; None: it may start."""
        in_use = self._in_use.get
        if self._per_domain is not None and in_use(domain, 0) >= self._per_domain:
            return domain
        if self._per_server is not None and address and in_use(address, 0) >= self._per_server:
            return address
        if not is_proven and in_use(_UNPROVEN, 0) >= self._most_unproven(now):
            return _UNPROVEN
        return None

    def _most_unproven(self, now: Instant) -> int:
        has_reserve = self._most >= _LEAST_WITH_RESERVE and now - self._stalled_at < _STALLS_COUNT_S
        return self._most - self._most // _KEPT_PART if has_reserve else self._most

    def start(self, site: Site, domain: str, address: str, *, is_proven: bool) -> None:
        """The site takes a connection."""
        groups = [domain] if address in {"", domain} else [domain, address]
        if not is_proven:
            groups.append(_UNPROVEN)
        self._release(site)
        self._groups[site] = groups
        for group in groups:
            self._in_use[group] = self._in_use.get(group, 0) + 1

    def wait(self, group: str, key: float, serial: int, site: Site) -> None:
        """The site waits until a connection of the group is free; `key` and `serial` are its place."""
        heappush(self._waiting.setdefault(group, []), (key, serial, site))

    def end(self, site: Site) -> list[Site]:
        """The site gives its connection back. Returns the sites that may be tried again: two for each group,
        so that a share that has grown is used."""
        freed: list[Site] = []
        for group in self._release(site):
            waiting = self._waiting.get(group)
            if waiting is not None:
                freed += [heappop(waiting)[2] for _ in range(min(2, len(waiting)))]
                if not waiting:
                    del self._waiting[group]
        return freed

    def _release(self, site: Site) -> list[str]:
        groups = self._groups.pop(site, [])
        for group in groups:
            if self._in_use[group] > 1:
                self._in_use[group] -= 1
            else:
                del self._in_use[group]
        return groups

    def most_stalled(self, *, is_full: bool) -> int | None:
        """How many connections may make no progress, because other sites wait for one; None: any number.
        `is_full`: all are in use, and a site is ready."""
        limits = [self._most] if is_full else []
        if _UNPROVEN in self._waiting:
            limits.append(self._most - self._most // _KEPT_PART)
        if len(self._waiting) > (_UNPROVEN in self._waiting):
            limits += [share for share in (self._per_server, self._per_domain) if share is not None]
        return min(limits) // _STALLED_PART if limits else None
