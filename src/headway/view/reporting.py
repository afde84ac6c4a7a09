"""The facts of a run for its report, as plain values from tables and decision log, with the link graph and
the reasons for missed deadlines."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from headway.errors import StoreError, UnitError
from headway.model.command import Decision
from headway.policy.ordering.ranked import pagerank
from headway.policy.politeness import TROUBLE
from headway.store.reader import RunReader, RunSums
from headway.store.rounds import Round, period_of, rounds_of
from headway.store.run_folder import DECISIONS
from headway.units import format_duration, format_rate, format_size, parse_duration
from headway.view.link import LinkHistory, LinkSecond
from headway.view.run import DeadlineCounts, Outlook, Phase, RunMonitor, RunView, SiteState
from headway.view.summary import DomainPoliteness, politeness_of

Floats = NDArray[np.float64]


class SiteHistory(msgspec.Struct, frozen=True):
    """The history of one site: arrays of the same length, NaN where nothing was planned."""

    site: str
    at_s: Floats
    rate_bytes_per_s: Floats
    """The rate received until each instant, since the one before."""
    share_bytes_per_s: Floats
    forecast_from_s: Floats
    forecast_to_s: Floats
    end_s: float | None


class Link(msgspec.Struct, frozen=True):
    """The link, in steps of at least a second from `from_s` to `at_s`. Between two sessions there is none."""

    from_s: Floats
    at_s: Floats
    rate_bytes_per_s: Floats
    highest_bytes_per_s: Floats
    """The highest second of each step."""
    bound_bytes_per_s: Floats
    """Infinite without a bound."""
    predicted_bytes_per_s: Floats
    """NaN where nothing was planned."""
    step_s: float = 1.0
    bounds: Sequence[tuple[float, float]] = ()
    """Since when each bound held."""


class Turn(msgspec.Struct, frozen=True):
    """A period: an hour or a day (cobweb1999, table 2)."""

    from_s: float
    pages: int
    wire_bytes: int


class TypeCount(msgspec.Struct, frozen=True):
    media_type: str
    pages: int
    content_bytes: int
    wire_bytes: int


class OutcomeCount(msgspec.Struct, frozen=True):
    state: str
    kind: str
    pages: int


class Referenced(msgspec.Struct, frozen=True):
    url: str
    links: int
    is_fetched: bool


class Ranks(msgspec.Struct, frozen=True):
    """Fetched pages in the order of settling, and the PageRank of each in the web of the run."""

    settled_s: Floats
    rank: Floats
    depth: NDArray[np.int64]
    links: int


class Missed(msgspec.Struct, frozen=True):
    site: str
    deadline_s: float
    late_s: float | None
    """None: it has not ended yet."""
    sentence: str


class Mark(msgspec.Struct, frozen=True):
    """An order of a person, or a change of the bound."""

    at_s: float
    text: str


class RunFacts(msgspec.Struct, frozen=True):
    view: RunView
    link: Link
    busy: Mapping[str, tuple[float, int]]
    """For each site, how long it answered requests, and how many it answered."""
    turns: Sequence[Turn]
    turn_s: float
    types: Sequence[TypeCount]
    statuses: Sequence[tuple[int, str, int]]
    outcomes: Sequence[OutcomeCount]
    servers: int
    referenced: Sequence[Referenced]
    ranks: Ranks | None
    courses: Sequence[SiteHistory]
    """The sites with the most data."""
    missed: Sequence[Missed]
    marks: Sequence[Mark] = ()
    rounds: Sequence[Round] = ()
    politeness: Sequence[DomainPoliteness] = ()
    """What each domain was asked, those with the shortest pauses first."""
    interval_s: float | None = None
    """Of the job."""
    timezone: str | None = None
    """Of the job; None: that of the machine."""
    round_number: int | None = None
    """The earlier round of which the facts are; None: the current one."""

    @property
    def seconds(self) -> float:
        """The length of the time axis of the figures."""
        return self.view.elapsed_s

    @property
    def sites(self) -> Sequence[SiteState]:
        return self.view.sites


_MOST_SITES = 400
_FEWEST_ROWS = 3


def histories_of(sums: RunSums, sites: Sequence[SiteState], until: float = math.inf) -> list[SiteHistory]:
    """The sites with the most data, if there is enough to draw."""
    largest = sorted(sites, key=lambda site: -site.wire_bytes)[:_MOST_SITES]
    courses = []
    for site in largest:
        table = np.array(
            [
                [np.nan if cell is None else cell for cell in each]
                for each in sums.course(site.number)
                if site.began_at <= each[0] < until
            ]
        )
        if len(table) >= _FEWEST_ROWS:
            courses.append(_history(site, table))
    return courses


def _history(site: SiteState, table: Floats) -> SiteHistory:
    at, wire_bytes, _, _, share, from_at, to_at = table.T
    began_at = site.began_at
    return SiteHistory(
        site.site,
        at - began_at,
        _rates(at, wire_bytes),
        share,
        from_at - began_at,
        to_at - began_at,
        site.end_s,
    )


def _rates(at: Floats, wire_bytes: Floats) -> Floats:
    """Rows are further and further apart; each rate is the mean since the row before."""
    lengths, carried = np.diff(at, prepend=at[0] - 1.0), np.diff(wire_bytes, prepend=wire_bytes[0])
    rates: Floats = np.maximum(0.0, carried / np.maximum(lengths, 1e-6))
    return rates


_WORD = re.compile(rb'"decision":"(?:foresee-late"|order-|set-capacity")')
_BLOCK_BYTES = 8 * 1024 * 1024
_HEAD_BYTES = 80
"""The word is near the start of its line."""
_MOST_MARKS = 200


class LoggedDecisions(msgspec.Struct, frozen=True):
    """What a report needs from the decision log: orders, changes of the bound, and forecast delays.

    The log has a line for every page, so lines are selected before they are parsed.
    """

    marks: list[Mark]
    forecast_late_s: dict[str, float]
    """When each site was first forecast to be late, in seconds since the start of the crawl."""


def read_decisions(folder: Path, started_at: float, until: float = math.inf) -> LoggedDecisions:
    found = LoggedDecisions([], {})
    decoder = msgspec.json.Decoder(Decision)
    try:
        with (folder / DECISIONS).open("rb") as file:
            for line in _interesting_lines(file):
                try:
                    decision = decoder.decode(line)
                    if decision.at < until:
                        _take_in(found, decision, started_at)
                except msgspec.DecodeError:
                    continue  # half a line, at the end of a log that is being written
    except OSError:
        pass
    return found


def _interesting_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Whole lines with one of the words at the start; the millions of others are not even split."""
    rest = b""
    while block := file.read(_BLOCK_BYTES):
        text = rest + block
        end = text.rfind(b"\n") + 1
        rest = text[end:]
        for found in _WORD.finditer(text, 0, end):
            begin = text.rfind(b"\n", 0, found.start()) + 1
            if found.start() - begin < _HEAD_BYTES:
                yield text[begin : text.index(b"\n", found.start())]


def _take_in(found: LoggedDecisions, decision: Decision, started_at: float) -> None:
    at_s = decision.at - started_at
    if at_s < 0:
        return  # of an earlier round
    if decision.decision == "foresee-late":
        found.forecast_late_s.setdefault(decision.site, at_s)
    elif len(found.marks) < _MOST_MARKS:
        found.marks.append(Mark(at_s, _text(decision)))


def _text(decision: Decision) -> str:
    if decision.decision == "set-capacity":
        bound = decision.capacity_bytes_per_s
        return f"bound {format_rate(bound)}" if bound is not None else "no bound"
    name = decision.site.partition("://")[2]
    return f"{decision.decision.removeprefix('order-')} {name}".strip()


# Why a site missed its deadline, in one sentence, from what the crawl itself has measured.
#
# The causes are tried in the order in which they exclude each other: no answer at all, an order of a person,
# a crawl that was stopped, a late start, a server that asked headway to slow down, a full link, politeness,
# and last the server's own speed.

_FULL_LINK = 0.85
_LATE_START = 0.4
_MANY_TROUBLES = 0.1
_BUSY = 0.5


class Circumstances(msgspec.Struct, frozen=True):
    """What is known beside the site's own sums."""

    state: str
    seconds: float
    """How long the crawl has lasted."""
    link_use: float | None
    """Of the bound, while the site was crawled; None without a bound."""
    interval_s: float
    """Between two requests to a site, as in the job."""
    troubles: Sequence[tuple[str, int]] = ()
    """Failed attempts by kind, most frequent first."""
    forecast_late_s: float | None = None
    """When the crawl first said that the deadline would be missed."""
    busy_s: float = 0.0
    """The total time in which the site answered requests."""
    answers: int = 0


def why(site: SiteState, around: Circumstances) -> str:
    assert site.deadline_s is not None
    cause = _cause(site, around, site.deadline_s)
    if around.forecast_late_s is not None and around.forecast_late_s < site.deadline_s:
        early_s = site.deadline_s - around.forecast_late_s
        return f"{cause}; this was forecast {format_duration(early_s)} before the deadline."
    return f"{cause}."


def _cause(site: SiteState, around: Circumstances, deadline_s: float) -> str:
    troubles = sum(count for _, count in around.troubles)
    if not site.done and troubles:
        kind, count = around.troubles[0]
        return f"Nothing could be fetched: {_times(count)} the answer was {kind}"
    if site.is_stopped:
        return f"It was stopped by order after {_amount(site)}"
    start_s = site.start_s
    if start_s is None:
        return "It was never requested: its turn did not come, or its robots.txt could not be fetched"
    if site.end_s is None and around.state != "running" and around.seconds <= deadline_s:
        return f"The crawl was stopped before the deadline with {site.waiting} pages of it waiting"
    if start_s > _LATE_START * deadline_s:
        return f"It started only {format_duration(start_s)} after the crawl, because others came before it"
    return _slow(site, around, deadline_s)


def _slow(site: SiteState, around: Circumstances, deadline_s: float) -> str:
    assert site.start_s is not None
    end_s = site.end_s if site.end_s is not None else around.seconds
    span_s = max(1e-3, end_s - site.start_s)
    needed = site.wire_bytes / max(1e-3, deadline_s - site.start_s)
    got = f"It got {format_rate(site.wire_bytes / span_s)}"
    if site.waiting:
        got += f" with {site.waiting} pages still waiting"
    else:
        got += f" and needed {format_rate(needed)} for its {format_size(site.wire_bytes)}"
    # A missing page costs no more than another; a server in trouble gets no requests for a while.
    costly = [(kind, count) for kind, count in around.troubles if kind in TROUBLE]
    costs = sum(count for _, count in costly)
    if around.answers and costs > _MANY_TROUBLES * around.answers:
        kind, count = costly[0]
        return f"{got}; {costs} of its answers were failures ({count} {kind}), each followed by a pause"
    if around.link_use is not None and around.link_use >= _FULL_LINK:
        return f"{got}; the link was full ({around.link_use:.0%} of the bound)"
    gap_s = max(0.0, span_s - around.busy_s) / max(1, around.answers)
    answer_s = around.busy_s / max(1, around.answers)
    if around.busy_s < _BUSY * span_s:
        pause = (
            f"the interval of {format_duration(around.interval_s)}"
            if gap_s < 2 * around.interval_s
            else f"pauses of {format_duration(gap_s)} (crawl delay, back-off or waiting for its turn)"
        )
        return (
            f"{got}; {pause} between {around.answers} answers took {format_duration(gap_s * around.answers)}"
        )
    return f"{got}; its server took {format_duration(answer_s)} for an answer; the link was not full"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _amount(site: SiteState) -> str:
    return f"{site.done} pages ({format_size(site.wire_bytes)})"


# The web of a run as numbers: the numbers of links to each page, and the PageRank of the fetched pages.
#
# Keys become positions in one sorted array, so that a million pages with twenty million links fit into a few
# hundred megabytes.

MOST_LINKS = 60_000_000
"""For more pages the ranks are omitted: they would take gigabytes."""
_TOLERANCE = 1e-5


class LinkGraph:
    """Read once; then `ranks` and `most_referenced` are computed from it."""

    def __init__(self, sums: RunSums, *, most_links: int = MOST_LINKS) -> None:
        self._sums = sums
        self._known = sums.seen_keys()
        self.is_whole = True
        keys: list[Any] = []
        depths: list[Any] = []
        settled: list[Any] = []
        targets: list[Any] = []
        counts: list[Any] = []
        links = 0
        for part in sums.fetched():
            keys.append(self._place(part.keys))
            depths.append(part.depths)
            settled.append(part.settled_at)
            found = self._place(part.links)
            links += len(found)
            if links > most_links:
                self.is_whole = False
                targets.clear()
            if self.is_whole:
                targets.append(found.astype(np.int32))
                counts.append(part.link_counts)
        self._own = _joined(keys, np.int64)
        self._depths = _joined(depths, np.int64)
        self._settled_at = _joined(settled, np.float64)
        self._targets = _joined(targets, np.int32)
        self._counts = _joined(counts, np.int64)
        self._references = self._count_references()

    def _count_references(self) -> NDArray[np.int64]:
        """For a page that was fetched more than once, the links of its last version count."""
        last_row = np.full(len(self._known) + 1, -1, dtype=np.int64)
        last_row[self._own] = np.arange(len(self._own))
        is_last = last_row[self._own] == np.arange(len(self._own))
        if self.is_whole:
            return self._counted(self._targets, np.repeat(is_last, self._counts))
        references = np.zeros(len(self._known), dtype=np.int64)
        row = 0
        for part in self._sums.fetched():
            known = is_last[row : row + len(part.keys)]
            flags = np.zeros(len(part.keys), dtype=np.bool_)  # pages added after the first read
            flags[: len(known)] = known
            references += self._counted(self._place(part.links), np.repeat(flags, part.link_counts))
            row += len(part.keys)
        return references

    def _counted(self, targets: NDArray[Any], is_kept: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(targets[is_kept & (targets >= 0)], minlength=len(self._known))

    def ranks(self, started_at: float) -> Ranks | None:
        """None if nothing was fetched, or the web is too large."""
        if not len(self._own) or not self.is_whole:
            return None
        # A page that was fetched again counts where it was first fetched, with the links it had then.
        first = np.zeros(len(self._own), dtype=np.bool_)
        first[np.unique(self._own, return_index=True)[1]] = True
        node_of = np.full(len(self._known) + 1, -1, dtype=np.int32)  # the last position: not known at all
        node_of[self._own[first]] = np.arange(first.sum(), dtype=np.int32)
        targets = node_of[self._targets]
        page_of = np.repeat(np.arange(len(self._own)), self._counts)
        own_node = node_of[self._own[page_of]]
        kept = first[page_of] & (targets >= 0) & (targets != own_node)
        count = int(first.sum())
        starts = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(own_node[kept], minlength=count), out=starts[1:])
        rank = pagerank(starts, targets[kept], tolerance=_TOLERANCE)
        return Ranks(
            np.maximum(0.0, self._settled_at[first] - started_at), rank, self._depths[first], int(kept.sum())
        )

    def most_referenced(self, most: int) -> list[Referenced]:
        """The pages with the most links to them, fetched or not."""
        order = np.argsort(self._references, kind="stable")[::-1][:most]
        fetched = set(self._own[np.isin(self._own, order)].tolist())
        found = []
        for place in order:
            links = int(self._references[place])
            url = self._sums.url_of(int(self._known[place])) if links else None
            if url is not None:
                found.append(Referenced(url, links, int(place) in fetched))
        return found

    def _place(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The position of each key among the known ones; -1 if it is not among them."""
        if not len(self._known):
            return np.full(len(keys), -1, dtype=np.int64)
        # In this order the search passes through memory from front to back, which is several times faster.
        order = np.argsort(keys)
        ascending = keys[order]
        found = np.searchsorted(self._known, ascending)
        found[found == len(self._known)] = 0
        found[self._known[found] != ascending] = -1
        place = np.empty_like(found)
        place[order] = found
        return place


def _joined(parts: list[Any], kind: type[np.generic]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=kind)


_MOST_STEPS = 1200
"""The figure of the link has room for this many steps."""
_TURNS_S = (1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0)
_MOST_TURNS = 40
_MOST_REFERENCED = 15


def gather(
    folder: Path,
    *,
    round_number: int | None = None,
    is_over: bool = False,
    clock: Callable[[], float] = time.time,
) -> RunFacts:
    """`round_number`: an earlier round; None: the current one. `is_over`: no process crawls into the
    folder any more, though the one that did may be alive."""
    with RunMonitor(folder, is_over=is_over, clock=clock) as monitor:
        view = monitor.view()
    with RunReader(folder) as reader:
        rounds = tuple(rounds_of(reader))
    period = since, until = view.started_at, _NO_END
    is_past = round_number is not None and round_number != len(rounds)
    if round_number is not None:
        begin_at, end_at = period_of(rounds, round_number)
        if is_past:
            period = since, until = max(begin_at, rounds[round_number - 1].started_at), min(end_at, _NO_END)
    with RunSums(folder) as sums:
        # What is from before is of earlier rounds.
        history = LinkHistory(sample for sample in sums.samples() if since <= sample.at < until)
        if is_past and round_number is not None:
            view = _view_of_round(view, rounds[round_number - 1], history, sums.begins(*period))
        log = read_decisions(folder, since, until)
        longest = _TURNS_S[-1]
        turn_s = next((length for length in _TURNS_S if view.elapsed_s / length <= _MOST_TURNS), longest)
        busy = sums.busy(*period)
        graph = LinkGraph(sums)
        facts = RunFacts(
            view=view,
            link=_drawn(history, view.started_at),
            busy={site.site: busy.get(site.number, (0.0, 0)) for site in view.sites},
            turns=[
                Turn(number * turn_s, done, wire_bytes)
                for number, _, wire_bytes, done in sums.by_time(since, turn_s, until)
            ],
            turn_s=turn_s,
            types=[TypeCount(kind or "not said", *counts) for kind, *counts in sums.types(*period)],
            statuses=sums.statuses(*period),
            outcomes=[OutcomeCount(*row) for row in sums.outcomes(period if is_past else None)],
            servers=sums.servers(),
            referenced=graph.most_referenced(_MOST_REFERENCED),
            ranks=None if is_past else graph.ranks(view.started_at),
            courses=histories_of(sums, view.sites, until),
            missed=(),
            marks=log.marks,
            rounds=rounds,
            politeness=politeness_of(folder, sums.denied()),
            interval_s=_interval_s(monitor.job),
            timezone=(monitor.job.get("crawl") or {}).get("timezone"),
            round_number=round_number if is_past else None,
        )
        missed = _missed(facts, sums, history, log, period if is_past else None)
        return structs.replace(facts, missed=missed)


_NO_END = 1e18
_PHASES: dict[str, tuple[Phase, Outlook]] = {
    "met": ("done", "met"),
    "missed": ("done", "missed"),
    "unreachable": ("unreachable", "missed"),
    "stopped": ("stopped", "none"),
    "open": ("open", "none"),
}


def _view_of_round(view: RunView, past: Round, history: LinkHistory, begins: Mapping[int, float]) -> RunView:
    """The view of a run at the end of an earlier round, by what was stored of it."""
    result = past.result
    if result is None:
        raise StoreError(f"nothing is known of round {past.number} but its beginning; it did not end")
    numbers = {site.site: site.number for site in view.sites}
    sites = []
    for each in result.sites:
        phase, outlook = _PHASES.get(each.verdict, ("done", "none"))
        number = numbers.get(each.site, 0)
        sites.append(
            SiteState(
                site=each.site,
                phase="open" if each.ended_at is None and phase == "done" else phase,
                outlook="none" if each.deadline_at is None else outlook,
                done=each.done,
                failed=each.failed,
                waiting=0,
                wire_bytes=each.wire_bytes,
                began_at=past.started_at,
                deadline_at=each.deadline_at,
                started_at=begins.get(number),
                ended_at=each.ended_at,
                number=number,
                has_content=each.verdict != "failed",
                leads_to=each.problem or "another site" if each.verdict == "redirects" else "",
                start_problem=each.problem,
            )
        )
    ended_at = past.ended_at or past.started_at
    return structs.replace(
        view,
        state="finished" if result.is_complete else "stopped",
        now=ended_at,
        started_at=past.started_at,
        last_seen_at=ended_at,
        elapsed_s=ended_at - past.started_at,
        link=history.figures,
        bound_bytes_per_s=history.figures.bound_bytes_per_s,
        sites=sites,
        site_count=len(sites),
        sites_done=sum(site.is_over for site in sites),
        done=result.done,
        failed=result.failed,
        waiting=0,
        in_flight=0,
        wire_bytes=result.wire_bytes,
        deadlines=DeadlineCounts.of(sites),
        forecast_at=None,
        forecast_middle_at=None,
        forecast_from_at=None,
    )


def _drawn(history: LinkHistory, started_at: float) -> Link:
    """The seconds of the link, joined to as many steps as the figure has room for."""
    seconds = history.seconds
    per_step = max(1, math.ceil(len(seconds) / _MOST_STEPS))
    steps = [seconds[first : first + per_step] for first in range(0, len(seconds), per_step)]
    return Link(
        np.array([step[0].at - step[0].length_s - started_at for step in steps]),
        np.array([step[-1].at - started_at for step in steps]),
        np.array([_mean(step, [second.rate_bytes_per_s for second in step]) for step in steps]),
        np.array([max(second.rate_bytes_per_s for second in step) for step in steps]),
        np.array([max(second.bound_bytes_per_s for second in step) for step in steps]),
        np.array([_mean(step, [_or_nan(second.predicted_bytes_per_s) for second in step]) for step in steps]),
        float(per_step),
        [(at - started_at, bound) for at, bound in history.bounds],
    )


def _mean(step: Sequence[LinkSecond], rates: Sequence[float]) -> float:
    length_s = sum(second.length_s for second in step)
    return sum(rate * second.length_s for rate, second in zip(rates, step, strict=True)) / length_s


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _interval_s(job: Mapping[str, Any]) -> float:
    crawl = job.get("crawl")
    try:
        return float(parse_duration(str(crawl["interval"]))) if isinstance(crawl, dict) else 0.0
    except (KeyError, UnitError):
        return 0.0


def _missed(
    facts: RunFacts,
    sums: RunSums,
    history: LinkHistory,
    log: LoggedDecisions,
    period: tuple[float, float] | None,
) -> list[Missed]:
    """The missed deadlines and the reasons: sites that are still crawled first, then by how late they
    were."""
    view, missed = facts.view, []
    for site in view.sites:
        if not site.is_missed or site.deadline_s is None:
            continue
        until_s = site.end_s if site.end_s is not None else view.elapsed_s
        busy_s, answers = facts.busy[site.site]
        around = Circumstances(
            view.state,
            view.elapsed_s,
            history.use_of_bound(view.started_at + (site.start_s or 0.0), view.started_at + until_s),
            facts.interval_s or 0.0,
            sums.site_troubles(site.number, period),
            log.forecast_late_s.get(site.site),
            busy_s,
            answers,
        )
        missed.append(Missed(site.site, site.deadline_s, site.late_s, why(site, around)))
    return sorted(missed, key=lambda each: -(each.late_s if each.late_s is not None else math.inf))
