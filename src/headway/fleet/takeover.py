"""A site that comes from somebody else, made facts for the machine: from when on it may be asked, what its
rules are, how its pages were found on earlier visits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from headway.fleet.coordinator import Taken
from headway.model.event import SitesTaken, VisitsTold
from headway.model.page import Site
from headway.model.robots import RobotsRules
from headway.policy.politeness import Politeness
from headway.units import Instant

_CLOCKS_DIFFER_S = 0.1
"""Two collectors' readings of the shared clock may be so far apart."""
_HISTORIES_AT_ONCE = 100
"""Ten milliseconds: to learn of a hundred thousand pages in one go would cost the lease."""


def sites_taken(
    now: Instant, taken: Taken, rules_of: Callable[[str], RobotsRules], politeness: Politeness
) -> SitesTaken:
    rules: dict[Site, RobotsRules] = {}
    not_before: dict[Site, Instant] = {}
    for record in taken.snapshot.sites:
        if record.robots_text is not None and (record.robots_expires_at or 0) > now:
            rules[record.site] = rules_of(record.robots_text)
        not_before[record.site] = Instant(record.free_at + _CLOCKS_DIFFER_S)
    for site, until in taken.soiled_until.items():
        delay_s = rules[site].crawl_delay_s if site in rules else None
        free_at = Instant(until + politeness.pause_s(delay_s))
        not_before[site] = max(free_at, not_before.get(site, free_at))
    return SitesTaken(taken.sites, taken.snapshot, rules, not_before)


def visits_told(histories: Sequence[tuple[Site, bytes]]) -> Iterator[VisitsTold]:
    """Site by site, in parts."""
    of_site: dict[Site, list[bytes]] = {}
    for site, history in histories:
        of_site.setdefault(site, []).append(history)
    for site, visits in of_site.items():
        for begin in range(0, len(visits), _HISTORIES_AT_ONCE):
            yield VisitsTold(site, tuple(visits[begin : begin + _HISTORIES_AT_ONCE]))
