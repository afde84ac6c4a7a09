"""Connections as a budget: which sites may take one of them, and how many servers may hold one idle.

A server that sends a byte now and then costs nothing, and could hold every connection of a crawl. So no
server and no registered domain has more than its share; once a server has stalled, part of the connections is
kept for sites with a good record; and while sites wait, only some of the connections may make no progress.
"""

from __future__ import annotations

from heapq import heappop, heappush

from headway.model.page import SUCCESS, Kind, Outcome, Site
from headway.units import Instant

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
