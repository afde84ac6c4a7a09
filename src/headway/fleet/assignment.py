"""Who gets which site: the nearest of those who are not busier than the others.

Sites stay where they are, since their connections, their manners and their order do. They move only when a
collector joins that would else have nothing to do, or when another place is much nearer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

_BUSIER = 1.25
"""Who has more than so many times the mean gets nothing more, however near it is."""
_IDLE = 0.5
"""Who has less than this part of the mean is given some of the others' sites."""
_MUCH_NEARER = 0.5


class Member(msgspec.Struct, frozen=True):
    number: int
    label: str
    load: float
    """Sites held that have pages to come."""


class Unheld(msgspec.Struct, frozen=True):
    site: int
    round_trips_s: Mapping[str, float] = {}
    """By the label of the collectors that have measured it."""


def assign(sites: Sequence[Unheld], members: Sequence[Member]) -> dict[int, int]:
    """For each site that nobody holds, who is to have it; nobody when there is no member."""
    if not members:
        return {}
    loads = {member.number: member.load for member in members}
    chosen: dict[int, int] = {}
    total = sum(loads.values())
    for site in sites:
        total += 1
        limit = max(1.0, _BUSIER * total / len(members))
        able = [member for member in members if loads[member.number] < limit]
        best = min(
            able or members,
            key=lambda member: (_distance(site, member), loads[member.number], member.number),
        )
        chosen[site.site] = best.number
        loads[best.number] += 1
    return chosen


def ask_back(members: Sequence[Member]) -> dict[int, int]:
    """How many sites each collector is to give back, so that one who has hardly any gets its part."""
    if len(members) < 2:
        return {}
    mean = sum(member.load for member in members) / len(members)
    missing = int(sum(int(mean) - member.load for member in members if member.load < _IDLE * mean))
    asked: dict[int, int] = {}
    for member in sorted(members, key=lambda member: (-member.load, member.number)):
        spare = min(missing, int(member.load - mean))
        if spare > 0:
            asked[member.number] = spare
            missing -= spare
    return asked


def much_nearer(round_trips_s: Mapping[str, float], label: str, labels: Sequence[str]) -> str | None:
    """Another place from which a site is less than half as far, if there is one."""
    here = round_trips_s.get(label)
    there = [(round_trips_s[other], other) for other in labels if other in round_trips_s and other != label]
    if here is None or not there:
        return None
    nearest_s, nearest = min(there)
    return nearest if nearest_s < _MUCH_NEARER * here else None


def _distance(site: Unheld, member: Member) -> float:
    """As measured from its place; a place that has not measured counts as the middle of those that have."""
    known = site.round_trips_s
    if member.label in known or not known:
        return known.get(member.label, 0.0)
    return sorted(known.values())[len(known) // 2]
