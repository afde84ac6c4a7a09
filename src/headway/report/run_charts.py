"""The figures of a report: which there are, how each is drawn, what it says, and its numbers as rows.

They show the link of a run, its sites, and how early the good pages came (castillo2004).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from headway.report.canvas import (
    AMBER,
    BLUE,
    GREY,
    INK,
    MUTED,
    PALE,
    RED,
    TEAL,
    clock_times,
    quiet,
    spread_times,
)
from headway.units import format_duration, format_rate, is_clock_time
from headway.view.reporting import Floats, OutcomeCount, Ranks, RunFacts, SiteHistory, Turn, TypeCount
from headway.view.run import SiteState

MOST_BARS = 40
MOST_COURSES = 6
_MOST_TYPES = 8
_MOST_KINDS = 12
_GAP_S = 1.5
"""Less than a second at the end of a session is not drawn."""


def time_unit(seconds: float) -> tuple[float, str]:
    for length, name in ((2 * 86400.0, "days"), (2 * 3600.0, "hours"), (300.0, "minutes")):
        if seconds >= length:
            return {"days": 86400.0, "hours": 3600.0, "minutes": 60.0}[name], name
    return 1.0, "seconds"


def data_unit(most: float) -> tuple[float, str]:
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if most >= factor:
            return factor, prefix
    return 1.0, ""


def short(site: str) -> str:
    name = site.partition("://")[2] or site
    return name if len(name) <= 34 else f"{name[:20]}…{name[-12:]}"


def draw_link(figure: Any, facts: RunFacts) -> None:
    axes = figure.subplots()
    link = facts.link
    unit_s, unit = time_unit(facts.seconds)
    finite = link.bound_bytes_per_s[np.isfinite(link.bound_bytes_per_s)]
    most = max(float(link.highest_bytes_per_s.max(initial=0.0)), float(finite.max(initial=0.0)), 1.0)
    factor, prefix = data_unit(most)
    at, measured, highest, predicted = (
        values / scale
        for values, scale in zip(
            as_steps(
                link.from_s,
                link.at_s,
                link.rate_bytes_per_s,
                link.highest_bytes_per_s,
                link.predicted_bytes_per_s,
            ),
            (unit_s, factor, factor, factor),
            strict=True,
        )
    )
    axes.fill_between(at, measured, color=PALE, linewidth=0)
    axes.plot(at, measured, color=BLUE, label="measured")
    if link.step_s > 1:
        label = f"highest second of {link.step_s:.0f}"
        axes.plot(at, highest, color=BLUE, linewidth=0.7, alpha=0.7, label=label)
    if finite.size:
        since_s, bounds = np.array([*link.bounds, (facts.seconds, link.bounds[-1][1])]).T
        bounds = np.where(np.isfinite(bounds), bounds, np.nan)
        axes.step(since_s / unit_s, bounds / factor, where="post", color=INK, linewidth=1.4, label="bound")
    if not np.isnan(predicted).all():
        axes.plot(at, predicted, color=AMBER, linestyle=(0, (1, 1.6)), label="predicted")
    for mark in facts.marks[1:12]:
        axes.axvline(mark.at_s / unit_s, color=MUTED, linewidth=0.8, linestyle=":")
        axes.text(mark.at_s / unit_s, 0.98, f" {mark.text}", rotation=90, va="top", ha="right", fontsize=7.5,
                  color=MUTED, transform=axes.get_xaxis_transform())  # fmt: skip
    axes.set_ylim(0, 1.12 * most / factor)
    axes.set_xlim(0, max(facts.seconds / unit_s, 1e-9))
    axes.set_ylabel(f"{prefix}B/s")
    axes.set_xlabel(f"{unit} since the start")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, borderaxespad=0.2)
    quiet(axes)


def as_steps(from_s: Floats, at_s: Floats, *columns: Floats) -> list[Floats]:
    """Instants and values of lines that are constant from `from_s` to `at_s`, with a NaN before a step that
    does not follow another."""
    begins = np.flatnonzero(from_s > np.concatenate([[-np.inf], at_s[:-1]]) + _GAP_S)
    at = np.column_stack([from_s, at_s]).ravel()
    return [
        np.insert(at, 2 * begins, from_s[begins]),
        *(np.insert(np.repeat(column, 2), 2 * begins, np.nan) for column in columns),
    ]


def gantt_order(sites: Sequence[SiteState]) -> list[SiteState]:
    """Missed deadlines first, then by deadline, then sites without a deadline, by size."""
    started = [site for site in sites if site.start_s is not None]
    return sorted(
        started,
        key=lambda site: (
            not site.is_missed,
            site.deadline_s if site.deadline_s is not None else math.inf,
            -site.wire_bytes,
        ),
    )


def draw_sites(figure: Any, facts: RunFacts) -> None:
    axes = figure.subplots()
    unit_s, unit = time_unit(facts.seconds)
    chosen = gantt_order(facts.sites)[:MOST_BARS]
    missed = {each.site for each in facts.missed}
    for row, site in enumerate(chosen):
        assert site.start_s is not None
        end_s = site.end_s if site.end_s is not None else facts.seconds
        colour = (
            RED
            if site.site in missed
            else GREY
            if site.is_stopped
            else TEAL
            if site.end_s is not None
            else BLUE
        )
        axes.barh(row, (end_s - site.start_s) / unit_s, left=site.start_s / unit_s, height=0.6, color=colour)
        if site.deadline_s is not None:
            axes.plot([site.deadline_s / unit_s] * 2, [row - 0.42, row + 0.42], color=INK, linewidth=2.2)
    axes.set_yticks(range(len(chosen)), [short(site.site) for site in chosen], fontsize=8.5)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    times = [time_s for site in chosen for time_s in (site.end_s, site.deadline_s) if time_s is not None]
    is_spread = spread_times(axes, unit_s, times)
    axes.set_xlabel("time since the start, logarithmic" if is_spread else f"{unit} since the start")
    deadlines = [site.deadline_at for site in chosen if site.deadline_at is not None]
    if not is_spread and any(is_clock_time(round(at, 6)) for at in deadlines):
        zone = None if facts.timezone is None else ZoneInfo(facts.timezone)
        if clock_times(axes, unit_s, facts.view.started_at, zone):
            axes.set_xlabel("time of day" if facts.timezone is None else f"time of day, {facts.timezone}")
    quiet(axes, grid="x")


def draw_courses(figure: Any, facts: RunFacts) -> None:
    """What the allocation gave some sites, and what they received."""
    chosen = planned(facts.courses)[:MOST_COURSES]
    columns = 2 if len(chosen) > 1 else 1
    all_axes = figure.subplots(math.ceil(len(chosen) / columns), columns, squeeze=False, sharex=True)
    unit_s, unit = time_unit(facts.seconds)
    for place, axes in enumerate(all_axes.flat):
        axes.set_visible(place < len(chosen))
        if place >= len(chosen):
            continue
        course = chosen[place]
        got = course.rate_bytes_per_s
        most = max(float(np.nanmax(course.share_bytes_per_s)), float(got.max(initial=0.0)), 1.0)
        factor, prefix = data_unit(most)
        at = course.at_s / unit_s
        axes.fill_between(at, got / factor, step="pre", color=PALE, linewidth=0)
        axes.step(at, got / factor, where="pre", color=BLUE, linewidth=1.3, label="achieved")
        axes.step(
            at, course.share_bytes_per_s / factor, where="post", color=INK, linewidth=1.3, label="allocated"
        )
        axes.set_title(short(course.site))
        axes.set_ylabel(f"{prefix}B/s")
        axes.set_ylim(bottom=0)
        quiet(axes)
    for axes in all_axes[-1]:
        axes.set_xlabel(f"{unit} since the start")
    handles, labels = all_axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2)


def planned(courses: Sequence[SiteHistory]) -> list[SiteHistory]:
    return [course for course in courses if not np.isnan(course.share_bytes_per_s).all()]


def forecast_errors(courses: Sequence[SiteHistory]) -> list[tuple[SiteHistory, Any, Any, Any]]:
    """For sites that have ended: the time passed, and by how much the ends of the forecast range were too
    early and too late, all as fractions of the time that the site took."""
    found = []
    for course in courses:
        if course.end_s is None:
            continue
        known = ~np.isnan(course.forecast_to_s) & (course.at_s < course.end_s)
        took_s = course.end_s - course.at_s[0]
        if known.sum() < 2 or took_s <= 0:
            continue
        passed = (course.at_s[known] - course.at_s[0]) / took_s
        low = (course.forecast_from_s[known] - course.end_s) / took_s
        high = (course.forecast_to_s[known] - course.end_s) / took_s
        found.append((course, passed, low, high))
    return found


def draw_forecast(figure: Any, facts: RunFacts) -> None:
    """How the forecasts narrowed down to the ends, over all sites that have one."""
    axes = figure.subplots()
    steps = np.linspace(0.0, 1.0, 21)
    lows, highs = [], []
    for _, passed, low, high in forecast_errors(facts.courses):
        place = np.clip(np.searchsorted(passed, steps, side="right") - 1, 0, None)
        lows.append(np.where(steps >= passed[0], low[place], np.nan))
        highs.append(np.where(steps >= passed[0], high[place], np.nan))
    low, high = np.array(lows), np.array(highs)
    middle = (low + high) / 2
    with np.errstate(all="ignore"):
        axes.fill_between(
            100 * steps, 100 * _middle(low), 100 * _middle(high), color=PALE, label="range, median site"
        )
        axes.plot(100 * steps, 100 * _middle(middle), color=BLUE, label="its middle")
    axes.axhline(0, color=INK, linewidth=1.2)
    axes.set_xlim(0, 100)
    span = float(np.nanmax(np.abs(100 * np.concatenate([_middle(low), _middle(high)])), initial=10.0))
    axes.set_ylim(-min(span, 400) * 1.1, min(span, 400) * 1.1)
    axes.set_xlabel("% of the site's own time that had passed")
    axes.set_ylabel("% too early (−) or late (+)")
    axes.legend(loc="upper right")
    quiet(axes)


def _middle(values: Any) -> Any:
    """The median over sites; a step without any forecast stays empty."""
    empty = np.isnan(values).all(axis=0)
    return np.where(empty, np.nan, np.nanmedian(np.where(empty, 0.0, values), axis=0))


def draw_turns(figure: Any, facts: RunFacts) -> None:
    left, right = figure.subplots(1, 2)
    unit_s, unit = time_unit(facts.seconds)
    turns: Sequence[Turn] = facts.turns
    at = [(turn.from_s + facts.turn_s / 2) / unit_s for turn in turns]
    width = 0.86 * facts.turn_s / unit_s
    factor, prefix = data_unit(max([turn.wire_bytes for turn in turns], default=1))
    left.bar(at, [turn.pages for turn in turns], width, color=BLUE)
    right.bar(at, [turn.wire_bytes / factor for turn in turns], width, color=TEAL)
    length = format_duration(facts.turn_s).replace(".0 ", " ")
    left.set_title(f"pages every {length}")
    right.set_title(f"{prefix}B every {length}")
    for axes in (left, right):
        axes.set_xlabel(f"{unit} since the start")
        axes.set_xlim(left=0)
        quiet(axes)


def largest_types(types: Sequence[TypeCount]) -> list[TypeCount]:
    """The most frequent types; all others are summed up as one."""
    head, rest = list(types[:_MOST_TYPES]), types[_MOST_TYPES:]
    if rest:
        sums = [
            sum(values)
            for values in zip(*((t.pages, t.content_bytes, t.wire_bytes) for t in rest), strict=True)
        ]
        head.append(TypeCount(f"{len(rest)} others", *sums))
    return head


def draw_types(figure: Any, facts: RunFacts) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    types = largest_types(facts.types)
    factor, prefix = data_unit(max([each.content_bytes for each in types], default=1))
    names = [each.media_type[:40] for each in types]
    left.barh(names, [each.pages for each in types], color=BLUE, height=0.62)
    right.barh(names, [each.content_bytes / factor for each in types], color=TEAL, height=0.62)
    left.invert_yaxis()
    left.set_title("pages")
    right.set_title(f"{prefix}B of content")
    for axes in (left, right):
        quiet(axes, grid="x")


def troubles(outcomes: Sequence[OutcomeCount]) -> list[OutcomeCount]:
    return [each for each in outcomes if each.state in {"failed", "waiting"}][:_MOST_KINDS]


def draw_errors(figure: Any, facts: RunFacts) -> None:
    axes = figure.subplots()
    kinds = troubles(facts.outcomes)
    names = [each.kind + (" (tried again)" if each.state == "waiting" else "") for each in kinds]
    colours = [AMBER if each.state == "waiting" else RED for each in kinds]
    bars = axes.barh(names, [each.pages for each in kinds], color=colours, height=0.62)
    axes.bar_label(bars, padding=4, color=INK, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("attempts")
    quiet(axes, grid="x")


_PARTS = 24
_MOST_POINTS = 400
_MOST_DEPTH = 20


def shares(ranks: Ranks) -> tuple[Floats, Floats, Floats]:
    """Instants, and the fractions of all pages and of all PageRank fetched until then."""
    order = np.argsort(ranks.settled_s, kind="stable")
    pages = np.arange(1, len(order) + 1) / len(order)
    rank = np.cumsum(ranks.rank[order]) / ranks.rank.sum()
    chosen = np.unique(np.linspace(0, len(order) - 1, min(len(order), _MOST_POINTS)).astype(int))
    return ranks.settled_s[order][chosen], pages[chosen], rank[chosen]


def mean_by_time(ranks: Ranks, seconds: float) -> tuple[Floats, Floats]:
    """The mean PageRank of the pages of each period, in units of the mean over all pages."""
    part = np.clip((ranks.settled_s / max(seconds, 1e-9) * _PARTS).astype(int), 0, _PARTS - 1)
    pages = np.bincount(part, minlength=_PARTS)
    sums = np.bincount(part, weights=ranks.rank, minlength=_PARTS)
    has_any = pages > 0
    middle = (np.arange(_PARTS) + 0.5) * seconds / _PARTS
    return middle[has_any], sums[has_any] / pages[has_any] * len(ranks.rank)


def mean_by_depth(ranks: Ranks) -> tuple[Floats, Floats]:
    depth = np.minimum(ranks.depth, _MOST_DEPTH)
    pages = np.bincount(depth)
    sums = np.bincount(depth, weights=ranks.rank)
    has_any = pages > 0
    return np.flatnonzero(has_any).astype(float), sums[has_any] / pages[has_any] * len(ranks.rank)


def draw_shares(figure: Any, facts: RunFacts) -> None:
    axes = figure.subplots()
    assert facts.ranks is not None
    unit_s, unit = time_unit(facts.seconds)
    at, pages, rank = shares(facts.ranks)
    axes.plot(at / unit_s, 100 * rank, color=BLUE, label="PageRank")
    axes.plot(at / unit_s, 100 * pages, color=INK, linestyle="--", linewidth=1.4, label="pages")
    half = int(np.searchsorted(pages, 0.5))
    if half < len(pages):
        axes.plot(
            [at[half] / unit_s] * 2, [50, 100 * rank[half]], color=MUTED, linewidth=0.9, marker="o", ms=4
        )
        axes.annotate(
            f"with half of the pages,\n{rank[half]:.0%} of the PageRank",
            (at[half] / unit_s, 100 * rank[half]),
            xytext=(-6, 7),
            ha="right",
            textcoords="offset points",
            fontsize=8.5,
            color=MUTED,
        )
    axes.set_ylim(0, 102)
    axes.set_xlim(left=0)
    axes.set_ylabel("% of what the run fetched")
    axes.set_xlabel(f"{unit} since the start")
    axes.legend(loc="lower right")
    quiet(axes)


def draw_rank_by_time(figure: Any, facts: RunFacts) -> None:
    axes = figure.subplots()
    assert facts.ranks is not None
    unit_s, unit = time_unit(facts.seconds)
    at, mean = mean_by_time(facts.ranks, facts.seconds)
    axes.bar(at / unit_s, mean, 0.86 * facts.seconds / _PARTS / unit_s, color=BLUE)
    axes.axhline(1.0, color=INK, linewidth=1)
    axes.set_ylabel("mean PageRank (all pages: 1)")
    axes.set_xlabel(f"{unit} since the start")
    quiet(axes)


def draw_rank_by_depth(figure: Any, facts: RunFacts) -> None:
    axes = figure.subplots()
    assert facts.ranks is not None
    depth, mean = mean_by_depth(facts.ranks)
    axes.bar(depth, mean, 0.8, color=TEAL)
    axes.axhline(1.0, color=INK, linewidth=1)
    axes.set_ylabel("mean PageRank (all pages: 1)")
    axes.set_xlabel(
        "links from a seed" + (f" ({_MOST_DEPTH}: or more)" if depth.max() >= _MOST_DEPTH else "")
    )
    axes.xaxis.get_major_locator().set_params(integer=True)
    quiet(axes)


Rows = Iterable[Sequence[object]]


def _link(facts: RunFacts) -> Rows:
    link = facts.link
    yield "at_s", "rate_bytes_per_s", "highest_bytes_per_s", "bound_bytes_per_s", "predicted_bytes_per_s"
    columns = (
        link.at_s,
        link.rate_bytes_per_s,
        link.highest_bytes_per_s,
        link.bound_bytes_per_s,
        link.predicted_bytes_per_s,
    )
    yield from zip(*(column.tolist() for column in columns), strict=True)


def _sites(facts: RunFacts) -> Rows:
    yield ("site", "pages", "failed", "waiting", "wire_bytes", "start_s", "end_s", "deadline_s", "busy_s",
           "missed", "why")  # fmt: skip
    why = {each.site: each.sentence for each in facts.missed}
    for site in facts.sites:
        busy_s, _ = facts.busy[site.site]
        yield (site.site, site.done, site.failed, site.waiting, site.wire_bytes, site.start_s, site.end_s,
               site.deadline_s, busy_s, int(site.site in why), why.get(site.site, ""))  # fmt: skip


def _courses(facts: RunFacts) -> Rows:
    yield "site", "at_s", "allocated_bytes_per_s", "achieved_bytes_per_s"
    for course in planned(facts.courses):
        columns = (course.at_s, course.share_bytes_per_s, course.rate_bytes_per_s)
        for at_s, share, rate in zip(*columns, strict=True):
            yield course.site, at_s, share, rate


def _forecast(facts: RunFacts) -> Rows:
    yield "site", "passed_share", "from_error_share", "to_error_share"
    for course, passed, low, high in forecast_errors(facts.courses):
        for row in zip(passed, low, high, strict=True):
            yield course.site, *row


def _turns(facts: RunFacts) -> Rows:
    yield "from_s", "length_s", "pages", "wire_bytes"
    yield from ((turn.from_s, facts.turn_s, turn.pages, turn.wire_bytes) for turn in facts.turns)


def _types(facts: RunFacts) -> Rows:
    yield "media_type", "pages", "content_bytes", "wire_bytes"
    yield from ((each.media_type, each.pages, each.content_bytes, each.wire_bytes) for each in facts.types)


def _errors(facts: RunFacts) -> Rows:
    yield "state", "kind", "attempts"
    yield from ((each.state, each.kind, each.pages) for each in facts.outcomes)


def _shares(facts: RunFacts) -> Rows:
    yield "at_s", "share_of_pages", "share_of_pagerank"
    if facts.ranks is not None:
        yield from zip(*(column.tolist() for column in shares(facts.ranks)), strict=True)


def _rank_by_time(facts: RunFacts) -> Rows:
    yield "at_s", "mean_pagerank"
    if facts.ranks is not None:
        yield from zip(*(column.tolist() for column in mean_by_time(facts.ranks, facts.seconds)), strict=True)


def _rank_by_depth(facts: RunFacts) -> Rows:
    yield "depth", "mean_pagerank"
    if facts.ranks is not None:
        yield from zip(*(column.tolist() for column in mean_by_depth(facts.ranks)), strict=True)


TABLES: Mapping[str, Callable[[RunFacts], Rows]] = {
    "link": _link,
    "sites": _sites,
    "allocation": _courses,
    "forecast": _forecast,
    "pages": _turns,
    "types": _types,
    "errors": _errors,
    "pagerank": _shares,
    "pagerank-time": _rank_by_time,
    "pagerank-depth": _rank_by_depth,
}


def as_csv(rows: Rows) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, float | np.floating):
        number = float(value)
        return "" if not math.isfinite(number) else f"{number:.6g}" if abs(number) < 1e5 else f"{number:.1f}"
    if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"}:
        return f"'{value}"  # a spreadsheet would evaluate it as a formula
    return "" if value is None else value


_WIDE = 9.2


class Figure(msgspec.Struct, frozen=True):
    """A figure of the report: name, title, caption, how it is drawn, and whether there is data for it."""

    name: str
    title: str
    caption: Callable[[RunFacts], str]
    draw: Callable[[Any, RunFacts], None]
    has_data: Callable[[RunFacts], bool]
    size: Callable[[RunFacts], tuple[float, float]] = lambda _: (_WIDE, 3.2)


def _link_caption(facts: RunFacts) -> str:
    sums = facts.view.link
    caption = f"The link, second by second: mean {format_rate(sums.mean_bytes_per_s)}"
    if sums.use_of_bound is None:
        return f"{caption}; there was no bound."
    dotted = "Dotted: the predicted rate of the downloads in progress."
    return f"{caption}, {sums.use_of_bound:.0%} of the bound. {dotted}"


def _sites_caption(facts: RunFacts) -> str:
    started = sum(1 for site in facts.sites if site.start_s is not None)
    shown = min(MOST_BARS, started)
    of = f"{shown} of {started:,} sites" if shown < started else "Sites"
    return f"{of} from their first answer to their last; a dark mark is the deadline, red bars missed it."


def _sites_size(facts: RunFacts) -> tuple[float, float]:
    rows = min(MOST_BARS, sum(1 for site in facts.sites if site.start_s is not None))
    return _WIDE, 1.1 + 0.24 * max(rows, 2)


def _courses_size(facts: RunFacts) -> tuple[float, float]:
    shown = min(MOST_COURSES, len(planned(facts.courses)))
    return _WIDE, 0.5 + 1.9 * max(1, (shown + 1) // 2)


def _forecast_caption(facts: RunFacts) -> str:
    count = len(forecast_errors(facts.courses))
    return (
        f"Forecast ends of {count} sites against their real ends: the range narrows to zero, "
        "the real end, while more of a site becomes known."
    )


def _shares_caption(facts: RunFacts) -> str:
    assert facts.ranks is not None
    return (
        f"PageRank in the web of this run ({len(facts.ranks.rank):,} pages, {facts.ranks.links:,} links) as "
        "it was fetched: the further the line is above that of the pages, the earlier the good pages came "
        "(castillo2004, figure 8)."
    )


FIGURES = (
    Figure("link", "The link", _link_caption, draw_link, lambda facts: len(facts.link.at_s) > 1),
    Figure(
        "sites",
        "The sites and their deadlines",
        _sites_caption,
        draw_sites,
        lambda facts: any(site.start_s is not None for site in facts.sites),
        _sites_size,
    ),
    Figure(
        "allocation",
        "Allocated and achieved",
        lambda facts: (
            "What the allocation gave the largest sites, and what they received. A site does not use "
            "its share during its pauses, and gets more while others pause."
        ),
        draw_courses,
        lambda facts: bool(planned(facts.courses)),
        _courses_size,
    ),
    Figure(
        "forecast",
        "Forecast and outcome",
        _forecast_caption,
        draw_forecast,
        lambda facts: bool(forecast_errors(facts.courses)),
    ),
    Figure(
        "pages",
        "Pages over time",
        lambda facts: (
            "Pages and bytes of each period; a page counts when it is complete (cobweb1999, table 2)."
        ),
        draw_turns,
        lambda facts: bool(facts.turns),
        lambda _: (_WIDE, 2.7),
    ),
    Figure(
        "types",
        "Pages and bytes by type",
        lambda facts: "Media types of the fetched pages, by number and by size.",
        draw_types,
        lambda facts: bool(facts.types),
        lambda facts: (_WIDE, 1.0 + 0.3 * len(largest_types(facts.types))),
    ),
    Figure(
        "errors",
        "Errors by kind",
        lambda facts: "Failed attempts; those in amber were retried.",
        draw_errors,
        lambda facts: bool(troubles(facts.outcomes)),
        lambda facts: (_WIDE, 0.9 + 0.28 * len(troubles(facts.outcomes))),
    ),
    Figure(
        "pagerank",
        "How early the good pages were fetched",
        _shares_caption,
        draw_shares,
        lambda facts: facts.ranks is not None,
    ),
    Figure(
        "pagerank-time",
        "PageRank over time",
        lambda facts: "The mean PageRank of the pages of each part of the crawl (castillo2004, figure 9).",
        draw_rank_by_time,
        lambda facts: facts.ranks is not None,
        lambda _: (_WIDE, 2.7),
    ),
    Figure(
        "pagerank-depth",
        "PageRank by depth",
        lambda facts: "The mean PageRank of the pages by distance from a seed (castillo2004, figure 10).",
        draw_rank_by_depth,
        lambda facts: facts.ranks is not None,
        lambda _: (_WIDE, 2.7),
    ),
)
