"""A plan as text: the verdict in words, the sites in rows, policies side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from headway.policy.allocation.outlook import VARYING, Outlook, lower_bounds
from headway.policy.allocation.problem import Problem, Schedule
from headway.units import format_duration, format_rate, format_size

ROWS = 50


def verdict_lines(outlook: Outlook) -> list[str]:
    """The answer in a few lines: will it do, what would, what stands in the way."""
    problem, schedule = outlook.problem, outlook.schedule
    capacity = problem.capacity
    link = format_rate(capacity.at(0.0)) + ("" if capacity.is_constant else ", by the timetable")
    job = f"{len(problem)} sites, {format_size(float(problem.data_bytes.sum()))}, bandwidth {link}"
    how = f"at most {problem.crawlers} at once; policy {outlook.policy}, objective {outlook.objective}"
    lines = [f"{job}, {how}", _holding(outlook)]
    kind = "" if outlook.policy == VARYING else " with constant rates"
    if outlook.binding is None:
        lines.append("No site has a deadline.")
    elif math.isinf(outlook.required_bytes_per_s):
        lines.append(f"No bandwidth would meet all deadlines{kind}{_why(outlook)}.")
    else:
        name = problem.names[outlook.binding]
        due = format_duration(float(problem.deadline_s[outlook.binding]))
        role = "binds" if outlook.policy == VARYING else "asks for the most"
        lines.append(
            f"Least bandwidth that meets all deadlines{kind}: {format_rate(outlook.required_bytes_per_s)}; "
            f"the deadline of {name} ({due}) {role}."
        )
    return [*lines, *(f"About {outlook.policy}: {note}." for note in schedule.notes)]


def site_table(outlook: Outlook, sites: Sequence[int], *, narrow: bool = False) -> Table:
    """`narrow` leaves out the rates, to fit 80 columns."""
    problem, schedule = outlook.problem, outlook.schedule
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
            problem.names[site],
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


def objective_line(schedule: Schedule) -> str:
    bounds = lower_bounds(schedule.problem)
    return (
        f"All done after {format_duration(schedule.max_completion_s)} "
        f"(not before {format_duration(bounds['max_completion_s'])} in any way); "
        f"sum of execution times {format_duration(schedule.sum_execution_s)}, "
        f"late {schedule.late} of {len(schedule.problem)}, "
        f"tardiness {format_duration(schedule.total_tardiness_s)} in all"
    )


def compare_table(
    problem: Problem, results: Sequence[tuple[str, Schedule | None, str]]
) -> tuple[Table, list[str]]:
    """Policies side by side, the best of each column bold; and footnotes, also on who cannot take the job."""
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
    """The sites to show when there are too many: the latest, then the tightest, in order of their start."""
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


def _why(outlook: Outlook) -> str:
    names = [outlook.problem.names[site] for site in outlook.out_of_reach]
    if not names:
        return ": too few sites may be open at once"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f": the cap of {', '.join(names[:3])}{more} is too low"


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
