"""The bound of the whole fleet, handed out in shares that are leases.

A share counts until its time is over, whether or not its collector is still there; it is handed on only then,
or when the collector has taken a newer one in its place. So the sum never exceeds the bound, whoever comes,
goes or dies, and whoever leads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from headway.units import BytesPerSecond, Instant

_LEAST_PART = 0.05
"""Of an equal share: also who has nothing to do yet must be able to begin."""


class Share(msgspec.Struct, frozen=True, gc=False):
    collector: int
    rate_bytes_per_s: BytesPerSecond
    until_at: Instant
    number: int = 0
    """Grows: of two that a collector has, the one with the greater number counts once it is taken."""


def reserved(now: Instant, shares: Iterable[Share], taken: Mapping[int, int]) -> dict[int, float]:
    """The most that each collector may be reading, by the shares it has; `taken` is the newest that each is
    known to have taken."""
    most: dict[int, float] = {}
    for share in shares:
        if share.until_at > now and share.number >= taken.get(share.collector, 0):
            most[share.collector] = max(most.get(share.collector, 0.0), share.rate_bytes_per_s)
    return most


def newest_of(shares: Iterable[Share]) -> dict[int, Share]:
    newest: dict[int, Share] = {}
    for share in shares:
        if share.collector not in newest or share.number > newest[share.collector].number:
            newest[share.collector] = share
    return newest


def hand_out(
    bound_bytes_per_s: float, reservations: Mapping[int, float], wishes: Mapping[int, float]
) -> dict[int, BytesPerSecond]:
    """What each collector that wishes gets from now on.

    Who is to have less gets less at once. Who is to have more gets it as far as nobody can be using it.
    """
    if math.isinf(bound_bytes_per_s):
        return {collector: BytesPerSecond(math.inf) for collector in wishes}
    targets = _targets(bound_bytes_per_s, wishes)
    free = max(0.0, bound_bytes_per_s - math.fsum(reservations.values()))
    rises = {
        collector: target - reservations.get(collector, 0.0)
        for collector, target in targets.items()
        if target > reservations.get(collector, 0.0)
    }
    wanted = math.fsum(rises.values())
    part = min(1.0, free / wanted) if wanted > 0 else 0.0
    # Rounded down, so that a thousand roundings do not add up to a byte too much.
    return {
        collector: BytesPerSecond(
            _rounded_down(reservations.get(collector, 0.0) + part * rises[collector])
            if collector in rises
            else _rounded_down(target)
        )
        for collector, target in targets.items()
    }


def _rounded_down(rate: float) -> float:
    """To a thousandth, so that on the slowest link nobody is left with nothing."""
    return math.floor(rate * 1000) / 1000


def lend(
    bound_bytes_per_s: float, planned: Mapping[int, float], most: Mapping[int, float]
) -> dict[int, float]:
    """What is planned for one who cannot use it goes to those who can, as far as each still could."""
    wishes = {collector: min(rate, most[collector]) for collector, rate in planned.items()}
    left = bound_bytes_per_s - math.fsum(wishes.values())
    could = {collector: most[collector] - wish for collector, wish in wishes.items()}
    whole = math.fsum(could.values())
    if left <= 0 or not whole or not math.isfinite(whole):
        return wishes
    part = min(1.0, left / whole)
    return {collector: wish + part * could[collector] for collector, wish in wishes.items()}


def _targets(bound_bytes_per_s: float, wishes: Mapping[int, float]) -> dict[int, float]:
    """The bound in proportion to the wishes. All of it: what nobody wished for is there to grow into."""
    if not wishes:
        return {}
    least = _LEAST_PART * bound_bytes_per_s / len(wishes)
    raised = {
        collector: min(max(wish, least), bound_bytes_per_s) if wish == wish else least  # noqa: PLR0124 - NaN
        for collector, wish in wishes.items()
    }
    whole = math.fsum(raised.values())
    if not whole:
        return dict.fromkeys(wishes, 0.0)
    return {collector: bound_bytes_per_s * wish / whole for collector, wish in raised.items()}
