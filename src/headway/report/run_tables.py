"""The figures' numbers as rows: for the CSV file beside each figure, and for the page's tables."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from headway.report.run_charts import achieved, foreseen, planned
from headway.report.run_facts import RunFacts
from headway.report.run_rank_charts import mean_by_depth, mean_by_time, shares

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
        yield (site.site, site.done, site.failed, site.waiting, site.wire_bytes, site.start_s, site.end_s,
               site.deadline_s, site.busy_s, int(site.site in why), why.get(site.site, ""))  # fmt: skip


def _courses(facts: RunFacts) -> Rows:
    yield "site", "at_s", "allocated_bytes_per_s", "achieved_bytes_per_s"
    for course in planned(facts.courses):
        got = achieved(course)
        for at_s, share, rate in zip(course.at_s, course.share_bytes_per_s, got, strict=True):
            yield course.site, at_s, share, rate


def _forecast(facts: RunFacts) -> Rows:
    yield "site", "passed_share", "from_error_share", "to_error_share"
    for course, passed, low, high in foreseen(facts.courses):
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
        return f"'{value}"  # a spreadsheet would take it for a formula
    return "" if value is None else value
