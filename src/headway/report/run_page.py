"""The report as one HTML file that needs nothing else: no script, no font, no picture from anywhere.

Everything from the crawled web goes through `esc`; the policy in the head forbids scripts altogether.
"""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from headway.report.run_charts import largest_types
from headway.report.run_facts import RunFacts, SiteFacts
from headway.report.run_figures import FIGURES, Figure
from headway.units import format_duration, format_rate, format_size
from headway.version import __version__

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
    """`drawings` are the figures by name, as SVG that is part of a page."""
    style = resources.files(__package__).joinpath("run_style.css").read_text(encoding="utf-8")
    parts = [_head(facts), _tiles(facts), _missed(facts)]
    parts += [_figure(figure, facts, drawings[figure.name]) for figure in FIGURES if figure.name in drawings]
    parts += [_collected(facts), _referenced(facts), _site_table(facts)]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{esc(facts.name)}: report of a crawl</title>
<style>{style}</style>
</head>
<body>
{"".join(parts)}
<footer>Made by headway {esc(__version__)} from the run folder {esc(facts.name)}.</footer>
</body>
</html>
"""


def _head(facts: RunFacts) -> str:
    begun = dt.datetime.fromtimestamp(facts.started_at, dt.UTC)
    return (
        f"<header><h1>{esc(facts.name)} "
        f"<span class='pill {esc(facts.state)}'>{esc(_STATES[facts.state])}</span></h1>"
        f"<p class='muted'>begun {begun:%Y-%m-%d %H:%M:%S} UTC, {format_duration(facts.seconds)}"
        f"</p><p class='lead'>{esc(verdict(facts))}</p></header>"
    )


def verdict(facts: RunFacts) -> str:
    """The whole run in two or three sentences."""
    if not facts.done and not facts.failed:
        return "Nothing has been fetched yet."
    with_deadline = [site for site in facts.sites if site.deadline_s is not None]
    missed = len(facts.missed)
    met = sum(1 for site in with_deadline if site.end_s is not None) - sum(
        1 for each in facts.missed if each.late_s is not None
    )
    told = f"{facts.done:,} pages of {len(facts.sites):,} sites, {format_size(facts.wire_bytes)}."
    if not with_deadline:
        told += " No site had a deadline."
    elif not missed and met == len(with_deadline):
        told += f" All {met:,} deadlines were met."
    else:
        open_ones = len(with_deadline) - met - missed
        were = "was" if met == 1 else "were"
        told += f" Of {len(with_deadline):,} deadlines {met:,} {were} met and {missed:,} missed"
        told += f"; {open_ones:,} {'is' if open_ones == 1 else 'are'} still to come." if open_ones else "."
    sums = facts.link_sums
    if sums.use_of_bound is not None and sums.most_over_bound is not None:
        over = sums.most_over_bound
        peak = f"{over:.1%} over it" if over > 0 else f"{-over:.1%} under it"
        told += f" The link was used to {sums.use_of_bound:.0%} of its bound, its highest second {peak}."
    return told


def _tiles(facts: RunFacts) -> str:
    sums = facts.link_sums
    met = sum(1 for site in facts.sites if site.deadline_s is not None and site.end_s is not None)
    met -= sum(1 for each in facts.missed if each.late_s is not None)
    each = f", {facts.done / facts.servers:,.0f} pages each" if facts.servers else ""
    tiles = (
        ("Pages", f"{facts.done:,}", f"{facts.failed:,} failed, {facts.waiting:,} waiting"),
        ("Data", format_size(facts.wire_bytes), "over the link"),
        ("Sites", f"{len(facts.sites):,}", f"{facts.servers:,} servers met{each}"),
        ("Mean rate", format_rate(sums.mean_bytes_per_s), f"highest {format_rate(sums.highest_bytes_per_s)}"),
        ("Deadlines met", f"{met:,}", f"{len(facts.missed):,} missed"),
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
    """The last `numbers` columns hold figures."""
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
    if not facts.done and not facts.failed:
        return ""
    seconds = max(facts.seconds, 1e-9)
    visited = sum(1 for site in facts.sites if site.done)
    rates = [
        ("Pages a second", f"{facts.done / seconds:,.2f}"),
        ("Pages a day at that rate", f"{86400 * facts.done / seconds:,.0f}"),
        ("Mean page on the wire", format_size(facts.wire_bytes / max(1, facts.done))),
        ("Sites that gave pages", f"{visited:,}"),
        ("Pages a site, mean", f"{facts.done / max(1, visited):,.1f}"),
        ("URLs found and not yet asked for", f"{facts.waiting:,}"),
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
        f"<div><h3>HTTP answers that were errors</h3>{table(('status', '', 'pages'), errors, 1)}</div>"
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
    late = {each.site: each for each in facts.missed}
    chosen = sorted(facts.sites, key=lambda site: (site.site not in late, -site.wire_bytes))[:_MOST_SITES]
    rows = [
        (
            site.site,
            _verdict(site, site.site in late, facts),
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


def _verdict(site: SiteFacts, is_missed: bool, facts: RunFacts) -> str:
    if is_missed:
        return "missed"
    if site.is_stopped:
        return "stopped"
    if site.end_s is None:
        return "under way" if facts.state == "running" else "open"
    if not site.done and site.failed:
        return "unreachable"
    return "met" if site.deadline_s is not None else "done"
