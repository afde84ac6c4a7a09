"""Why a site missed its deadline, in one sentence: from what the crawl itself has measured.

The causes are tried in the order in which they exclude each other: no answer at all, a person's order, a
crawl that was stopped, a late start, a server that asked us to slow down, a full link, manners, and last the
server's own speed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headway.policy.politeness import TROUBLE
from headway.report.run_facts import SiteFacts
from headway.units import format_duration, format_rate, format_size

_FULL_LINK = 0.85
_LATE_START = 0.4
_MANY_TROUBLES = 0.1
_BUSY = 0.5


class Circumstances(msgspec.Struct, frozen=True):
    """What there is to know beside the site's own sums."""

    state: str
    seconds: float
    """How long the crawl has lasted."""
    link_use: float | None
    """Of the bound, while the site was crawled; None without a bound."""
    interval_s: float
    """Between two requests to a site, as the job asks for."""
    troubles: Sequence[tuple[str, int]] = ()
    """Failed attempts by kind, most frequent first."""
    foreseen_s: float | None = None
    """When the crawl first said that the deadline would be missed."""


def why(site: SiteFacts, around: Circumstances) -> str:
    assert site.deadline_s is not None
    cause = _cause(site, around, site.deadline_s)
    if around.foreseen_s is not None and around.foreseen_s < site.deadline_s:
        early_s = site.deadline_s - around.foreseen_s
        return f"{cause}; this was foreseen {format_duration(early_s)} before the deadline."
    return f"{cause}."


def _cause(site: SiteFacts, around: Circumstances, deadline_s: float) -> str:
    troubles = sum(count for _, count in around.troubles)
    if not site.done and troubles:
        kind, count = around.troubles[0]
        return f"Nothing could be had of it: {_times(count)} the answer was {kind}"
    if site.is_stopped:
        return f"It was stopped by order, {_amount(site)} having come"
    start_s = site.start_s
    if start_s is None:
        return "It was never asked: its turn did not come, or its robots.txt was not to be had"
    if site.end_s is None and around.state != "running" and around.seconds <= deadline_s:
        return f"The crawl was stopped before the deadline with {site.waiting} pages of it waiting"
    if start_s > _LATE_START * deadline_s:
        return f"It was begun only {format_duration(start_s)} after the crawl, others coming before it"
    return _slow(site, around, deadline_s)


def _slow(site: SiteFacts, around: Circumstances, deadline_s: float) -> str:
    assert site.start_s is not None
    end_s = site.end_s if site.end_s is not None else around.seconds
    span_s = max(1e-3, end_s - site.start_s)
    needed = site.wire_bytes / max(1e-3, deadline_s - site.start_s)
    got = f"It got {format_rate(site.wire_bytes / span_s)}"
    if site.waiting:
        got += f" with {site.waiting} pages still waiting"
    else:
        got += f" and needed {format_rate(needed)} for its {format_size(site.wire_bytes)}"
    # A page that is missing costs no more than another; a server in trouble is left alone for a while.
    costly = [(kind, count) for kind, count in around.troubles if kind in TROUBLE]
    costs = sum(count for _, count in costly)
    if site.answers and costs > _MANY_TROUBLES * site.answers:
        kind, count = costly[0]
        return f"{got}; {costs} of its answers were failures ({count} {kind}), each followed by a pause"
    if around.link_use is not None and around.link_use >= _FULL_LINK:
        return f"{got}; the link was full ({around.link_use:.0%} of the bound) all the while"
    gap_s = max(0.0, span_s - site.busy_s) / max(1, site.answers)
    answer_s = site.busy_s / max(1, site.answers)
    if site.busy_s < _BUSY * span_s:
        pause = (
            f"the interval of {format_duration(around.interval_s)}"
            if gap_s < 2 * around.interval_s
            else f"pauses of {format_duration(gap_s)} (crawl delay, back-off or waiting for its turn)"
        )
        return f"{got}; {pause} between {site.answers} answers took {format_duration(gap_s * site.answers)}"
    return f"{got}; its server took {format_duration(answer_s)} for an answer, the link having room to spare"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _amount(site: SiteFacts) -> str:
    return f"{site.done} pages ({format_size(site.wire_bytes)})"
