"""The report as one HTML file that needs no other file, and its figures as files beside it."""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path

from headway.errors import StoreError
from headway.report.canvas import write_figure
from headway.report.run_charts import FIGURES, TABLES, Figure, as_csv, largest_types
from headway.store.rounds import CHANGES, counts_of
from headway.units import format_duration, format_rate, format_size
from headway.version import __version__
from headway.view.reporting import RunFacts
from headway.view.run import RunView, SiteState

# No script, font or picture is loaded. All text from the crawled web passes through `esc`, and the policy in
# the head forbids scripts altogether.

_MOST_SITES = 200
_MOST_MISSED = 200
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STATES = {
    "running": "still running",
    "finished": "finished",
    "stopped": "stopped, with pages waiting",
}


def esc(text: object) -> str:
    return html.escape(str(text), quote=True)


def page(facts: RunFacts, drawings: Mapping[str, str]) -> str:
    """`drawings` are the figures by name, as SVG."""
    style = resources.files(__package__).joinpath("run_style.css").read_text(encoding="utf-8")
    parts = [_head(facts), _tiles(facts), _missed(facts), _rounds(facts)]
    parts += [_figure(figure, facts, drawings[figure.name]) for figure in FIGURES if figure.name in drawings]
    parts += [_collected(facts), _referenced(facts), _site_table(facts), _politeness(facts)]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{esc(facts.view.name)}: report of {_what(facts)}</title>
<style>{style}</style>
</head>
<body>
{"".join(parts)}
<footer>Made by headway {esc(__version__)} from the run folder {esc(facts.view.name)}.</footer>
</body>
</html>
"""


def _head(facts: RunFacts) -> str:
    begun = dt.datetime.fromtimestamp(facts.view.started_at, dt.UTC)
    return (
        f"<header><h1>{esc(facts.view.name)}{_of_round(facts)} "
        f"<span class='pill {esc(facts.view.state)}'>{esc(_STATES[facts.view.state])}</span></h1>"
        f"<p class='muted'>begun {begun:%Y-%m-%d %H:%M:%S} UTC, {format_duration(facts.seconds)}"
        f"{_sittings(facts.view)}</p><p class='lead'>{esc(verdict(facts))}</p></header>"
    )


def _what(facts: RunFacts) -> str:
    return "a crawl" if facts.round_number is None else f"round {facts.round_number}"


def _of_round(facts: RunFacts) -> str:
    return "" if facts.round_number is None else f", round {facts.round_number} of {len(facts.rounds)}"


def verdict(facts: RunFacts) -> str:
    """A summary of the run in two or three sentences."""
    if not facts.view.done and not facts.view.failed:
        return "Nothing has been fetched yet."
    deadlines = facts.view.deadlines
    text = f"{facts.view.done:,} pages of {len(facts.sites):,} sites, {format_size(facts.view.wire_bytes)}."
    if not deadlines.all:
        text += " No site had a deadline."
    elif deadlines.met == deadlines.all:
        text += f" All {deadlines.met:,} deadlines were met."
    else:
        were = "was" if deadlines.met == 1 else "were"
        text += f" Of {deadlines.all:,} deadlines {deadlines.met:,} {were} met"
        text += f" and {deadlines.all_missed:,} missed"
        are = "is" if deadlines.to_come == 1 else "are"
        text += f"; {deadlines.to_come:,} {are} still to come." if deadlines.to_come else "."
    sums = facts.view.link
    if sums.use_of_bound is not None and sums.most_over_bound is not None:
        over = sums.most_over_bound
        peak = f"{over:.1%} over it" if over > 0 else f"{-over:.1%} under it"
        text += f" The link was used to {sums.use_of_bound:.0%} of its bound, its highest second {peak}."
    if facts.view.link.sharing is not None:
        text += f" The crawl {facts.view.link.sharing.so_far()}."
    return text


def _tiles(facts: RunFacts) -> str:
    sums = facts.view.link
    each = f", {facts.view.done / facts.servers:,.0f} pages each" if facts.servers else ""
    tiles = (
        ("Pages", f"{facts.view.done:,}", f"{facts.view.failed:,} failed, {facts.view.waiting:,} waiting"),
        ("Data", format_size(facts.view.wire_bytes), "over the link"),
        ("Sites", f"{len(facts.sites):,}", f"{facts.servers:,} servers contacted{each}"),
        ("Mean rate", format_rate(sums.mean_bytes_per_s), f"highest {format_rate(sums.max_bytes_per_s)}"),
        (
            "Deadlines met",
            f"{facts.view.deadlines.met:,}",
            f"{facts.view.deadlines.all_missed:,} missed",
        ),
    )
    return (
        "<section class='tiles'>"
        + "".join(
            f"<div class='tile'><h2>{esc(name)}</h2><p class='big'>{esc(figure)}</p>"
            f"<p class='muted'>{esc(note)}</p></div>"
            for name, figure, note in tiles
        )
        + "</section>"
    )


def _missed(facts: RunFacts) -> str:
    if not facts.missed:
        return ""
    items = "".join(
        f"<li><b>{esc(each.site)}</b> <span class='late'>{_late(each.late_s)}</span><br>"
        f"{esc(each.sentence)}</li>"
        for each in facts.missed[:_MOST_MISSED]
    )
    more = len(facts.missed) - _MOST_MISSED
    note = f"<p class='muted'>{more:,} more are in sites.csv.</p>" if more > 0 else ""
    return f"<section><h2>Missed deadlines, and why</h2><ul class='missed'>{items}</ul>{note}</section>"


_MOST_ROUNDS = 60


def _rounds(facts: RunFacts) -> str:
    """What each night found, the last ones first."""
    if len(facts.rounds) < 2:
        return ""
    rows = []
    for each in reversed(facts.rounds[-_MOST_ROUNDS:]):
        result = each.result
        began = f"{dt.datetime.fromtimestamp(each.started_at, dt.UTC):%Y-%m-%d %H:%M}"
        if result is None:
            rows.append([each.number, began, *[""] * (len(CHANGES) + 3)])
            continue
        counts = [f"{count:,}" for count in counts_of(result).values()]
        rows.append([each.number, began, *counts, format_size(result.wire_bytes), result.met, result.missed])
    header = ("Round", "Begun (UTC)", *(change.capitalize() for change in CHANGES), "Data", "Met", "Missed")
    more = len(facts.rounds) - _MOST_ROUNDS
    note = f"<p class='muted'>{more:,} earlier rounds are not shown.</p>" if more > 0 else ""
    return f"<section><h2>Rounds</h2>{table(header, rows, len(CHANGES) + 3)}{note}</section>"


def _late(late_s: float | None) -> str:
    if late_s is None:
        return "not there yet"
    return f"{format_duration(late_s)} late" if late_s > 0 else "nothing fetched"


def _figure(figure: Figure, facts: RunFacts, drawing: str) -> str:
    files = " · ".join(
        f"<a href='{figure.name}.{ending}'>{ending.upper()}</a>" for ending in ("png", "svg", "csv")
    )
    caption = figure.caption(facts)
    return (
        f"<section><h2>{esc(figure.title)}</h2><figure role='img' aria-label='{esc(caption)}'>{drawing}"
        f"<figcaption>{esc(caption)} <span class='files'>{files}</span></figcaption></figure></section>"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]], numbers: int) -> str:
    """The last `numbers` columns contain numbers."""
    first = len(header) - numbers
    cells = [
        "<tr>"
        + "".join(
            f"<td class='number'>{esc(cell)}</td>" if place >= first else f"<td>{esc(cell)}</td>"
            for place, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    ]
    head = "".join(
        f"<th scope='col'{' class=number' if place >= first else ''}>{esc(name)}</th>"
        for place, name in enumerate(header)
    )
    body = "".join(cells)
    return f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _collected(facts: RunFacts) -> str:
    """cobweb1999's tables 2, 4, 5 and 6."""
    if not facts.view.done and not facts.view.failed:
        return ""
    visited = sum(1 for site in facts.sites if site.done)
    rates = [
        ("Pages per second", f"{facts.view.pages_per_s:,.2f}"),
        ("Pages per day at that rate", f"{86400 * facts.view.pages_per_s:,.0f}"),
        ("Mean page on the wire", format_size(facts.view.page_bytes)),
        ("Sites with pages", f"{visited:,}"),
        ("Mean pages per site", f"{facts.view.done / max(1, visited):,.1f}"),
        ("URLs found and not yet requested", f"{facts.view.waiting:,}"),
    ]
    types = [
        (
            each.media_type,
            f"{each.pages:,}",
            format_size(each.content_bytes),
            format_size(each.content_bytes / max(1, each.pages)),
        )
        for each in largest_types(facts.types)
    ]
    errors = [(status, _STATUS.get(status, ""), f"{count:,}") for status, count in _by_status(facts)]
    kinds = [
        (
            each.kind,
            {"waiting": "tried again", "excluded": "passed over"}.get(each.state, "given up"),
            f"{each.pages:,}",
        )
        for each in facts.outcomes
        if each.state != "done"
    ][:20]
    return (
        "<section><h2>What was collected</h2><div class='columns'>"
        f"<div><h3>Rates and sizes</h3>{table(('', ''), rates, 1)}</div>"
        f"<div><h3>Types</h3>{table(('type', 'pages', 'content', 'mean'), types, 3)}</div>"
        f"<div><h3>HTTP errors</h3>{table(('status', '', 'pages'), errors, 1)}</div>"
        f"<div><h3>Everything not fetched</h3>{table(('kind', 'became', 'attempts'), kinds, 1)}</div>"
        "</div></section>"
    )


_STATUS = {
    400: "bad request",
    401: "login needed",
    403: "forbidden",
    404: "not found",
    410: "gone",
    429: "too many requests",
    500: "server error",
    502: "bad gateway",
    503: "not available",
    504: "gateway timed out",
}


def _by_status(facts: RunFacts) -> list[tuple[int, int]]:
    counts: dict[int, int] = {}
    for status, _, count in facts.statuses:
        if status >= 400:
            counts[status] = counts.get(status, 0) + count
    return sorted(counts.items(), key=lambda item: -item[1])[:12]


def _referenced(facts: RunFacts) -> str:
    if not facts.referenced:
        return ""
    rows = [
        (each.url, "" if each.is_fetched else "not fetched", f"{each.links:,}") for each in facts.referenced
    ]
    return f"<section><h2>Most referenced</h2>{table(('page', '', 'links to it'), rows, 1)}</section>"


def _site_table(facts: RunFacts) -> str:
    if not facts.sites:
        return ""
    chosen = sorted(facts.sites, key=lambda site: (not site.is_missed, -site.wire_bytes))[:_MOST_SITES]
    rows = [
        (
            site.site,
            _verdict(site, facts),
            "" if site.deadline_s is None else format_duration(site.deadline_s),
            "" if site.end_s is None else format_duration(site.end_s),
            f"{site.done:,}",
            f"{site.failed:,}",
            f"{site.waiting:,}",
            format_size(site.wire_bytes),
        )
        for site in chosen
    ]
    header = ("site", "", "deadline", "ended", "pages", "failed", "waiting", "data")
    more = len(facts.sites) - len(chosen)
    note = f"<p class='muted'>{more:,} more are in sites.csv.</p>" if more > 0 else ""
    return f"<section><h2>Sites</h2>{table(header, rows, 6)}{note}</section>"


def _politeness(facts: RunFacts) -> str:
    """For those who ask what a crawl did to their servers."""
    if not facts.politeness:
        return ""
    rows = [
        (
            each.domain,
            f"{each.sites:,}",
            f"{each.requests:,}",
            "" if each.shortest_pause_s is None else f"{each.shortest_pause_s:.3f} s",
            f"{each.throttled:,}",
            f"{each.blocked:,}",
            f"{each.denied:,}",
        )
        for each in facts.politeness[:_MOST_SITES]
    ]
    header = ("domain", "sites", "requests", "shortest pause", "asked to wait", "blocked", "denied")
    more = len(facts.politeness) - len(rows)
    note = f" {more:,} more domains had longer pauses." if more > 0 else ""
    interval = "" if facts.interval_s is None else f" The interval of the job is {facts.interval_s:g} s."
    return (
        "<section><h2>Politeness</h2><p class='muted'>From the end of an answer to the next request to any"
        " site of a registered domain, or to a port of an address, without those for robots.txt."
        f"{interval}{note}</p>"
        f"{table(header, rows, 6)}</section>"
    )


def _verdict(site: SiteState, facts: RunFacts) -> str:
    return "in progress" if site.verdict == "open" and facts.view.is_live else site.verdict


def _sittings(view: RunView) -> str:
    if view.link.sittings < 2:
        return ""
    return f", {format_duration(view.link.active_s)} of them crawling in {view.link.sittings} sessions"


PAGE = "report.html"


def write_report(facts: RunFacts, folder: Path) -> Path:
    """Write the report and return its path. Figures without data are omitted, and older files of that name
    removed."""
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        drawings = {}
        for figure in FIGURES:
            if figure.has_data(facts):
                (folder / f"{figure.name}.csv").write_text(
                    as_csv(TABLES[figure.name](facts)), encoding="utf-8"
                )
                draw = partial(_draw, figure.draw, facts)
                drawings[figure.name] = write_figure(draw, figure.size(facts), folder, figure.name)
            else:
                for ending in ("png", "svg", "csv"):
                    (folder / f"{figure.name}.{ending}").unlink(missing_ok=True)
        fresh = folder / f".{PAGE}.new"
        fresh.write_text(page(facts, drawings), encoding="utf-8")
        fresh.replace(folder / PAGE)
    except OSError as problem:
        raise StoreError(f"{folder}: the report cannot be written: {problem.strerror}") from None
    return folder / PAGE


def _draw(draw: object, facts: RunFacts, figure: object) -> None:
    assert callable(draw)
    draw(figure, facts)
