"""What many draws say of a job's deadlines: values for JSON, and tables."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.table import Table

from headway.units import format_duration, format_rate, format_size

MOST_SITES = 30
OWN = "headway"


class Range(msgspec.Struct, frozen=True):
    """One draw in ten lies below `low`, one in ten above `high`."""

    low: float
    middle: float
    high: float


class PolicyChance(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    bandwidth_factor: float
    all_met: float
    """In which share of the draws every deadline held."""
    late_sites: Range
    tardiness_s: Range
    end_s: Range


class SiteChance(msgspec.Struct, frozen=True, kw_only=True):
    """Under headway's own policy."""

    site: str
    bandwidth_factor: float
    deadline_s: float | None
    data_bytes: Range
    end_s: Range
    met: float | None
    """None without a deadline."""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    draws: int
    seed: int
    bandwidth_bytes_per_s: float | None
    """What the link has, the most in a timetable; None when it has no bound."""
    policies: list[PolicyChance]
    sites: list[SiteChance]
    held_up_by_site: list[str]
    """Sites that their own pace makes late, by the estimates: a faster link would not help them."""


def verdict(what_if: WhatIf, policy: str = OWN) -> list[str]:
    lines = []
    for chance in what_if.policies:
        if chance.policy != policy:
            continue
        bound, factor = what_if.bandwidth_bytes_per_s, chance.bandwidth_factor
        link = "the link as it is" if factor == 1 else f"{factor:g} times the link"
        if bound is not None:
            link += f" ({format_rate(bound * factor)})"
        lines.append(
            f"{link}: all deadlines hold in {chance.all_met:.0%} of {what_if.draws} draws; "
            f"ends after {span(chance.end_s)}"
        )
    if what_if.held_up_by_site:
        names = ", ".join(_host(site) for site in what_if.held_up_by_site[:5])
        more = len(what_if.held_up_by_site) - 5
        names += f" and {more} more" if more > 0 else ""
        lines.append(
            f"{names}: too slow at the site's own pace; a shorter interval or more pages on a connection "
            "would help, a faster link would not"
        )
    return lines


def policy_table(what_if: WhatIf) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("policy", no_wrap=True)
    factors = _factors(what_if.policies)
    for factor in factors:
        suffix = "" if factor == factors[0] else f" x {factor:g}"
        for name in ("held", "late", "end"):
            if name == "held" or factor == factors[0]:
                table.add_column(name + suffix, no_wrap=True, justify="right")
    names = dict.fromkeys(chance.policy for chance in what_if.policies)
    for policy in sorted(names, key=lambda name: name != OWN):
        mine = {chance.bandwidth_factor: chance for chance in what_if.policies if chance.policy == policy}
        first = mine[factors[0]]
        late = (
            f"{first.late_sites.low:.0f} - {first.late_sites.high:.0f}" if first.late_sites.high else "none"
        )
        others = [f"{mine[factor].all_met:.0%}" for factor in factors[1:]]
        table.add_row(policy, f"{first.all_met:.0%}", late, span(first.end_s), *others)
    return table


def site_table(what_if: WhatIf) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    # Of all columns this one may give way: a long name goes over several lines.
    table.add_column("site", overflow="fold", max_width=40)
    for name in ("data", "deadline", "held", "end"):
        table.add_column(name, no_wrap=True, justify="right")
    factors = _factors(what_if.sites)
    for factor in factors[1:]:
        table.add_column(f"x {factor:g}", no_wrap=True, justify="right")
    for site in tightest(what_if.sites, factors[0]):
        others = [
            _held(other)
            for factor in factors[1:]
            for other in what_if.sites
            if other.site == site.site and other.bandwidth_factor == factor
        ]
        deadline = "" if site.deadline_s is None else format_duration(site.deadline_s)
        size = format_size(site.data_bytes.middle)
        table.add_row(_host(site.site), size, deadline, _held(site), span(site.end_s), *others)
    return table


def _factors(chances: Sequence[PolicyChance] | Sequence[SiteChance]) -> list[float]:
    return list(dict.fromkeys(chance.bandwidth_factor for chance in chances))


def _host(site: str) -> str:
    return site.partition("://")[2] or site


def tightest(sites: Sequence[SiteChance], factor: float) -> list[SiteChance]:
    """Those with the least chance first; no more than fit a screen."""
    mine = [site for site in sites if site.bandwidth_factor == factor]
    return sorted(mine, key=lambda site: 2.0 if site.met is None else site.met)[:MOST_SITES]


def span(values: Range) -> str:
    low, high = format_duration(values.low), format_duration(values.high)
    return low if low == high else f"{low} - {high}"


def _held(site: SiteChance) -> str:
    return "" if site.met is None else f"{site.met:.0%}"
