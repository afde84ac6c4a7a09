"""Which figures a report has: name, title, what each says, how it is drawn, and when there is data for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headway.report import run_charts as charts
from headway.report import run_rank_charts as rank_charts
from headway.report.run_facts import RunFacts
from headway.units import format_rate

_WIDE = 9.2


class Figure(msgspec.Struct, frozen=True):
    name: str
    title: str
    caption: Callable[[RunFacts], str]
    draw: Callable[[Any, RunFacts], None]
    has_data: Callable[[RunFacts], bool]
    size: Callable[[RunFacts], tuple[float, float]] = lambda _: (_WIDE, 3.2)


def _link_caption(facts: RunFacts) -> str:
    sums = facts.link_sums
    told = f"The link, second by second: mean {format_rate(sums.mean_bytes_per_s)}"
    if sums.use_of_bound is None:
        return f"{told}; there was no bound."
    dotted = "Dotted: what was predicted for the downloads under way."
    return f"{told}, {sums.use_of_bound:.0%} of the bound. {dotted}"


def _sites_caption(facts: RunFacts) -> str:
    started = sum(1 for site in facts.sites if site.start_s is not None)
    shown = min(charts.MOST_BARS, started)
    of = f"{shown} of {started:,} sites" if shown < started else "Sites"
    return f"{of} from their first answer to their last; the dark mark is the deadline, red has missed it."


def _sites_size(facts: RunFacts) -> tuple[float, float]:
    rows = min(charts.MOST_BARS, sum(1 for site in facts.sites if site.start_s is not None))
    return _WIDE, 1.1 + 0.24 * max(rows, 2)


def _courses_size(facts: RunFacts) -> tuple[float, float]:
    shown = min(charts.MOST_COURSES, len(charts.planned(facts.courses)))
    return _WIDE, 0.5 + 1.9 * max(1, (shown + 1) // 2)


def _forecast_caption(facts: RunFacts) -> str:
    count = len(charts.foreseen(facts.courses))
    return (
        f"When {count} sites were foreseen to end, against when they did: the range closes in on zero, "
        "the true end, as more of a site is known."
    )


def _shares_caption(facts: RunFacts) -> str:
    assert facts.ranks is not None
    return (
        f"PageRank in the web of this run ({len(facts.ranks.rank):,} pages, {facts.ranks.links:,} links) as "
        "it was fetched: the further the line is above that of the pages, the earlier the good ones came "
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
            "What the allocation gave the largest sites, and what they got. A polite site lends its "
            "share while it pauses, and borrows when others do."
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
        lambda facts: bool(charts.foreseen(facts.courses)),
    ),
    Figure(
        "pages",
        "Pages over time",
        lambda facts: (
            "How many pages and bytes each length of time brought, a page when it was complete (cobweb1999, "
            "table 2)."
        ),
        charts.draw_turns,
        lambda facts: bool(facts.turns),
        lambda _: (_WIDE, 2.7),
    ),
    Figure(
        "types",
        "Pages and bytes by type",
        lambda facts: "Media types of what was fetched, by pages and by content.",
        charts.draw_types,
        lambda facts: bool(facts.types),
        lambda facts: (_WIDE, 1.0 + 0.3 * len(charts.largest_types(facts.types))),
    ),
    Figure(
        "errors",
        "Errors by kind",
        lambda facts: "Attempts that failed; amber ones were tried again.",
        charts.draw_errors,
        lambda facts: bool(charts.troubles(facts.outcomes)),
        lambda facts: (_WIDE, 0.9 + 0.28 * len(charts.troubles(facts.outcomes))),
    ),
    Figure(
        "pagerank",
        "How early the good pages came",
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
        lambda facts: "The mean PageRank of the pages so many links from a seed (castillo2004, figure 10).",
        rank_charts.draw_rank_by_depth,
        lambda facts: facts.ranks is not None,
        lambda _: (_WIDE, 2.7),
    ),
)
