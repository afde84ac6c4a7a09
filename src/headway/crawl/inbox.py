"""The order of facts that become known at one instant. Every driver feeds them so, and so decides alike."""

from __future__ import annotations

from collections.abc import Iterable

from headway.model.event import Event, PageSettled, RobotsSettled


def in_order(events: Iterable[Event]) -> list[Event]:
    """Answers by the number of their lease, then robots.txt by site, then the rest as it came."""
    return sorted(events, key=_rank)


def _rank(event: Event) -> tuple[int, int, str]:
    match event:
        case PageSettled(lease):
            return (0, lease.number, "")
        case RobotsSettled(site):
            return (1, 0, site)
        case _:
            return (2, 0, "")
