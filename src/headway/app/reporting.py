"""A run's facts, gathered from its folder for the report: of a running crawl, a finished or an empty one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headway.app.course import courses_of
from headway.app.decisionlog import LoggedDecisions, read_decisions
from headway.app.linkgraph import LinkGraph
from headway.errors import UnitError
from headway.report.run_facts import (
    Floats,
    Link,
    LinkSums,
    Missed,
    OutcomeCount,
    RunFacts,
    SiteFacts,
    Turn,
    TypeCount,
)
from headway.report.run_reasons import Circumstances, why
from headway.store.aggregates import RunSums, SiteSums
from headway.store.onlooker import Onlooker
from headway.units import parse_duration

_MOST_STEPS = 1200
"""The link's figure has no more room than for so many steps."""
_SHORTEST_S = 0.5
_FRESH_S = 5.0
_TURNS_S = (1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0)
_MOST_TURNS = 40
_MOST_REFERENCED = 15


def gather(folder: Path, *, is_over: bool = False) -> RunFacts:
    """`is_over`: it is known that nobody crawls into the folder any more, though who did may be alive."""
    with RunSums(folder) as sums:
        started_at, job = sums.crawl()
        rows = sums.sites()
        waiting = sums.waiting()
        samples = sums.samples()
        log = read_decisions(folder, started_at)
        is_alive = not is_over and _is_alive(folder, samples)
        state = _state(rows, waiting, is_alive=is_alive)
        ends = [row.ended_at for row in rows if row.ended_at is not None]
        last_at = max([started_at, *ends, *samples[-1:, 0].tolist()])
        busy = sums.busy()
        sites = [
            _site(row, started_at, waiting.get(row.number, 0), *busy.get(row.number, (0.0, 0)))
            for row in rows
        ]
        link, link_sums = _link(samples, started_at)
        seconds = last_at - started_at
        turn_s = next((length for length in _TURNS_S if seconds / length <= _MOST_TURNS), _TURNS_S[-1])
        graph = LinkGraph(sums)
        reasons = _Reasons(sums, samples, log, _interval_s(job))
        return RunFacts(
            name=folder.resolve().name,
            state=state,
            started_at=started_at,
            seconds=seconds,
            sites=sites,
            link=link,
            link_sums=link_sums,
            turns=[
                Turn(number * turn_s, done, wire_bytes)
                for number, _, wire_bytes, done in sums.by_time(started_at, turn_s)
            ],
            turn_s=turn_s,
            types=[TypeCount(kind or "not said", *counts) for kind, *counts in sums.types()],
            statuses=sums.statuses(),
            outcomes=[OutcomeCount(*row) for row in sums.outcomes()],
            servers=sums.servers(),
            referenced=graph.most_referenced(_MOST_REFERENCED),
            ranks=graph.ranks(started_at),
            courses=courses_of(sums, rows, started_at),
            missed=reasons.missed(zip(rows, sites, strict=True), state, started_at, seconds),
            marks=log.marks,
        )


def _is_alive(folder: Path, samples: Floats) -> bool:
    with Onlooker(folder) as onlooker:
        has_process = onlooker.crawling_process() is not None
    return has_process and (not len(samples) or abs(time.time() - samples[-1, 0]) < _FRESH_S)


def _state(rows: Sequence[SiteSums], waiting: Mapping[int, int], *, is_alive: bool) -> str:
    if is_alive:
        return "running"
    return "stopped" if waiting or not rows or any(row.ended_at is None for row in rows) else "finished"


def _site(row: SiteSums, started_at: float, waiting: int, busy_s: float, answers: int) -> SiteFacts:
    def since(at: float | None) -> float | None:
        return None if at is None else at - started_at

    return SiteFacts(
        row.site,
        row.done,
        row.failed,
        waiting,
        row.wire_bytes,
        since(row.started_at),
        since(row.ended_at) if not waiting else None,
        since(row.deadline_at),
        bool(row.is_stopped),
        busy_s,
        answers,
    )


def _link(samples: Floats, started_at: float) -> tuple[Link, LinkSums]:
    """Rates between samples, in steps that the figure has room for; the sums are of the single seconds."""
    nothing = np.empty(0)
    if len(samples) < 2:
        return Link(nothing, nothing, nothing, nothing, nothing), LinkSums()
    lengths, carried = np.diff(samples[:, 0]), np.diff(samples[:, 1])
    # A counter that went back: the crawl was taken up by a new process, and nobody crawled in between.
    counted = (carried >= 0) & (lengths > 0)
    good = counted & (lengths >= _SHORTEST_S)  # a rate over less than that says little
    at, rate = samples[1:, 0][good] - started_at, (carried / np.maximum(lengths, 1e-6))[good]
    bound, predicted = samples[1:, 2][good], samples[1:, 3][good]
    if not len(at):
        return Link(nothing, nothing, nothing, nothing, nothing), LinkSums()
    sums = _link_sums(rate, bound, carried[counted], (lengths * samples[1:, 2])[counted], lengths[counted])
    per_step = max(1, math.ceil(len(at) / _MOST_STEPS))
    if per_step == 1:
        return Link(at, rate, rate, bound, predicted), sums
    steps = np.arange(0, len(at), per_step)
    sizes = np.diff(np.append(steps, len(at)))
    mean = np.add.reduceat(rate, steps) / sizes
    known = np.add.reduceat(np.nan_to_num(predicted), steps) / sizes
    return (
        Link(
            at[steps],
            mean,
            np.maximum.reduceat(rate, steps),
            np.maximum.reduceat(bound, steps),
            np.where(np.isnan(predicted[steps]), np.nan, known),
            float(per_step),
        ),
        sums,
    )


def _link_sums(rate: Floats, bound: Floats, carried: Floats, allowed: Floats, lengths: Floats) -> LinkSums:
    """The highest second is one of `rate`; the means are over all that was `carried`."""
    mean = float(carried.sum() / lengths.sum())
    if not np.isfinite(allowed).all():
        return LinkSums(mean, float(rate.max()))
    use = float(carried.sum() / allowed.sum())
    return LinkSums(mean, float(rate.max()), use, float((rate / bound).max()) - 1.0)


def _interval_s(job: Mapping[str, Any]) -> float:
    crawl = job.get("crawl")
    try:
        return float(parse_duration(str(crawl["interval"]))) if isinstance(crawl, dict) else 0.0
    except (KeyError, UnitError):
        return 0.0


class _Reasons:
    """Why deadlines were missed."""

    def __init__(self, sums: RunSums, samples: Floats, log: LoggedDecisions, interval_s: float) -> None:
        self._sums = sums
        self._use = _LinkUse(samples)
        self._log = log
        self._interval_s = interval_s

    def missed(
        self, pairs: Iterable[tuple[SiteSums, SiteFacts]], state: str, started_at: float, seconds: float
    ) -> list[Missed]:
        """Those still under way first, then by how late they were; of a crawl that was stopped, also those
        whose deadline has passed since."""
        until_now_s = max(seconds, time.time() - started_at) if state == "stopped" else seconds
        missed = []
        for row, site in pairs:
            deadline_s = site.deadline_s
            if deadline_s is None or not (
                site.is_missed or (site.end_s is None and until_now_s > deadline_s)
            ):
                continue
            until_s = site.end_s if site.end_s is not None else seconds
            around = Circumstances(
                state,
                seconds,
                self._use.between(started_at + (site.start_s or 0.0), started_at + until_s),
                self._interval_s,
                self._sums.site_troubles(row.number),
                self._log.foreseen_s.get(site.site),
            )
            late_s = site.end_s - deadline_s if site.end_s is not None else None
            missed.append(Missed(site.site, deadline_s, late_s, why(site, around)))
        return sorted(missed, key=lambda each: -(each.late_s if each.late_s is not None else math.inf))


class _LinkUse:
    """How much of the bound was used between two instants, from sums that are reckoned once."""

    def __init__(self, samples: Floats) -> None:
        self._at = samples[:, 0]
        lengths, carried = np.diff(samples[:, 0]), np.diff(samples[:, 1])
        good = (carried >= 0) & (lengths > 0)
        self._carried = np.concatenate([[0.0], np.cumsum(np.where(good, carried, 0.0))])
        self._allowed = np.concatenate([[0.0], np.cumsum(np.where(good, lengths * samples[1:, 2], 0.0))])

    def between(self, from_at: float, until_at: float) -> float | None:
        """None without a bound, or where nothing was measured."""
        if len(self._at) < 2:
            return None
        first = max(0, int(np.searchsorted(self._at, from_at)) - 1)
        last = min(len(self._at) - 1, int(np.searchsorted(self._at, until_at)))
        allowed = self._allowed[last] - self._allowed[first]
        if not (math.isfinite(allowed) and allowed > 0):
            return None
        return float((self._carried[last] - self._carried[first]) / allowed)
