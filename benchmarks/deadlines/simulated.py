"""A case in virtual time, with the engine of a live crawl."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from benchmarks.deadlines.cases import LATENCY_S, SERVER_BYTES_PER_S, Case

from headway.model.command import Decision
from headway.model.event import CapacityChanged, FromOutside
from headway.planning.problem import LATE_TOLERANCE
from headway.runtime.simulation import DescribedWeb, simulate_job
from headway.sim.web import Servers
from headway.units import BytesPerSecond, Instant

START = Instant(1_800_000_000.0)


@dataclass(frozen=True, slots=True)
class Crawled:
    """What a crawl met, and what it said about its deadlines, in seconds since its start."""

    ends_s: list[float | None]
    is_met: list[bool]
    messages: list[tuple[float, int, Decision]] = field(default_factory=list)
    """When, about which site, what."""

    @property
    def met(self) -> int:
        return sum(self.is_met)


def simulate(case: Case) -> Crawled:
    origins = case.origins()
    job = case.job(origins)
    count = len(case.sites)
    rates = np.full(count, SERVER_BYTES_PER_S)
    servers = Servers(np.full(count, LATENCY_S / 3), np.full(count, LATENCY_S), rates)
    messages: list[tuple[float, int, Decision]] = []
    number = {origin: place for place, origin in enumerate(origins)}

    def log(decision: Decision) -> None:
        if case.slows_at_s is not None and decision.at >= START + case.slows_at_s:
            rates[0] = case.slow_bytes_per_s
        if decision.decision.startswith("foresee"):
            messages.append((decision.at - START, number[decision.site], decision))

    outside: list[tuple[Instant, FromOutside]] = []
    if case.bound_halved_at_s is not None:
        halved = CapacityChanged(BytesPerSecond(case.link_bytes_per_s / 2))
        outside.append((Instant(START + case.bound_halved_at_s), halved))
    if case.bound_becomes is not None:
        at_s, bound = case.bound_becomes
        outside.append((Instant(START + at_s), CapacityChanged(BytesPerSecond(bound))))
    described = DescribedWeb.without_trouble(case.web(origins), servers)
    done = simulate_job(job, described, START, outside=outside, log=log)
    ends = []
    for task in job.tasks(START):
        ended_at = done.engine.stats.site_stats(task.site).ended_at
        ends.append(None if ended_at is None else ended_at - START)
    return Crawled(ends, [is_met(case, site, end) for site, end in enumerate(ends)], messages)


def is_met(case: Case, site: int, end_s: float | None) -> bool:
    due_s = case.sites[site].deadline_s
    return due_s is not None and end_s is not None and end_s <= due_s * (1 + LATE_TOLERANCE)
