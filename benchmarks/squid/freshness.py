"""Freshness with the same number of requests: a fixed interval, visits in proportion, and headway's policy.

Pages change as Poisson processes. Their mean intervals are those that Cho and Garcia-Molina found on the web
in 1999 (a day, a week, a month, four months, a year), or spread from hours to years, log-normally around a
week. The policies see only what a crawler sees: whether a page had changed since the last visit; `optimal`
knows the rates, and no policy can do better.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable

import numpy as np

from headway.model.page import Site
from headway.policy.revisit import AdaptiveRevisit, add_visit, best_interval_s, price_within
from headway.units import Instant, Seconds

DAY_S = 86400.0
SITE = Site("http://a.test")
NextInterval = Callable[[float, int, bytes], float]


MEASURED = {1.0: 0.23, 7.0: 0.15, 30.0: 0.16, 120.0: 0.16, 365.0: 0.30}
"""Mean days between two changes, and the share of pages ("The evolution of the web", figure 2, rounded)."""


def spread_rates(pages: int, seed: int, spread: float = 2.0) -> list[float]:
    draw = random.Random(seed)
    return [math.exp(draw.gauss(math.log(1 / (7 * DAY_S)), spread)) for _ in range(pages)]


def measured_rates(pages: int, seed: int) -> list[float]:
    draw = random.Random(seed)
    days = draw.choices(list(MEASURED), list(MEASURED.values()), k=pages)
    return [1 / (each * DAY_S) for each in days]


WEBS = {"as measured in 1999": measured_rates, "log-normal": spread_rates}


def simulate(
    rates: list[float], next_interval_s: NextInterval, first_s: float, days: float, seed: int
) -> tuple[float, float]:
    """Mean freshness over the second half of the time, and requests a page and day in it."""
    draw = random.Random(seed)
    end_s, half_s = days * DAY_S, days * DAY_S / 2
    visits = [(draw.random() * first_s, number, 0.0, b"") for number in range(len(rates))]
    heapq.heapify(visits)
    fresh_s, requests = 0.0, 0
    while visits:
        at_s, number, last_s, history = heapq.heappop(visits)
        rate = rates[number]
        # What part of the time since the last visit counts, and how fresh the copy was in it.
        begin_s, stop_s = max(last_s, half_s), min(at_s, end_s)
        if stop_s > begin_s:
            fresh_s += (math.exp(-rate * (begin_s - last_s)) - math.exp(-rate * (stop_s - last_s))) / rate
        if at_s >= end_s:
            continue
        requests += at_s >= half_s
        length_s = at_s - last_s
        if last_s:
            history = add_visit(history, length_s, is_changed=draw.random() < -math.expm1(-rate * length_s))
        heapq.heappush(visits, (at_s + next_interval_s(at_s, number, history), number, at_s, history))
    return fresh_s / (len(rates) * half_s), requests / len(rates) / (days / 2)


def compare(
    rates: list[float], days: float, every_days: float, seed: int = 8
) -> dict[str, tuple[float, float]]:
    """Freshness and requests a page and day of each way; the fixed interval has as many requests as ours."""
    pages = len(rates)
    every_s = every_days * DAY_S
    budget = pages / every_s
    adaptive = AdaptiveRevisit(every_s=Seconds(every_s), visits_per_s=budget, longest_s=Seconds(30 * every_s))

    def ours(now: float, number: int, history: bytes) -> float:
        at = adaptive.next_at(Instant(now), SITE, 1, history)
        assert at is not None
        return at - now

    result = {"headway": simulate(rates, ours, every_s, days, seed)}
    per_day = result["headway"][1]
    fixed_s = DAY_S / per_day
    price = price_within(np.array(rates), np.ones(pages), np.ones(pages), pages / fixed_s, 3600.0)
    total = sum(rates)
    ways: dict[str, NextInterval] = {
        "fixed interval": lambda now, number, history: fixed_s,
        "in proportion to the true rates": lambda now, number, history: (
            total * fixed_s / pages / rates[number]
        ),
        "optimal for the true rates": lambda now, number, history: best_interval_s(rates[number], price),
    }
    return result | {name: simulate(rates, way, fixed_s, days, seed) for name, way in ways.items()}
