"""The allocation algorithms of zhu2020 and its baselines.

Instant allocation: every site starts now and keeps its rate to the end. The paper's greedy loops fix one site
at a time, in O(n^2). Since fixing a site only tightens the others in the same way, the result is the closed
form that `fill` finds.

Task scheduling, for more sites than crawlers: Algorithm 4 works in rounds. The m most urgent sites share the
link; when a site ends, its rate passes to the next in the queue; when the first m of the round would all have
ended, everything is allocated again. `actual` is the real size of the sites, if it differs from the
estimates.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from headway.errors import JobError
from headway.planning.problem import FloatArray, Objective, Problem, Schedule, Timetable


def fill(low: FloatArray, high: FloatArray, shape: FloatArray, total: float) -> FloatArray:
    """clip(s * shape, low, high) with the s for which the sum is `total`; O(n log n).

    If the sum of `low` exceeds the total, `low` is scaled down to it. If the sum of `high` is less than the
    total, the result is `high`.
    """
    low = np.minimum(low, high)
    floors = float(low.sum())
    if floors >= total:
        return low * (total / floors) if floors > 0 else low
    if float(high.sum()) <= total:
        return high.copy()
    # Each site leaves its floor at one value of s and reaches its ceiling at another. The sum grows with s,
    # so bisect over these values; between two neighbours the sum is linear and solved exactly.
    leaves, meets = low / shape, high / shape
    turns = np.concatenate((leaves, meets[np.isfinite(meets)]))
    turns.sort()
    below, above = 0, len(turns)  # at turns[below] the sum is at most the total, as at s = 0
    rates = np.empty_like(shape)  # reused: allocating arrays of this size costs more than the sums
    while above - below > 1:
        middle = (below + above) // 2
        np.multiply(shape, turns[middle], out=rates)
        np.clip(rates, low, high, out=rates)
        if float(rates.sum()) <= total:
            below = middle
        else:
            above = middle
    s = turns[below]
    at_low, at_high = leaves > s, meets <= s
    free = ~(at_low | at_high)
    fixed = float(low[at_low].sum()) + float(high[at_high].sum())
    free_shape = float(shape[free].sum())
    if free_shape > 0:
        s = (total - fixed) / free_shape
    return _without_excess(np.clip(s * shape, low, high), total)


def _without_excess(rates: FloatArray, total: float) -> FloatArray:
    """Scale down a sum that rounding has left above the total: the link's bound is a promise."""
    handed_out = float(rates.sum())
    return rates * (total / handed_out) if handed_out > total else rates


def required_rates(problem: Problem) -> FloatArray:
    """The least constant rate that meets each deadline (eq. 11 and 13); 0 without a deadline."""
    with np.errstate(divide="ignore"):
        return np.where(problem.deadline_s > 0, problem.data_bytes / problem.deadline_s, math.inf)


def required_bandwidth(problem: Problem) -> float:
    """U-bar (eq. 1): the least bandwidth that meets all deadlines with constant rates.

    Infinite if a deadline has passed, or a cap is below the rate that its site needs.
    """
    rates = required_rates(problem)
    if np.any(rates > problem.cap_bytes_per_s * (1 + 1e-12)):
        return math.inf
    return float(rates.sum())


def is_sufficient(problem: Problem) -> bool:
    """Whether constant rates can meet all deadlines, with something left for sites without a deadline."""
    required, available = required_bandwidth(problem), problem.bandwidth_bytes_per_s
    if np.all(problem.has_deadline):
        return required <= available * (1 + 1e-12)
    return required < available


def m_maxt(problem: Problem) -> FloatArray:
    """Algorithm 1, minimises the largest end: D / min(t*, T), with the T that uses up the link.

    Line 12 is misprinted: the rest is shared in proportion to the data, not to D / t*.
    """
    if not is_sufficient(problem):
        return m_stet(problem)
    return fill(required_rates(problem), problem.cap_bytes_per_s, problem.data_bytes, _link(problem))


def m_sumt(problem: Problem) -> FloatArray:
    """Algorithm 2, minimises the sum of ends: max(D / t*, s sqrt(D)), with the s that uses up the link."""
    if not is_sufficient(problem):
        return m_stet(problem)
    return fill(required_rates(problem), problem.cap_bytes_per_s, np.sqrt(problem.data_bytes), _link(problem))


def m_stet(problem: Problem) -> FloatArray:
    """Algorithm 3, minimises the sum of tardiness: min(D / t*, s sqrt(D)), so no site ends before its
    deadline.

    A site without a deadline, or one that is already late, keeps its square-root share.
    """
    ceiling = np.where(problem.has_deadline, required_rates(problem), math.inf)
    ceiling = np.minimum(ceiling, problem.cap_bytes_per_s)
    return fill(np.zeros(len(problem)), ceiling, np.sqrt(problem.data_bytes), _link(problem))


def _link(problem: Problem) -> float:
    return problem.bandwidth_bytes_per_s


DUE_SOON = 0.1
"""The least time until a deadline, as a fraction of the time that all data needs. Otherwise a site that is
already late would take the whole link, and the round would take very long."""


def prodataamount(problem: Problem) -> FloatArray:
    """Shares in proportion to the data (eq. 16): all sites end together, except those limited by a cap."""
    return _share(problem, problem.data_bytes)


def probandwidth(problem: Problem) -> FloatArray:
    """Shares in proportion to D / t* (eq. 14, which prints D for the required rate).

    A site without a deadline is given the latest deadline of the others. Without any deadlines the shares are
    in proportion to the data.
    """
    known = problem.deadline_s[problem.has_deadline]
    if not len(known):
        return prodataamount(problem)
    due_soon = DUE_SOON * float(problem.data_bytes.sum()) / problem.bandwidth_bytes_per_s
    deadline = np.where(problem.has_deadline, problem.deadline_s, known.max())
    return _share(problem, problem.data_bytes / np.maximum(deadline, due_soon))


def random_shares(problem: Problem, rng: np.random.Generator) -> FloatArray:
    """The rates that the deadlines need, plus random shares of the rest of the link.

    The paper uses it only if the bandwidth is sufficient; otherwise the whole link is shared at random here.
    """
    lot = 1.0 - rng.random(len(problem))
    if not is_sufficient(problem):
        return _share(problem, lot)
    needed = required_rates(problem)
    rest = problem.bandwidth_bytes_per_s - float(needed.sum())
    return needed + fill(np.zeros(len(problem)), np.maximum(problem.cap_bytes_per_s - needed, 0), lot, rest)


def _share(problem: Problem, shape: FloatArray) -> FloatArray:
    nothing = np.zeros(len(problem))
    return fill(nothing, problem.cap_bytes_per_s, shape, problem.bandwidth_bytes_per_s)


Allocate = Callable[[Problem], FloatArray]

UNFORESEEN = 0.05
"""A site larger than its estimate is assumed to have this fraction of the estimate left."""


def realloc(problem: Problem, allocate: Allocate, actual: FloatArray | None = None) -> Schedule:
    """Algorithm 4. If there are crawlers for all sites and the estimates are exact, it equals `allocate`."""
    run = Seats(problem, actual)
    now_s, open_sites = 0.0, run.next_sites(problem.crawlers)
    while open_sites:
        seen = run.seen_at(now_s, open_sites)
        rates = allocate(seen)
        round_end_s = now_s + float((seen.data_bytes / rates).max())
        open_sites = run.work(now_s, open_sites, rates.tolist(), round_end_s)
        open_sites += run.next_sites(problem.crawlers - len(open_sites))
        now_s = round_end_s
    return run.schedule()


def alloc_once(problem: Problem, allocate: Allocate, actual: FloatArray | None = None) -> Schedule:
    """AllocOnce: the rates of the first m sites are passed on until the end."""
    run = Seats(problem, actual)
    first = run.next_sites(problem.crawlers)
    if first:
        run.work(0.0, first, allocate(run.seen_at(0.0, first)).tolist(), math.inf)
    return run.schedule()


def batches(problem: Problem, allocate: Allocate, actual: FloatArray | None = None) -> Schedule:
    """ReAlloc-PRODataAmount: m sites from start to end together, then the next m."""
    run = Seats(problem, actual)
    now_s = 0.0
    while batch := run.next_sites(problem.crawlers):
        rates = allocate(run.seen_at(now_s, batch))
        ends = now_s + run.left[np.array(batch)] / rates
        for site, rate, end_s in zip(batch, rates.tolist(), ends.tolist(), strict=True):
            run.download(site, now_s, end_s, rate)
        now_s = float(ends.max())
    return run.schedule()


class Seats:
    """The m crawlers (seats), the queue of sites, the data left of each site, and the segments so far."""

    def __init__(self, problem: Problem, actual: FloatArray | None) -> None:
        self.problem = problem
        self.left = (problem.data_bytes if actual is None else actual).copy()
        self._beyond_estimate = self.left - problem.data_bytes
        self._unforeseen = problem.data_bytes * (0.0 if actual is None else UNFORESEEN)
        # "Loose before tight" in section 4.3 contradicts the priority queue below it: tight deadlines go
        # first. Sites without a deadline come last, and ties keep the order of the input.
        self._queue = np.argsort(problem.deadline_s, kind="stable").tolist()[::-1]
        self._rows: list[tuple[int, float, float, float]] = []

    def next_sites(self, count: int) -> list[int]:
        return [self._queue.pop() for _ in range(min(count, len(self._queue)))]

    def seen_at(self, now_s: float, sites: list[int]) -> Problem:
        """The problem of a round: these sites with their estimated remaining data and remaining time."""
        index = np.array(sites, dtype=np.int64)
        whole = self.problem
        estimated_left = np.maximum(self.left[index] - self._beyond_estimate[index], self._unforeseen[index])
        return replace(
            whole,
            names=[whole.names[site] for site in sites],
            data_bytes=estimated_left,
            deadline_s=whole.deadline_s[index] - now_s,
            cap_bytes_per_s=whole.cap_bytes_per_s[index],
            weight=whole.weight[index],
            capacity=Timetable.constant(whole.bandwidth_bytes_per_s),
        )

    def work(self, now_s: float, sites: list[int], rates: list[float], until_s: float) -> list[int]:
        """Run all seats until `until_s`, passing rates on. Returns the sites that are still open."""
        caps = self.problem.cap_bytes_per_s
        # (end, seat, site, since, rate): the seat keeps its rate even if the cap of a site is below it.
        heap = [
            (now_s + self.left[site] / rate, seat, site, now_s, rate)
            for seat, (site, rate) in enumerate(zip(sites, rates, strict=True))
        ]
        heapq.heapify(heap)
        while heap and heap[0][0] <= until_s * (1 + 1e-12):
            end_s, seat, site, since_s, rate = heapq.heappop(heap)
            end_s = min(end_s, until_s)
            self.download(site, since_s, end_s, rate)
            self.left[site] = 0.0
            for following in self.next_sites(1):
                its_rate = min(rates[seat], float(caps[following]))
                its_end_s = end_s + self.left[following] / its_rate
                heapq.heappush(heap, (its_end_s, seat, following, end_s, its_rate))
        for _, _, site, since_s, rate in heap:
            self.download(site, since_s, until_s, rate)
        return [site for _, _, site, _, _ in sorted(heap, key=lambda entry: entry[1])]

    def download(self, site: int, from_s: float, to_s: float, rate: float) -> None:
        if to_s > from_s:
            self._rows.append((site, from_s, to_s, rate))
            self.left[site] -= rate * (to_s - from_s)

    def schedule(self) -> Schedule:
        if not self._rows:
            return Schedule.empty(self.problem)
        site, from_s, to_s, rate = zip(*self._rows, strict=True)
        return Schedule.of_segments(self.problem, site, from_s, to_s, rate_bytes_per_s=rate)


SEARCHABLE_SITES = 200

_OnRows = Callable[[FloatArray], FloatArray]


def genetic(problem: Problem, objective: Objective, rng: np.random.Generator) -> FloatArray:
    """A genetic algorithm: tournaments of two, blend crossover, mutation, and the best two survive."""
    size, generations = 60, 120
    decode, score = _decoder(problem), _scorer(problem, objective)
    people = rng.random((size, len(problem)))
    scores = score(decode(people))
    for _ in range(generations):
        pairs = rng.integers(size, size=(2, size, 2))
        winners = np.where(scores[pairs[..., 0]] <= scores[pairs[..., 1]], pairs[..., 0], pairs[..., 1])
        blend = rng.random((size, len(problem)))
        children = blend * people[winners[0]] + (1 - blend) * people[winners[1]]
        mutated = rng.random(children.shape) < 1 / max(len(problem), 2)
        children = np.clip(children + mutated * rng.normal(0, 0.15, children.shape), 0, 1)
        best = np.argsort(scores, kind="stable")[:2]
        children[:2] = people[best]
        people, scores = children, score(decode(children))
    return _one(decode, people[int(np.argmin(scores))])


def differential_evolution(problem: Problem, objective: Objective, rng: np.random.Generator) -> FloatArray:
    # Imported here: SciPy is slow to load, and no other policy needs it.
    from scipy.optimize import differential_evolution as evolve

    decode, score = _decoder(problem), _scorer(problem, objective)
    if len(problem) == 1:
        return _one(decode, np.ones(1))
    found = evolve(
        lambda keys: score(decode(keys.T)),
        bounds=[(0.0, 1.0)] * len(problem),
        rng=rng,
        vectorized=True,
        updating="deferred",
        maxiter=100,
        popsize=10,
        polish=False,
    )
    return _one(decode, np.asarray(found.x))


def _decoder(problem: Problem) -> _OnRows:
    """Turns keys from 0 to 1 into rates: shares of what the deadlines leave of the link, or of all of it."""
    if len(problem) > SEARCHABLE_SITES:
        raise JobError(
            f"the policies ga and de can search at most {SEARCHABLE_SITES} sites at a time, not"
            f" {len(problem)}; use another policy or fewer crawlers (--crawlers)"
        )
    floor = required_rates(problem) if is_sufficient(problem) else np.zeros(len(problem))
    rest = problem.bandwidth_bytes_per_s - float(floor.sum())

    def decode(keys: FloatArray) -> FloatArray:
        keys = keys + 1e-6  # with a rate of zero a site would never end
        shares = keys / keys.sum(axis=1, keepdims=True)
        return np.asarray(np.minimum(floor + rest * shares, problem.cap_bytes_per_s))

    return decode


def _one(decode: _OnRows, keys: FloatArray) -> FloatArray:
    return decode(keys[np.newaxis]).ravel()


def _scorer(problem: Problem, objective: Objective) -> _OnRows:
    deadlines_first = not is_sufficient(problem)

    def score(rates: FloatArray) -> FloatArray:
        ends = problem.data_bytes / rates
        tardiness = np.maximum(ends - problem.deadline_s, 0)
        if objective is Objective.LATE_SITES:
            total = tardiness.sum(axis=1)
            return np.asarray(np.count_nonzero(tardiness, axis=1) + total / (1 + total))
        if deadlines_first or objective is Objective.TARDINESS:
            return np.asarray(tardiness.sum(axis=1))
        return np.asarray(ends.max(axis=1) if objective is Objective.MAX_COMPLETION else ends.sum(axis=1))

    return score
