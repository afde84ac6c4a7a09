"""Which figures a report has: name, title, what each says, how it is drawn, and its numbers as rows."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from headway.report import run_charts as charts
from headway.report import run_charts as rank_charts
from headway.report.run_charts import forecast_errors, mean_by_depth, mean_by_time, planned, shares
from headway.units import format_rate
from headway.view.run_facts import RunFacts

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
    shown = min(charts.MOST_BARS, started)
    of = f"{shown} of {started:,} sites" if shown < started else "Sites"
    return f"{of} from their first answer to their last; a dark mark is the deadline, red bars missed it."


def _sites_size(facts: RunFacts) -> tuple[float, float]:
    rows = min(charts.MOST_BARS, sum(1 for site in facts.sites if site.start_s is not None))
    return _WIDE, 1.1 + 0.24 * max(rows, 2)


def _courses_size(facts: RunFacts) -> tuple[float, float]:
    shown = min(charts.MOST_COURSES, len(charts.planned(facts.courses)))
    return _WIDE, 0.5 + 1.9 * max(1, (shown + 1) // 2)


def _forecast_caption(facts: RunFacts) -> str:
    count = len(charts.forecast_errors(facts.courses))
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
    Figure("link", "The link", _link_caption, charts.draw_link, lambda facts: len(facts.link.at_s) > 1),
    Figure(
        "sites",
        "The sites and their deadlines",
        _sites_caption,
        charts.draw_sites,
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
        charts.draw_courses,
        lambda facts: bool(charts.planned(facts.courses)),
        _courses_size,
    ),
    Figure(
        "forecast",
        "Forecast and outcome",
        _forecast_caption,
        charts.draw_forecast,
        lambda facts: bool(charts.forecast_errors(facts.courses)),
    ),
    Figure(
        "pages",
        "Pages over time",
        lambda facts: (
            "Pages and bytes of each period; a page counts when it is complete (cobweb1999, table 2)."
        ),
        charts.draw_turns,
        lambda facts: bool(facts.turns),
        lambda _: (_WIDE, 2.7),
    ),
    Figure(
        "types",
        "Pages and bytes by type",
        lambda facts: "Media types of the fetched pages, by number and by size.",
        charts.draw_types,
        lambda facts: bool(facts.types),
        lambda facts: (_WIDE, 1.0 + 0.3 * len(charts.largest_types(facts.types))),
    ),
    Figure(
        "errors",
        "Errors by kind",
        lambda facts: "Failed attempts; those in amber were retried.",
        charts.draw_errors,
        lambda facts: bool(charts.troubles(facts.outcomes)),
        lambda facts: (_WIDE, 0.9 + 0.28 * len(charts.troubles(facts.outcomes))),
    ),
    Figure(
        "pagerank",
        "How early the good pages were fetched",
        _shares_caption,
        rank_charts.draw_shares,
        lambda facts: facts.ranks is not None,
    ),
    Figure(
        "pagerank-time",
        "PageRank over time",
        lambda facts: "The mean PageRank of the pages of each part of the crawl (castillo2004, figure 9).",
        rank_charts.draw_rank_by_time,
        lambda facts: facts.ranks is not None,
        lambda _: (_WIDE, 2.7),
    ),
    Figure(
        "pagerank-depth",
        "PageRank by depth",
        lambda facts: "The mean PageRank of the pages by distance from a seed (castillo2004, figure 10).",
        rank_charts.draw_rank_by_depth,
        lambda facts: facts.ranks is not None,
        lambda _: (_WIDE, 2.7),
    ),
)
