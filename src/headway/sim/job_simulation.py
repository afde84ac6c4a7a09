"""What a simulated job says about its deadlines: its sites over several draws, as values, lines and tables.

`what_if` compares allocation policies without the engine: in each draw every site holds more or less data
than estimated and its server is faster or slower. The policies plan with the estimates and meet the draw as
a crawl would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from rich.table import Table

from headway.planning.ends import EndRange
from headway.planning.estimate import SiteAssumptions
from headway.planning.policies import POLICIES, run_policy
from headway.planning.problem import FloatArray, Objective, Problem, Schedule
from headway.sim.study import Curve, SiteEnd
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
    """The share of the draws in which every deadline was met."""
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
    """The highest bandwidth of the link; None if it has no bound."""
    policies: list[PolicyChance]
    sites: list[SiteChance]
    held_up_by_site: list[str]
    """Sites that are too slow by the estimates: a faster link would not help them."""


def policy_table(policies: Sequence[PolicyChance]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("policy", no_wrap=True)
    factors = _factors(policies)
    for factor in factors:
        suffix = "" if factor == factors[0] else f" x {factor:g}"
        for name in ("held", "late", "end"):
            if name == "held" or factor == factors[0]:
                table.add_column(name + suffix, no_wrap=True, justify="right")
    names = dict.fromkeys(chance.policy for chance in policies)
    for policy in sorted(names, key=lambda name: name != OWN):
        mine = {chance.bandwidth_factor: chance for chance in policies if chance.policy == policy}
        first = mine[factors[0]]
        late = (
            f"{first.late_sites.low:.0f} - {first.late_sites.high:.0f}" if first.late_sites.high else "none"
        )
        others = [f"{mine[factor].all_met:.0%}" for factor in factors[1:]]
        table.add_row(policy, f"{first.all_met:.0%}", late, span(first.end_s), *others)
    return table


def _factors(chances: Sequence[PolicyChance]) -> list[float]:
    return list(dict.fromkeys(chance.bandwidth_factor for chance in chances))


def span(values: Range) -> str:
    low, high = format_duration(values.low), format_duration(values.high)
    return low if low == high else f"{low} - {high}"


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated crawl of the job."""

    end_s: float
    is_over: bool
    pages: int
    wire_bytes: int
    link_use: float | None
    """Bytes received over the bytes that the link could have carried until the end; None without a bound."""
    rate_changes: int
    sites: list[SiteEnd]

    @property
    def late(self) -> int:
        return sum(site.is_met is False for site in self.sites)


class JobSite(msgspec.Struct, frozen=True, kw_only=True):
    """A site over all draws."""

    site: str
    deadline_s: float | None
    met: float | None
    """The share of the draws in which the deadline was met; None without a deadline."""
    end_s: Range | None
    """None: not complete in any draw."""
    data_bytes: Range
    assumed: SiteAssumptions


class JobSimulation(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    simulated_by: str
    started_at: float
    draws: int
    seed: int
    bandwidth_bytes_per_s: float | None
    """The usual bandwidth of the link; None without a bound."""
    all_met: float
    late_sites: Range
    end_s: Range
    link_use: Range | None
    pages: Range
    rate_changes: Range
    sites: list[JobSite]
    first: Draw
    """The draw in which everything is as assumed."""
    link_by_time: Curve
    """[seconds, mean bytes per second since the row before], of that draw."""
    capacity_by_time: Curve
    """[seconds, bytes per second from then on], of that draw."""
    forecast: EndRange | None = None
    """Of the crawl's end, as the crawl itself would forecast at its start."""
    policies: list[PolicyChance] = []
    """With --compare-policies: rates only, without the engine."""
    held_up_by_site: list[str] = []


def verdict(result: JobSimulation) -> list[str]:
    timed = sum(site.deadline_s is not None for site in result.sites)
    draws = "1 draw" if result.draws == 1 else f"{result.draws} draws"
    bound = "no bound on the link"
    if result.bandwidth_bytes_per_s is not None:
        bound = f"bandwidth {format_rate(result.bandwidth_bytes_per_s)}"
        rates = {row[1] for row in result.capacity_by_time}
        bound += " usually, by the timetable" if len(rates) > 1 else ""
    lines = [f"{result.job}: {_sites(len(result.sites))}, {bound}; the engine in virtual time, {draws}"]
    if timed:
        held = counted(Range(*(timed - late for late in reversed(_row(result.late_sites)))))
        over = "" if result.draws == 1 else f" (all of them in {result.all_met:.0%} of the draws)"
        lines.append(f"{held} of {timed} deadlines hold{over}")
    else:
        lines.append("no site has a deadline")
    use = "" if result.link_use is None else f", link {percent(result.link_use)} used"
    lines.append(f"the crawl ends after {span(result.end_s)}: {counted(result.pages)} pages{use}")
    if result.forecast is not None:
        early, middle, late = (format_duration(each) for each in result.forecast[:3])
        lines.append(f"the forecast of its start: {middle}, four times of five {early} to {late}")
    if not result.first.is_over:
        lines.append("the simulation was cut off there: a quota or a closed link delays the crawl")
    return lines


def job_site_table(result: JobSimulation) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("site", overflow="fold", max_width=40)
    for name in ("data", "deadline", "met", "end"):
        table.add_column(name, no_wrap=True, justify="right")
    for site in tightest(result.sites):
        table.add_row(
            site.site.partition("://")[2],
            format_size(site.data_bytes.middle),
            "" if site.deadline_s is None else format_duration(site.deadline_s),
            "" if site.met is None else _met(site.met, result.draws),
            "not complete" if site.end_s is None else span(site.end_s),
        )
    return table


def run_site_table(sites: Sequence[SiteEnd]) -> Table:
    """The sites of one simulated crawl: the late ones first, then those with the least time to spare."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("site", overflow="fold", max_width=40)
    for name in ("pages", "data", "deadline", "met", "end"):
        table.add_column(name, no_wrap=True, justify="right")
    for site in sorted(sites, key=_to_spare)[:MOST_SITES]:
        table.add_row(
            site.site.partition("://")[2],
            f"{site.pages:,}",
            format_size(site.wire_bytes),
            "" if site.deadline_s is None else format_duration(site.deadline_s),
            "" if site.is_met is None else "yes" if site.is_met else "no",
            "not complete" if site.end_s is None else format_duration(site.end_s),
        )
    return table


def hidden_line(total: int) -> str:
    return f"... and {total - MOST_SITES} more sites (--json shows all)" if total > MOST_SITES else ""


def assumption_lines(result: JobSimulation) -> list[str]:
    """From what the web was drawn, and the source of each value."""
    columns = {
        "data": ([site.assumed.data_bytes for site in result.sites], format_size),
        "page size": ([site.assumed.page_bytes for site in result.sites], format_size),
        "server": ([site.assumed.rate_bytes_per_s for site in result.sites], format_rate),
    }
    lines = []
    for name, (values, shown) in columns.items():
        by_source: dict[str, list[float]] = {}
        for value in values:
            by_source.setdefault(value.source, []).append(value.value)
        parts = [
            f"{_sites(len(found))} {source} ({_between(shown(min(found)), shown(max(found)))})"
            for source, found in by_source.items()
        ]
        lines.append(f"assumed {name}: {'; '.join(parts)}")
    return lines


def tightest(sites: Sequence[JobSite], most: int = MOST_SITES) -> list[JobSite]:
    """The sites that miss their deadlines most often first, then those with the least time to spare."""

    def order(site: JobSite) -> tuple[float, float]:
        if site.deadline_s is None:
            return (2.0, 0.0)
        return (site.met or 0.0, -1.0 if site.end_s is None else 1 - site.end_s.high / site.deadline_s)

    return sorted(sites, key=order)[:most]


def counted(values: Range) -> str:
    low, high = f"{values.low:,.0f}", f"{values.high:,.0f}"
    return low if low == high else f"{low} to {high}"


def percent(values: Range) -> str:
    low, high = f"{values.low:.0%}", f"{values.high:.0%}"
    return low if low == high else f"{low} to {high}"


def _met(share: float, draws: int) -> str:
    return ("yes" if share else "no") if draws == 1 else f"{share:.0%}"


def _row(values: Range) -> tuple[float, float, float]:
    return values.low, values.middle, values.high


def _to_spare(site: SiteEnd) -> tuple[bool, bool, float]:
    if site.deadline_s is None:
        return (True, True, 0.0)
    if site.end_s is None:
        return (False, False, 0.0)
    return (False, bool(site.is_met), site.deadline_s - site.end_s)


def _sites(count: int) -> str:
    return "1 site" if count == 1 else f"{count} sites"


def _between(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


# -- allocation policies, compared without the engine ------------------------------------------------------

QUICK_POLICIES = tuple(name for name in POLICIES if name not in {"ga", "de", "random"})
"""The policies that are fast enough for a hundred draws: without search and without chance."""
SERVER_SPREAD = 0.3


def draw_problem(
    problem: Problem, size_spread: FloatArray, chance: np.random.Generator
) -> tuple[Problem, FloatArray]:
    """The problem with the drawn rates of the servers, and the drawn sizes of the sites; both log-normal."""
    count = len(problem)
    caps = problem.cap_bytes_per_s * np.exp(chance.normal(0.0, SERVER_SPREAD, count))
    actual = problem.data_bytes * np.exp(size_spread * chance.normal(0.0, 1.0, count))
    return replace(problem, cap_bytes_per_s=caps), actual


def what_if(
    job: str,
    problem: Problem,
    size_spread: FloatArray,
    *,
    objective: Objective,
    draws: int,
    seed: int,
    factors: Sequence[float] = (1.0, 0.5),
    policies: Sequence[str] = QUICK_POLICIES,
    tell: Callable[[str], None] = lambda _: None,
) -> WhatIf:
    """`size_spread` is the deviation of the logarithm of each site's amount of data."""
    if problem.capacity.least <= 0:
        policies = (OWN,)
    chances, sites = [], []
    for factor in factors:
        scaled = problem.with_capacity(problem.capacity.scaled(factor))
        for policy in policies:
            tell(f"{policy}, {factor:g} times the link")
            chance = np.random.default_rng([seed, 0x1F])
            pairs = [draw_problem(scaled, size_spread, chance) for _ in range(draws)]
            schedules = [
                run_policy(policy, drawn, objective, seed=seed, actual=actual) for drawn, actual in pairs
            ]
            chances.append(_chance(policy, factor, schedules))
            if policy == OWN:
                sites += _site_chances(scaled, factor, schedules, [actual for _, actual in pairs])
    most = problem.capacity.most
    too_slow = problem.data_bytes / problem.cap_bytes_per_s > problem.deadline_s
    return WhatIf(
        job=job,
        draws=draws,
        seed=seed,
        bandwidth_bytes_per_s=most if most < 1e15 else None,
        policies=chances,
        sites=sites,
        held_up_by_site=[name for name, late in zip(problem.names, too_slow, strict=True) if late],
    )


def _chance(policy: str, factor: float, schedules: Sequence[Schedule]) -> PolicyChance:
    return PolicyChance(
        policy=policy,
        bandwidth_factor=factor,
        all_met=float(np.mean([schedule.on_time for schedule in schedules])),
        late_sites=range_of([schedule.late for schedule in schedules]),
        tardiness_s=range_of([schedule.total_tardiness_s for schedule in schedules]),
        end_s=range_of([schedule.max_completion_s for schedule in schedules]),
    )


def _site_chances(
    problem: Problem, factor: float, schedules: Sequence[Schedule], actuals: Sequence[FloatArray]
) -> list[SiteChance]:
    ends = np.array([schedule.end_s for schedule in schedules])
    late = np.array([schedule.tardiness_s > 0 for schedule in schedules])
    data = np.array(actuals)
    return [
        SiteChance(
            site=name,
            bandwidth_factor=factor,
            deadline_s=float(problem.deadline_s[place]) if problem.has_deadline[place] else None,
            data_bytes=range_of(data[:, place]),
            end_s=range_of(ends[:, place]),
            met=float(1.0 - late[:, place].mean()) if problem.has_deadline[place] else None,
        )
        for place, name in enumerate(problem.names)
    ]


def range_of(values: Sequence[float] | FloatArray) -> Range:
    """What 8 of 10 values lie in, without interpolation: from the least to the most of up to 10."""
    array = np.asarray(values, dtype=np.float64)
    low = np.quantile(array, 0.1, method="lower")
    high = np.quantile(array, 0.9, method="higher")
    return Range(float(low), float(np.median(array)), float(high))
