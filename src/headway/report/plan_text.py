"""A plan as text, as a chart in the terminal, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, tzinfo
from itertools import pairwise

import msgspec
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from headway.model.page import Site
from headway.planning.ends import EndRange
from headway.planning.estimate import DEFAULT, Assumption, SiteAssumptions
from headway.planning.policies import Outlook, StartPlan, finite_or_none, lower_bounds
from headway.planning.problem import USABLE, FloatArray, Problem, Schedule
from headway.units import format_duration, format_rate, format_size

ROWS = 50
_MOST_NAMED = 3
_MOST_HOURS = 14 * 24
_HOURS_SHOWN = 36


def verdict_lines(outlook: Outlook, assumptions: Sequence[SiteAssumptions] = ()) -> list[str]:
    """The answer in a few lines: whether all deadlines hold, what would meet them, and what prevents it."""
    problem, schedule = outlook.problem, outlook.schedule
    capacity = problem.capacity
    link = format_rate(capacity.at(0.0)) + ("" if capacity.is_constant else ", by the timetable")
    job = f"{len(problem)} sites, {format_size(float(problem.data_bytes.sum()))}, bandwidth {link}"
    at_once = f"at most {problem.crawlers} at once; " if problem.crawlers < len(problem) else ""
    how = f"{at_once}policy {outlook.policy}, objective {outlook.objective}"
    lines = [f"{job}, {how}", _holding(outlook)]
    if problem.crawlers > len(problem):
        lines.insert(
            1, f"crawlers = {problem.crawlers} has no effect: all {len(problem)} sites are open at once."
        )
    kind = "" if outlook.varies else " with constant rates"
    if outlook.binding is None:
        lines.append("No site has a deadline.")
    elif math.isinf(outlook.required_bytes_per_s):
        lines.append(f"No bandwidth would meet all deadlines{kind}{_why(outlook, assumptions)}.")
        lines += _too_slow_lines(outlook, assumptions)
    else:
        name = problem.names[outlook.binding]
        due = format_duration(float(problem.deadline_s[outlook.binding]))
        role = "binds" if outlook.varies else "asks for the most"
        lines.append(
            f"Least bandwidth that meets all deadlines{kind}: {format_rate(outlook.required_bytes_per_s)}; "
            f"the deadline of {name} ({due}) {role}."
        )
        needed = outlook.required_bytes_per_s / capacity.least if capacity.least else 0.0
        if outlook.varies and USABLE < needed <= 1:
            lines.append(
                f"That is {needed:.0%} of the link: too tight to count on, since a crawl uses about"
                f" {USABLE:.0%} of its bound."
            )
    return [*lines, *(f"About {outlook.policy}: {note}." for note in schedule.notes)]


def forecast_line(plan: StartPlan) -> str:
    """When the crawl will end, by the same forecast as during the crawl; empty for a table of sites."""
    end = plan.crawl_forecast
    if end is None:
        return ""
    early, middle, late = (format_duration(each) for each in end[:3])
    return f"Forecast: the crawl ends after {middle}, four times of five between {early} and {late}."


def site_table(outlook: Outlook, sites: Sequence[int], *, narrow: bool = False) -> Table:
    """`narrow` omits the rates, to fit 80 columns."""
    problem, schedule = outlook.problem, outlook.schedule
    names = _labels(problem.names)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("site", overflow="fold", min_width=8)
    for name in ("data", "deadline", "start", "end", "late by", *(() if narrow else ("rate", "needs"))):
        table.add_column(name, justify="right", no_wrap=True)
    at_work_s = np.zeros(len(problem))
    np.add.at(at_work_s, schedule.segment_site, schedule.segment_to_s - schedule.segment_from_s)
    for site in sites:
        has_deadline, late_s = np.isfinite(problem.deadline_s[site]), float(schedule.tardiness_s[site])
        data, needs = float(problem.data_bytes[site]), float(outlook.needs_bytes_per_s[site])
        cells = [
            names[site],
            format_size(data),
            format_duration(float(problem.deadline_s[site])) if has_deadline else "",
            format_duration(float(schedule.start_s[site])),
            format_duration(float(schedule.end_s[site])),
            format_duration(late_s) if late_s else "",
        ]
        if not narrow:
            cells.append(format_rate(data / float(at_work_s[site])) if at_work_s[site] else "")
            cells.append(("beyond it" if math.isinf(needs) else format_rate(needs)) if has_deadline else "")
        table.add_row(*cells, style="bold red" if late_s else "")
    return table


class Hour(msgspec.Struct, frozen=True):
    """What the plan does in an hour of the clock."""

    from_at: float
    to_at: float
    capacity_bytes: float
    """What the link can carry."""
    planned_bytes: float
    sites: list[str]
    """The ones that receive, most first."""
    ends: list[str]
    """The ones complete by the end of the hour."""
    due: list[str]
    """Those whose deadlines are in the hour."""


def hours_of(plan: StartPlan, schedule: Schedule) -> list[Hour]:
    """The plan hour by hour, from its start to its last end or deadline, two weeks at most; empty for a table
    of sites, which has no clock."""
    begins_at = plan.begins_at
    if begins_at is None:
        return []
    problem, names = schedule.problem, schedule.problem.names
    due = problem.deadline_s[np.isfinite(problem.deadline_s)]
    last_s = min(max(schedule.max_completion_s, float(due.max(initial=0.0))), _MOST_HOURS * 3600.0)
    first = begins_at - begins_at % 3600.0  # time zones differ by whole quarters, most by whole hours
    edges = [begins_at, *np.arange(first + 3600.0, begins_at + last_s, 3600.0).tolist(), begins_at + last_s]
    hours = []
    for from_at, to_at in pairwise(edges):
        from_s, to_s = from_at - begins_at, to_at - begins_at
        overlap = np.minimum(schedule.segment_to_s, to_s) - np.maximum(schedule.segment_from_s, from_s)
        amounts = np.zeros(len(problem))
        np.add.at(
            amounts, schedule.segment_site, schedule.segment_rate_bytes_per_s * np.clip(overlap, 0.0, None)
        )
        order = [site for site in np.argsort(-amounts).tolist() if amounts[site] > 0]
        until = problem.capacity.amount_until(np.array([from_s, to_s]))
        hours.append(
            Hour(
                from_at,
                to_at,
                float(until[1] - until[0]),
                float(amounts.sum()),
                [names[site] for site in order],
                _within(names, schedule.end_s, from_s, to_s),
                _within(names, problem.deadline_s, from_s, to_s),
            )
        )
    return hours


def _within(names: Sequence[str], at_s: FloatArray, from_s: float, to_s: float) -> list[str]:
    return [names[site] for site in np.flatnonzero((at_s > from_s) & (at_s <= to_s)).tolist()]


def hour_table(hours: Sequence[Hour], zone: tzinfo) -> Table:
    """One row an hour; hours in a row in which nothing happens are one."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("hour", "link", "planned", "sites", "ends"):
        table.add_column(title, no_wrap=title != "sites", overflow="ellipsis")
    shown = _joined(hours)
    for hour in shown[:_HOURS_SHOWN]:
        begin, end = (datetime.fromtimestamp(at, zone) for at in (hour.from_at, hour.to_at))
        of_link = f" ({hour.planned_bytes / hour.capacity_bytes:.0%})" if hour.planned_bytes else ""
        table.add_row(
            f"{begin:%a %H:%M}-{end:%H:%M}",
            format_size(hour.capacity_bytes) if hour.capacity_bytes else "closed",
            format_size(hour.planned_bytes) + of_link if hour.planned_bytes else "-",
            _names(hour.sites),
            _names(hour.ends),
        )
    if len(shown) > _HOURS_SHOWN:
        table.add_row("...", "", "", f"{len(shown) - _HOURS_SHOWN} more rows; --json shows all", "")
    return table


def _joined(hours: Sequence[Hour]) -> list[Hour]:
    rows: list[Hour] = []
    for hour in hours:
        before = rows[-1] if rows else None
        if before is None or _is_busy(before) or _is_busy(hour) or _is_shut(before) != _is_shut(hour):
            rows.append(hour)
            continue
        rows[-1] = msgspec.structs.replace(
            before,
            to_at=hour.to_at,
            capacity_bytes=before.capacity_bytes + hour.capacity_bytes,
            due=[*before.due, *hour.due],
        )
    return rows


def _is_busy(hour: Hour) -> bool:
    return bool(hour.planned_bytes or hour.ends)


def _is_shut(hour: Hour) -> bool:
    return not hour.capacity_bytes


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(name.partition("://")[2] or name for name in names[:_MOST_NAMED])
    return f"{shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else shown


def objective_line(schedule: Schedule) -> str:
    bounds = lower_bounds(schedule.problem)
    return (
        f"All done after {format_duration(schedule.max_completion_s)} "
        f"(not before {format_duration(bounds['max_completion_s'])} with any policy); "
        f"sum of execution times {format_duration(schedule.sum_execution_s)}, "
        f"late {schedule.late} of {len(schedule.problem)}, "
        f"tardiness {format_duration(schedule.total_tardiness_s)} in all"
    )


def compare_table(
    problem: Problem, results: Sequence[tuple[str, Schedule | None, str]]
) -> tuple[Table, list[str]]:
    """Policies side by side, the best value of each column in bold; and footnotes, also on policies that
    cannot handle the job."""
    notes: list[str] = []
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("policy", no_wrap=True)
    for name in ("max end", "sum of ends", "execution", "tardiness", "late"):
        table.add_column(name, justify="right", no_wrap=True)
    done = [schedule for _, schedule, _ in results if schedule is not None]
    best = [min(column) for column in zip(*map(_figures, done), strict=True)]
    for name, schedule, note in results:
        mark = ""
        if note:
            notes += [] if note in notes else [note]
            mark = f" ({notes.index(note) + 1})"
        if schedule is None:
            table.add_row(name + mark, *["-"] * 5, style="dim")
            continue
        cells = [
            f"[bold]{text}[/]" if value <= least * (1 + 1e-6) + 1e-9 else text
            for value, least, text in zip(_figures(schedule), best, _texts(schedule), strict=True)
        ]
        table.add_row(name + mark, *cells)
    bounds = lower_bounds(problem)
    table.add_row(
        "no policy below",
        f"{bounds['max_completion_s']:.1f}",
        f"{bounds['sum_completion_s']:.1f}",
        style="dim",
    )
    footnotes = [f"({number}) {note}" for number, note in enumerate(notes, 1)]
    return table, ["Times in seconds; execution is the sum over sites from start to end.", *footnotes]


def most_telling(schedule: Schedule, count: int = ROWS) -> list[int]:
    """The sites to show if there are too many: the latest, then the tightest, in order of their start."""
    if len(schedule.problem) <= count:
        return list(range(len(schedule.problem)))
    spare_s = schedule.problem.deadline_s - schedule.end_s
    chosen = np.argsort(spare_s, kind="stable")[:count]
    by_start: list[int] = chosen[np.argsort(schedule.start_s[chosen], kind="stable")].tolist()
    return by_start


def _holding(outlook: Outlook) -> str:
    late = outlook.schedule.late
    if not late:
        return "All deadlines hold."
    total = format_duration(outlook.schedule.total_tardiness_s)
    can = " though constant rates could meet all of them" if outlook.sufficient else ""
    return f"Not all deadlines hold: {late} of {len(outlook.problem)} sites are late, by {total} in all{can}."


def _why(outlook: Outlook, assumptions: Sequence[SiteAssumptions]) -> str:
    names = [outlook.problem.names[site] for site in outlook.out_of_reach]
    if not names:
        return ": too few sites may be open at once"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    listed = f"{', '.join(names[:_MOST_NAMED])}{more}"
    if assumptions:
        return (
            f": {listed} cannot deliver its data in time" if len(names) == 1 else f": {listed} are too slow"
        )
    return f": the cap of {listed} is too low"


def _too_slow_lines(outlook: Outlook, assumptions: Sequence[SiteAssumptions]) -> list[str]:
    """For the first sites that no bandwidth can complete in time: the calculation, and what to change."""
    if not assumptions:
        return []
    problem, lines = outlook.problem, []
    reasons: set[str] = set()
    for site in outlook.out_of_reach[:_MOST_NAMED]:
        assumed, cap = assumptions[site], float(problem.cap_bytes_per_s[site])
        data = float(problem.data_bytes[site])
        page, rate = assumed.page_bytes, assumed.rate_bytes_per_s
        pause = f", one each {format_duration(assumed.pause_s)} (interval)" if assumed.pause_s else ""
        for each in assumed.shared:
            pause += f", in turns with the other {each.sites - 1} sites of {each.name}"
        due_s = float(problem.deadline_s[site])
        if data / cap <= due_s:
            # The site is fast enough, so the link is closed for too long.
            link = format_size(float(problem.capacity.amount_until(np.array([due_s]))[0]))
            lines.append(
                f"{problem.names[site]}: {_sourced(format_size(data), assumed.data_bytes)}; until its "
                f"deadline in {format_duration(due_s)} the link can carry {link} by the timetable."
            )
            reasons.add("bandwidth at the hours before the deadline (timetable)")
            continue
        page_s = assumed.pause_s + page.value / rate.value
        if page.value / page_s > 1.01 * cap:
            reasons.add(f"a higher cap of the site (now {format_rate(cap)})")
        lines.append(
            f"{problem.names[site]}: pages of {_sourced(format_size(page.value), page)}{pause}, "
            f"from a server of {_sourced(format_rate(rate.value), rate)}, are at most {format_rate(cap)}; "
            f"{_sourced(format_size(data), assumed.data_bytes)} take {format_duration(data / cap)}, and the "
            f"deadline is in {format_duration(float(problem.deadline_s[site]))}."
        )
    cures = [*sorted(reasons), "a later deadline", "limits (max_pages, max_bytes)"]
    sites = outlook.out_of_reach
    if any(assumptions[site].pause_s for site in sites):
        cures.insert(0, "a shorter interval")
    if any(assumptions[site].data_bytes.source == DEFAULT for site in sites):
        cures.append("the real size of the site (data, --probe, or an earlier run)")
    return [*lines, f"What helps: {', '.join(cures[:-1])}, or {cures[-1]}."]


def shared_lines(assumptions: Sequence[SiteAssumptions]) -> list[str]:
    """Which sites share an interval, so that they are served in turns."""
    groups = sorted({each for one in assumptions for each in one.shared}, key=lambda each: -each.sites)
    lines = []
    for each in groups[:_MOST_NAMED]:
        at_once = f", {each.connections} requests at once" if each.connections > 1 else ""
        lines.append(
            f"The {each.sites} sites of {each.name} share its interval: one page each "
            f"{format_duration(each.pause_s)}{at_once}, in the order of their deadlines."
        )
    if len(groups) > _MOST_NAMED:
        lines.append(f"So do the sites of {len(groups) - _MOST_NAMED} more domains and servers.")
    if assumptions:
        lines.append("Names of different domains may have one server, which only a crawl finds out.")
    return lines


def margin_line(outlook: Outlook, at_most: Outlook) -> str:
    """How the verdict changes if the sites hold as much as the planner considers possible."""
    total = format_size(float(at_most.problem.data_bytes.sum()))
    late, before = at_most.schedule.late, outlook.schedule.late
    if late == before:
        return f"The verdict is the same if the sites have {total}, which the estimates allow."
    return f"If the sites have {total}, which the estimates allow, {late} of {len(at_most.problem)} are late."


def assumption_table(assumptions: Sequence[SiteAssumptions], sites: Sequence[int], caps: FloatArray) -> Table:
    """What the plan is computed from, each value with its source. `caps`: the highest rate of each site that
    follows from them."""
    names = _labels([one.site for one in assumptions])
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        title="assumed; a value without a source is a default",
    )
    table.title_justify = "left"
    table.add_column("site", overflow="fold", min_width=8)
    for name in ("data", "page", "server", "at most"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("source")
    for site in sites:
        one = assumptions[site]
        table.add_row(
            names[site],
            format_size(one.data_bytes.value),
            format_size(one.page_bytes.value),
            format_rate(one.rate_bytes_per_s.value),
            format_rate(float(caps[site])),
            _sources(one),
        )
    return table


def _sources(one: SiteAssumptions) -> str:
    """Such as "learnt in run X", or "data given"."""
    values: dict[str, list[str]] = {}
    for name, assumed in (
        ("data", one.data_bytes),
        ("page", one.page_bytes),
        ("server", one.rate_bytes_per_s),
    ):
        values.setdefault(assumed.source, []).append(name)
    if len(values) == 1:
        return one.data_bytes.source
    return ", ".join(
        f"{' and '.join(names)} {source}" for source, names in values.items() if source != DEFAULT
    )


def _labels(names: Sequence[str]) -> Sequence[str]:
    """The names of sites without their scheme, if that leaves them different."""
    hosts = [name.partition("://")[2] or name for name in names]
    return hosts if len(set(hosts)) == len(hosts) else names


def _sourced(text: str, assumed: Assumption) -> str:
    return f"{text} ({assumed.source})"


def _figures(schedule: Schedule) -> tuple[float, ...]:
    return (
        schedule.max_completion_s,
        schedule.sum_completion_s,
        schedule.sum_execution_s,
        schedule.total_tardiness_s,
        float(schedule.late),
    )


def _texts(schedule: Schedule) -> tuple[str, ...]:
    *times, late = _figures(schedule)
    return (*(f"{time:.1f}" for time in times), f"{late:.0f}")


LEVELS = " ▁▂▃▄▅▆▇█"
DEADLINE = "│"
MISSED = "╳"
NAME_WIDTH = 24


def gantt(schedule: Schedule, sites: list[int], width: int = 80) -> list[str]:
    """Lines for these sites. A deadline is drawn as a bar, or as a cross if the site is late."""
    problem = schedule.problem
    names = _labels(problem.names)
    label_width = min(max((len(names[site]) for site in sites), default=4), NAME_WIDTH)
    cells = max(width - label_width - 2, 20)
    # A deadline far beyond the last end would compress everything else.
    horizon_s = schedule.max_completion_s * 1.02 or 1.0
    full = _mean_rates(schedule, sites, horizon_s, cells) / problem.capacity.most
    lines = []
    for row, site in enumerate(sites):
        levels = np.ceil(np.clip(full[row], 0, 1) * (len(LEVELS) - 1) - 1e-6).astype(int)
        bar = [LEVELS[level] for level in levels]
        deadline_s = float(problem.deadline_s[site])
        if deadline_s <= horizon_s:
            mark = MISSED if schedule.tardiness_s[site] > 0 else DEADLINE
            bar[min(int(deadline_s / horizon_s * cells), cells - 1)] = mark
        lines.append(f"{_short(names[site], label_width)}  {''.join(bar).rstrip()}")
    return [*lines, _axis(horizon_s, label_width, cells)]


def _mean_rates(schedule: Schedule, sites: list[int], horizon_s: float, cells: int) -> FloatArray:
    """The mean rate of each of these sites in each cell of time: (sites, cells)."""
    edges = np.linspace(0.0, horizon_s, cells + 1)
    rates = np.zeros((len(sites), cells))
    row_of = {site: row for row, site in enumerate(sites)}
    shown = np.isin(schedule.segment_site, sites)
    cell_s = horizon_s / cells
    columns = (
        schedule.segment_site,
        schedule.segment_from_s,
        schedule.segment_to_s,
        schedule.segment_rate_bytes_per_s,
    )
    for site, from_s, to_s, rate in zip(*(column[shown].tolist() for column in columns), strict=True):
        overlap = np.clip(np.minimum(edges[1:], to_s) - np.maximum(edges[:-1], from_s), 0.0, None)
        rates[row_of[site]] += rate * overlap / cell_s
    return rates


def _axis(horizon_s: float, label_width: int, cells: int) -> str:
    middle, end = format_duration(horizon_s / 2), format_duration(horizon_s)
    left = "0".ljust(max(cells // 2 - len(middle) // 2, 1)) + middle
    return " " * (label_width + 2) + left + end.rjust(max(cells - len(left), len(end) + 1))


def _short(name: str, width: int) -> str:
    return name.ljust(width) if len(name) <= width else name[: width - 1] + "…"


class ObjectiveValues(msgspec.Struct, frozen=True):
    max_completion_s: float
    sum_execution_s: float
    total_tardiness_s: float
    late: int

    @staticmethod
    def of(schedule: Schedule) -> ObjectiveValues:
        return ObjectiveValues(
            schedule.max_completion_s,
            schedule.sum_execution_s,
            schedule.total_tardiness_s,
            schedule.late,
        )


class Assumed(msgspec.Struct, frozen=True):
    """What the planner assumes about a site."""

    data_bytes: Assumption
    page_bytes: Assumption
    rate_bytes_per_s: Assumption
    pause_s: float
    cap_bytes_per_s: float
    """The highest rate that the site can deliver, which follows from page, rate and pause."""
    data_range_bytes: tuple[float, float]


class SitePlan(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    data_bytes: float
    deadline_s: float | None
    start_s: float
    end_s: float
    tardiness_s: float
    segments: list[tuple[float, float, float]]
    """from_s, to_s, rate_bytes_per_s"""
    first_rate_bytes_per_s: float | None = None
    """Of a job: the rate that the crawl's pacer gets for the site when the crawl starts; absent for a
    table."""
    assumed: Assumed | None = None
    forecast: EndRange | None = None
    """Of a job: [from, middle, to, chance of the deadline], as the crawl itself forecasts at its start."""


class PlanDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    policy: str
    bandwidth_bytes_per_s: float
    required_bytes_per_s: float | None
    """None if no bandwidth would be enough."""
    sufficient: bool
    objective: ObjectiveValues
    sites: list[SitePlan]
    forecast: EndRange | None = None
    """Of the whole crawl."""
    hours: list[Hour] = []
    """Of a job: the plan hour by hour."""


class Compared(msgspec.Struct, frozen=True):
    policy: str
    objective: ObjectiveValues | None
    """None if the policy cannot handle this job; `note` says why."""
    note: str = ""


def plan_document(outlook: Outlook, plan: StartPlan | None = None) -> PlanDocument:
    """`headway plan --json` prints `msgspec.json.encode` of it. `plan` adds to each site what the planner
    assumes and its first rate."""
    schedule, problem = outlook.schedule, outlook.problem
    first_rates, assumed = _decided(problem, plan)
    columns = zip(
        problem.names,
        problem.data_bytes.tolist(),
        map(finite_or_none, problem.deadline_s.tolist()),
        schedule.start_s.tolist(),
        schedule.end_s.tolist(),
        schedule.tardiness_s.tolist(),
        schedule.segments_by_site(),
        first_rates,
        assumed,
        [None if plan is None else plan.forecasts.get(Site(name)) for name in problem.names],
        strict=True,
    )
    return PlanDocument(
        policy=outlook.policy,
        bandwidth_bytes_per_s=problem.capacity.at(0.0),
        required_bytes_per_s=finite_or_none(outlook.required_bytes_per_s),
        sufficient=outlook.sufficient,
        objective=ObjectiveValues.of(schedule),
        sites=[SitePlan(*row) for row in columns],
        forecast=None if plan is None else plan.crawl_forecast,
        hours=[] if plan is None else hours_of(plan, schedule),
    )


def _decided(
    problem: Problem, plan: StartPlan | None
) -> tuple[list[float] | list[None], list[Assumed] | list[None]]:
    """For each site its first rate and what is assumed about it."""
    if plan is None or not plan.assumptions:
        return [None] * len(problem), [None] * len(problem)
    caps = problem.cap_bytes_per_s.tolist()
    return [plan.first_rates.get(one.site, 0.0) for one in plan.assumptions], [
        Assumed(
            one.data_bytes,
            one.page_bytes,
            one.rate_bytes_per_s,
            one.pause_s,
            cap,
            (left.low, left.high),
        )
        for one, left, cap in zip(plan.assumptions, plan.remaining, caps, strict=True)
    ]
