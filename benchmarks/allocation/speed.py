"""How long the allocation itself takes, from a thousand sites to a million, and in a running crawl."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import msgspec
import numpy as np
from rich.table import Table

from headway.model.page import Site
from headway.planning.allocator import Allocator, SiteDemand
from headway.planning.baselines import m_maxt, m_stet, m_sumt
from headway.planning.feasibility import Work, is_feasible
from headway.planning.problem import Problem, Timetable
from headway.units import BytesPerSecond, Instant, Seconds

SIZES = (1_000, 10_000, 100_000, 1_000_000)
NOW = Instant(1_700_000_000.0)
DAY_S = 86_400.0


def growth_table() -> Table:
    """The paper's three allocations and the feasibility test; the last column is growth over n log n."""
    table = Table(title="Allocation of n sites (CPU ms, the quickest of several)")
    table.add_column("")
    for size in SIZES:
        table.add_column(f"{size:,}", justify="right")
    table.add_column("growth from 10,000 to 1,000,000, over that of n log n", justify="right")
    ways: dict[str, tuple[float, Callable[[Problem], object]]] = {
        "m-maxt": (2.0, m_maxt),
        "m-sumt": (2.0, m_sumt),
        "m-stet": (0.5, m_stet),
        "feasibility h(tau)": (2.0, lambda problem: is_feasible(Work.at_start(problem), problem.deadline_s)),
    }
    for name, (room, way) in ways.items():
        times = {
            size: _quickest_ms(way, random_sites(size, room), 7 if size < SIZES[-1] else 3) for size in SIZES
        }
        n_log_n = SIZES[-1] * math.log(SIZES[-1]) / (SIZES[1] * math.log(SIZES[1]))
        growth = times[SIZES[-1]] / times[SIZES[1]] / n_log_n
        table.add_row(name, *(f"{times[size]:.2f}" for size in SIZES), f"{growth:.2f}")
    return table


def decision_table(sites: int = 10_000) -> Table:
    """One decision of a crawl with many sites: everything again, plan, rates, forecast and who is late."""
    table = Table(title=f"One decision in a crawl of {sites:,} sites (CPU ms, quickest / median)")
    for name in ("sites open at once", "one demand in twenty is new", "all are", "rates given", "late"):
        table.add_column(name, justify="right")
    for at_once in (1, 20, 1000):
        demands, link = _crawl(sites, at_once)
        cells = []
        for every in (20, 1):
            allocator, times = Allocator(), []
            for _ in range(25):
                for index in range(0, sites, every):
                    demands[index] = msgspec.structs.replace(demands[index])
                asked = list(demands)
                began = time.process_time()
                allocation = allocator.decide(NOW, asked, link, at_least_s=Seconds(1.0))
                times.append((time.process_time() - began) * 1e3)
            cells.append(f"{min(times):.1f} / {np.median(times):.1f}")
        table.add_row(str(at_once), *cells, str(len(allocation.rates)), str(len(allocation.late)))
    return table


def random_sites(count: int, room: float) -> Problem:
    """Sites of very different sizes, a fifth without a deadline; the link has `room` times what they need."""
    rng = np.random.default_rng(count)
    data = rng.lognormal(14, 1.5, count)
    deadlines = rng.uniform(0.1, 3, count) * DAY_S
    deadlines[rng.random(count) < 0.2] = 0.0
    needed = float((data / np.where(deadlines > 0, deadlines, np.inf)).sum())
    return Problem.of(data, room * needed, deadline_s=deadlines)


def _crawl(sites: int, at_once: int) -> tuple[list[SiteDemand], Timetable]:
    rng = np.random.default_rng(sites)
    data = rng.lognormal(14, 1.5, sites)
    link = float(data.sum()) / DAY_S
    due_s = rng.uniform(0.2, 3, sites) * DAY_S
    caps = np.full(sites, math.inf) if at_once == 1 else rng.uniform(0.5, 1.5, sites) * link / at_once
    demands = [
        SiteDemand(
            Site(f"https://www{number}.example"),
            float(data[number]),
            Instant(NOW + float(due_s[number])) if number % 3 else None,
            BytesPerSecond(float(caps[number])),
        )
        for number in range(sites)
    ]
    return demands, Timetable.constant(link)


def _quickest_ms(way: Callable[[Problem], object], problem: Problem, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.process_time()
        way(problem)
        times.append(time.process_time() - began)
    return min(times) * 1e3
