"""All allocation policies by name, and those of users: from a problem to a schedule, and what it means for
the deadlines.

The schedule of the policy "headway" comes from the crawl's own allocator, called repeatedly in virtual time,
so that the same code decides in a plan and in a crawl. `actual` is the real size of the sites, if it differs
from the estimates. The allocator learns it as in a crawl: when a site ends early, or continues beyond its
estimate.

A policy of a user is a function from the sites with their data and deadlines to rates. It is called when a
site is added or ends, when a deadline or the link changes, and at least once a second, and serves the live
crawl, `headway plan` and simulations alike.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from headway import plugins
from headway.errors import HeadwayError, JobError
from headway.model.page import Site
from headway.planning.allocator import Allocation, Allocator, Decision, SiteDemand
from headway.planning.baselines import (
    UNFORESEEN,
    Allocate,
    Seats,
    alloc_once,
    batches,
    differential_evolution,
    genetic,
    is_sufficient,
    m_maxt,
    m_stet,
    m_sumt,
    probandwidth,
    prodataamount,
    random_shares,
    realloc,
    required_bandwidth,
    required_rates,
)
from headway.planning.ends import EndRange
from headway.planning.estimate import Remaining, SiteAssumptions
from headway.planning.feasibility import TOLERANCE, Work, least_bandwidths, lower_bound_max_end_s
from headway.planning.priority_lists import NEAR, columns_in_order, run_in_order
from headway.planning.problem import (
    LATE_TOLERANCE,
    SHORTEST_S,
    FloatArray,
    IntArray,
    Objective,
    Problem,
    Schedule,
    Timetable,
)
from headway.planning.rate_plan import are_few
from headway.plugins import is_reference
from headway.policy.timetable import Quota
from headway.units import FOREVER, BytesPerSecond, Instant, Seconds

OWN = "headway"
_OVER = 1e-6
"""A relative excess of the sum of rates over the link that counts as rounding."""
_LEFT_OVER = 1e-9


class AllocationPolicy(Protocol):
    """Divides the link among the sites. `problem` has the sites in columns, and the current capacity."""

    def __call__(self, problem: Problem) -> Sequence[float] | FloatArray:
        """The rate of each site in bytes per second, in the order of `problem.names`. A site with rate 0
        waits."""
        ...


class UserPolicy:
    """A user's policy with checked results. Raises PluginError if the policy fails or returns invalid
    rates."""

    def __init__(self, inner: Callable[[Problem], Any], name: str) -> None:
        self.name = name
        self._inner = inner

    def __call__(self, problem: Problem) -> FloatArray:
        try:
            rates = np.array(self._inner(problem), dtype=np.float64)
            _check(rates, problem)
        except (Exception, SystemExit) as failure:
            doing = f"dividing the link among {len(problem)} sites"
            raise plugins.failure(f"the policy {self.name}", doing, failure) from failure
        return np.minimum(rates, problem.cap_bytes_per_s)

    def schedule(self, problem: Problem, actual: FloatArray | None) -> Schedule:
        """The schedule of following the policy to the end. `actual` is the real size of the sites."""
        seats = Seats(problem, actual)
        now_s, sites = 0.0, seats.next_sites(problem.crawlers)
        while sites:
            link, change_s = problem.capacity.at(now_s), problem.capacity.next_change_s(now_s)
            if link > 0:
                seen = replace(seats.seen_at(now_s, sites), capacity=Timetable.constant(link))
                rates = self(seen)
            else:
                rates = np.zeros(len(sites))
            left = seats.left[np.array(sites)]
            lasts_s = np.divide(left, rates, out=np.full(len(sites), math.inf), where=rates > 0)
            until_s = min(now_s + float(lasts_s.min()), change_s)
            if not math.isfinite(until_s):
                raise plugins.PluginError(
                    f"the policy {self.name} gives every site a rate of 0, so the crawl would never end"
                )
            for site, rate in zip(sites, rates.tolist(), strict=True):
                if rate > 0:
                    seats.download(site, now_s, until_s, rate)
            sites = [site for site in sites if seats.left[site] > _LEFT_OVER * problem.data_bytes[site]]
            sites += seats.next_sites(problem.crawlers - len(sites))
            now_s = until_s
        return seats.schedule()


class UserAllocator(Allocator):
    """An allocator that uses a user's policy. Failures are handled as in `UserOrdering`."""

    def __init__(self, policy: UserPolicy, crawlers: int | None = None) -> None:
        """`crawlers`: how many sites it divides the link among at once; None: all."""
        super().__init__(seats=crawlers)
        self.problem: HeadwayError | None = None
        self._policy = policy
        self._open: frozenset[Site] = frozenset()

    def decide(
        self,
        now: Instant,
        demands: Sequence[SiteDemand],
        capacity: Timetable,
        *,
        at_least_s: Seconds = Seconds(0.0),
    ) -> Allocation:
        wanting = self._served([each for each in demands if each.remaining_bytes > 0 < each.cap_bytes_per_s])
        link = capacity.at(0.0)
        if not wanting or link <= 0:
            return Allocation({}, Instant(now + capacity.next_change_s(0.0)), {}, ())
        caps = np.array([each.cap_bytes_per_s for each in wanting])
        left = np.array([each.remaining_bytes for each in wanting])
        due_s = np.array(
            [math.inf if each.deadline_at is None else each.deadline_at - now for each in wanting]
        )
        problem = Problem(
            names=[each.site for each in wanting],
            data_bytes=left,
            deadline_s=due_s,
            cap_bytes_per_s=caps,
            weight=np.array([each.weight for each in wanting]),
            capacity=Timetable.constant(link),
            crawlers=len(wanting),
        )
        rates = self._rates(problem)
        ends_s = np.divide(left, rates, out=np.full(len(wanting), math.inf), where=rates > 0)
        # A waiting site gets the link after those that are served, at the latest when all others are done.
        ends_s = np.where(rates > 0, ends_s, float(left.sum()) / link + ends_s[rates > 0].min(initial=0.0))
        late = ends_s > due_s + LATE_TOLERANCE * np.maximum(ends_s, 1.0)
        until_s = max(min(float(ends_s.min()), capacity.next_change_s(0.0)), float(at_least_s))
        return Allocation(
            rates={
                each.site: BytesPerSecond(rate)
                for each, rate in zip(wanting, rates.tolist(), strict=True)
                if rate > 0
            },
            decide_again_at=Instant(min(now + until_s, FOREVER)),
            forecast={
                each.site: Instant(now + end_s) for each, end_s in zip(wanting, ends_s.tolist(), strict=True)
            },
            late=tuple(wanting[number].site for number in np.flatnonzero(late).tolist()),
        )

    def _served(self, wanting: list[SiteDemand]) -> list[SiteDemand]:
        """At most as many sites as there are crawlers: the open ones, then by deadline."""
        if self._seats is not None and len(wanting) > self._seats:
            others = by_deadline(each for each in wanting if each.site not in self._open)
            wanting = [each for each in wanting if each.site in self._open] + others
            wanting = wanting[: self._seats]
        self._open = frozenset(each.site for each in wanting)
        return wanting

    def _rates(self, problem: Problem) -> FloatArray:
        if self.problem is None:
            try:
                return self._policy(problem)
            except HeadwayError as failure:
                self.problem = failure
        return np.minimum(problem.cap_bytes_per_s, problem.bandwidth_bytes_per_s / len(problem))


def make_policy(name: str) -> UserPolicy:
    """The policy at a dotted path. JobError if it is not a function of one problem."""
    what = "an allocation policy"
    made = plugins.make(name, is_made=plugins.is_function, what=what)
    try:
        plugins.check_method(made, "__call__", ("problem",), what)
    except JobError as problem:
        raise JobError(f"{name!r} cannot be used: {problem}") from None
    return UserPolicy(made, name)


def by_deadline(demands: Iterable[SiteDemand]) -> list[SiteDemand]:
    """The earliest deadline first, sites without one last."""
    return sorted(demands, key=lambda each: FOREVER if each.deadline_at is None else each.deadline_at)


def _check(rates: FloatArray, problem: Problem) -> None:
    if rates.shape != (len(problem),):
        raise ValueError(f"it returned rates of shape {rates.shape} for {len(problem)} sites")
    if not (np.all(np.isfinite(rates)) and np.all(rates >= 0)):
        number = int(np.flatnonzero(~(np.isfinite(rates) & (rates >= 0)))[0])
        raise ValueError(f"it returned {rates[number]} for {problem.names[number]}; a rate must be 0 or more")
    link, together = problem.bandwidth_bytes_per_s, float(np.minimum(rates, problem.cap_bytes_per_s).sum())
    if together > link * (1 + _OVER):
        raise ValueError(f"its rates add up to {together:.0f} bytes/s, but the link has {link:.0f}")


def run(
    problem: Problem, objective: Objective, actual: FloatArray | None = None, margin: float = 0.0
) -> Schedule:
    """The schedule of headway's allocator. `margin` is added to the estimates, as a fraction of what is
    left."""
    if not len(problem):
        return Schedule.empty(problem)
    return _VirtualCrawl(problem, objective, actual, margin).run()


class _VirtualCrawl:
    def __init__(
        self, problem: Problem, objective: Objective, actual: FloatArray | None, margin: float
    ) -> None:
        self._problem = problem
        self._estimate = problem.data_bytes
        self._exact = actual is None
        self._left = (problem.data_bytes if actual is None else actual).copy()
        self._got = np.zeros(len(problem))
        self._margin = margin
        self._allocator = Allocator(objective, seats=problem.crawlers, unhurried=True)
        self._columns: list[tuple[IntArray, FloatArray, FloatArray, FloatArray]] = []
        end_s = float(problem.capacity.time_of(np.array([problem.data_bytes.sum()]))[0])
        self._few = are_few(len(problem), unhurried=True)
        # With many sites there is not a decision for each: shares are passed on in between. If estimates are
        # wrong, guard points follow one another quickly; a crawl would not decide at each of them either.
        decisions = math.inf if self._few else max(4_000_000 / len(problem), 25)
        self._grain_s = end_s / (decisions if self._exact else min(decisions, 2_000))
        self._step_s = NEAR / 10 * end_s

    def run(self) -> Schedule:
        now_s, numbers = 0.0, np.arange(len(self._problem))
        while len(numbers):
            work = self._seen_at(now_s, numbers)
            decision = self._allocator.decide_columns(now_s, numbers, work, self._grain_s)
            if not self._few and self._exact:
                step_s = self._follow_list(now_s, numbers, work, decision)
            else:
                step_s = self._keep_rates(now_s, numbers, decision, work.link.next_change_s(0.0))
            now_s += step_s
            numbers = numbers[self._left[numbers] > 0]
        site, from_s, to_s, rate = (np.concatenate(column) for column in zip(*self._columns, strict=True))
        return Schedule.of_segments(self._problem, site, from_s, to_s, rate_bytes_per_s=rate)

    def _seen_at(self, now_s: float, numbers: IntArray) -> Work:
        problem = self._problem
        left = self._left[numbers]
        if not self._exact:
            estimate = self._estimate[numbers]
            left = np.maximum((estimate - self._got[numbers]) * (1 + self._margin), UNFORESEEN * estimate)
        return Work.of(
            left,
            problem.cap_bytes_per_s[numbers],
            problem.deadline_s[numbers] - now_s,
            weight=problem.weight[numbers],
            link=problem.capacity.seen_from(now_s),
            seats=problem.crawlers,
        )

    def _keep_rates(self, now_s: float, numbers: IntArray, decision: Decision, change_s: float) -> float:
        """Keep the rates until the next decision, or until a site really ends. Returns the seconds
        elapsed."""
        served = np.flatnonzero(decision.rates)
        sites, rates = numbers[served], decision.rates[served]
        ends_s = self._left[sites] / rates
        step_s = min(decision.until_s, change_s, float(ends_s.min(initial=math.inf)))
        step_s = max(step_s, self._step_s)
        done = ends_s <= step_s * (1 + 1e-9)
        to_s = now_s + np.where(done, np.minimum(ends_s, step_s), step_s)
        self._columns.append((sites, np.full(len(sites), now_s), to_s, rates))
        got = rates * (to_s - now_s)
        self._got[sites] += got
        self._left[sites] = np.where(done, 0.0, self._left[sites] - got)
        return step_s

    def _follow_list(self, now_s: float, numbers: IntArray, work: Work, decision: Decision) -> float:
        """Pass on shares as sites end, until the next decision, or until the end if there are no guards."""
        if not np.any(np.isfinite(decision.guard_s)):
            site, from_s, to_s, rate = columns_in_order(work, decision.order)
            self._left[numbers] = 0.0
        else:
            rows = run_in_order(work, decision.order, decision.until_s)
            site, from_s, to_s, rate = (np.array(column) for column in zip(*rows, strict=True))
            np.subtract.at(self._left, numbers[site], rate * (to_s - from_s))
            self._left[self._left <= TOLERANCE * self._estimate] = 0.0
        self._columns.append((numbers[site], now_s + from_s, now_s + to_s, rate))
        return decision.until_s


VARYING = "headway"
"""The only built-in policy whose rates change over time; those of users may change as well."""


@dataclass(frozen=True, eq=False, slots=True)
class Outlook:
    policy: str
    objective: Objective
    schedule: Schedule
    sufficient: bool
    required_bytes_per_s: float
    """The least bandwidth that meets all deadlines with this kind of policy; infinite if none does."""
    needs_bytes_per_s: FloatArray
    """The bandwidth that each deadline requires: the largest is binding (varying rates), or all add up."""

    @staticmethod
    def of(policy: str, objective: Objective, schedule: Schedule) -> Outlook:
        problem = schedule.problem
        problem = replace(problem, deadline_s=problem.open_deadline_s)
        if _varies(policy):
            required, needs = least_bandwidths(problem)
            return Outlook(policy, objective, schedule, schedule.on_time, required, needs)
        required, needs = required_bandwidth(problem), required_rates(problem)
        return Outlook(policy, objective, schedule, is_sufficient(problem), required, needs)

    @property
    def varies(self) -> bool:
        """Whether rates change over time; otherwise each deadline needs its constant rate."""
        return _varies(self.policy)

    @property
    def problem(self) -> Problem:
        return self.schedule.problem

    @property
    def binding(self) -> int | None:
        """The site whose deadline requires the most bandwidth; None without deadlines."""
        if not np.any(self.needs_bytes_per_s > 0):
            return None
        return int(np.argmax(self.needs_bytes_per_s))

    @property
    def out_of_reach(self) -> list[int]:
        """Sites that miss their deadlines at any bandwidth, because their own cap is too low."""
        problem = self.problem
        shortest_s = problem.data_bytes / problem.cap_bytes_per_s
        return np.flatnonzero(shortest_s > problem.open_deadline_s * (1 + 1e-9)).tolist()


@dataclass(frozen=True, eq=False, slots=True)
class StartPlan:
    """What the planner of a crawl decides at its start, and what it assumes about the sites."""

    problem: Problem
    """The sites as the planner sees them, without its safety margins before deadlines."""
    objective: Objective
    assumptions: tuple[SiteAssumptions, ...] = ()
    remaining: tuple[Remaining, ...] = ()
    first_rates: Mapping[Site, BytesPerSecond] = field(default_factory=dict)
    """The first rates that the pacer of the crawl would get."""
    policy: str = VARYING
    """The policy of the job."""
    quotas: tuple[Quota, ...] = ()
    """Not in the problem: when a quota is used up depends on how the link is used until then."""
    forecasts: Mapping[Site, EndRange] = field(default_factory=dict)
    """When each site will end, as the crawl itself would forecast at its start; seconds from then."""
    crawl_forecast: EndRange | None = None
    begins_at: Instant | None = None
    """When the crawl starts, for clock times; None for a table of sites."""
    zone: tzinfo = UTC

    def at_most(self) -> Problem | None:
        """The problem with the upper estimate of each site's data; None if nothing is assumed."""
        if not self.assumptions:
            return None
        most = np.array([max(left.high, 1.0) for left in self.remaining])
        return replace(self.problem, data_bytes=np.maximum(most, self.problem.data_bytes))


def _varies(policy: str) -> bool:
    return policy == VARYING or is_reference(policy)


def lower_bounds(problem: Problem) -> dict[str, float]:
    """Lower bounds for all policies: the largest end, and the sum of ends (shortest first at full speed)."""
    work = Work.at_start(problem)
    shortest_first = problem.capacity.time_of(np.cumsum(np.sort(problem.data_bytes)))
    sum_s = max(float(shortest_first.sum()), float(work.shortest_s.sum()))
    return {"max_completion_s": lower_bound_max_end_s(work), "sum_completion_s": sum_s}


def finite_or_none(value: float) -> float | None:
    """None for infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


Policy = Callable[[Problem, Objective, np.random.Generator, FloatArray | None], Schedule]
"""The last argument is the real size of the sites, if it differs from the estimates."""

_Choose = Callable[[Objective, np.random.Generator], Allocate]
_Form = Callable[[Problem, Allocate, FloatArray | None], Schedule]


def check_policy(name: str) -> str:
    """Check that there is a policy of this name, or a user's at this path, and return it; otherwise
    JobError."""
    if is_reference(name):
        make_policy(name)
    elif name not in POLICIES:
        raise JobError(
            f"{name!r} is not an allocation policy; use one of {', '.join(POLICIES)}, or the dotted path of"
            " your own, such as 'mypackage.shares:fair'"
        )
    return name


def run_policy(
    name: str,
    problem: Problem,
    objective: Objective = Objective.MAX_COMPLETION,
    *,
    seed: int = 0,
    actual: FloatArray | None = None,
) -> Schedule:
    """The schedule of one policy. Only random, ga and de use the seed."""
    if problem.shut_s and is_reference(name):
        return _in_windows(name, problem, objective, seed)
    if is_reference(name):
        return make_policy(name).schedule(problem, actual) if len(problem) else Schedule.empty(problem)
    if problem.shut_s:
        return _in_windows(name, problem, objective, seed)
    policy = POLICIES[check_policy(name)]
    if name != "headway" and problem.capacity.least <= 0:
        raise JobError(
            f"the policy {name} needs a bandwidth that is never zero; use the policy headway, which can wait"
        )
    if not len(problem):
        return Schedule.empty(problem)
    schedule = policy(problem, objective, np.random.default_rng(seed), actual)
    return replace(schedule, notes=tuple(_notes(name, problem)))


_MOST_STEPS = 400
_DONE_BYTES = 1e-3


def _in_windows(name: str, problem: Problem, objective: Objective, seed: int) -> Schedule:
    """The schedule where sites have windows: at each change of one, the policy plans again for the sites that
    are open, as the planner of a crawl does."""
    left = problem.data_bytes.copy()
    segments: list[tuple[int, float, float, float]] = []
    now_s, steps = 0.0, 0
    notes: tuple[str, ...] = ()
    while np.any(left > _DONE_BYTES):
        steps += 1
        wanting = np.flatnonzero(left > _DONE_BYTES)
        changes = [
            at for site in wanting.tolist() for pair in problem.shut_s[site] for at in pair if at > now_s
        ]
        next_s = min(changes, default=math.inf) if steps < _MOST_STEPS else math.inf
        is_open = [not any(a <= now_s < b for a, b in problem.shut_s[site]) for site in wanting.tolist()]
        rows = wanting[is_open] if steps < _MOST_STEPS else wanting
        if not len(rows):
            now_s = next_s
            continue
        capacity = problem.capacity.seen_from(now_s)
        part = Problem(
            [problem.names[site] for site in rows.tolist()],
            left[rows],
            _due_from(problem, now_s, rows),
            problem.cap_bytes_per_s[rows],
            problem.weight[rows],
            capacity,
            problem.crawlers,
        )
        schedule = run_policy(name, part, objective, seed=seed)
        notes = schedule.notes
        lasts_s = min(next_s - now_s, schedule.max_completion_s)
        for row, from_s, to_s, rate in zip(
            schedule.segment_site.tolist(),
            schedule.segment_from_s.tolist(),
            schedule.segment_to_s.tolist(),
            schedule.segment_rate_bytes_per_s.tolist(),
            strict=True,
        ):
            end_s = min(to_s, lasts_s)
            if end_s > from_s:
                site = int(rows[row])
                segments.append((site, now_s + from_s, now_s + end_s, rate))
                left[site] -= rate * (end_s - from_s)
        if lasts_s >= schedule.max_completion_s:
            left[rows] = 0.0
        now_s += lasts_s
    columns = [list(column) for column in zip(*segments, strict=True)]
    made = Schedule.of_segments(
        problem, np.array(columns[0], dtype=np.int64), columns[1], columns[2], rate_bytes_per_s=columns[3]
    )
    return replace(made, notes=notes)


def _due_from(problem: Problem, now_s: float, rows: IntArray) -> FloatArray:
    """The time from an instant to the deadlines of these sites, without that in which they are shut."""
    ahead = replace(
        problem,
        deadline_s=np.maximum(problem.deadline_s - now_s, SHORTEST_S),
        capacity=problem.capacity.seen_from(now_s),
        shut_s=tuple(
            tuple((max(0.0, a - now_s), b - now_s) for a, b in shut if b > now_s) for shut in problem.shut_s
        ),
    )
    shut_only = replace(ahead, capacity=Timetable.constant(max(problem.capacity.most, 1.0)))
    return shut_only.open_deadline_s[rows]


def _together(problem: Problem, allocate: Allocate, actual: FloatArray | None) -> Schedule:
    """All sites at once if there are enough crawlers, otherwise in rounds of at most m sites."""
    if len(problem) > problem.crawlers:
        return realloc(problem, allocate, actual)
    if actual is not None:
        return alloc_once(problem, allocate, actual)
    return Schedule.of_constant_rates(problem, allocate(problem))


def _headway(
    problem: Problem, objective: Objective, _rng: np.random.Generator, actual: FloatArray | None
) -> Schedule:
    return run(problem, objective, actual)


class Rounds(enum.Enum):
    """When a policy of the papers computes all rates again."""

    NONE = enum.auto()
    """Never: the rate of a site that has ended passes to the next one."""
    IF_NEEDED = enum.auto()
    """In rounds, if there are fewer crawlers than sites; else all sites keep their rates to the end."""
    ALWAYS = enum.auto()
    """In rounds. In a crawl also when a site has ended and no other waits for its rate."""
    BATCHES = enum.auto()
    """As many sites as there are crawlers, from start to end; then the next ones."""


_FORMS: Mapping[Rounds, _Form] = MappingProxyType(
    {
        Rounds.NONE: alloc_once,
        Rounds.IF_NEEDED: _together,
        Rounds.ALWAYS: realloc,
        Rounds.BATCHES: batches,
    }
)


@dataclass(frozen=True, slots=True)
class PublishedPolicy:
    """A policy of the papers: how it divides the link, and when it does so again."""

    rounds: Rounds
    choose: _Choose
    """From objective and random generator to the function that divides the link."""

    def __call__(
        self, problem: Problem, objective: Objective, rng: np.random.Generator, actual: FloatArray | None
    ) -> Schedule:
        return _FORMS[self.rounds](problem, self.choose(objective, rng), actual)


def _first_allocation(objective: Objective, _rng: np.random.Generator) -> Allocate:
    """The paper does not say which algorithm AllocOnce uses; here it is the one for the objective."""
    return m_sumt if objective is Objective.SUM_COMPLETION else m_maxt


def _always(allocate: Allocate) -> _Choose:
    return lambda _objective, _rng: allocate


PUBLISHED: Mapping[str, PublishedPolicy] = MappingProxyType(
    {
        "m-maxt": PublishedPolicy(Rounds.IF_NEEDED, _always(m_maxt)),
        "m-sumt": PublishedPolicy(Rounds.IF_NEEDED, _always(m_sumt)),
        "m-stet": PublishedPolicy(Rounds.IF_NEEDED, _always(m_stet)),
        "random": PublishedPolicy(
            Rounds.IF_NEEDED, lambda _objective, rng: lambda seen: random_shares(seen, rng)
        ),
        "probandwidth": PublishedPolicy(Rounds.IF_NEEDED, _always(probandwidth)),
        "prodataamount": PublishedPolicy(Rounds.IF_NEEDED, _always(prodataamount)),
        "ga": PublishedPolicy(
            Rounds.IF_NEEDED, lambda objective, rng: lambda seen: genetic(seen, objective, rng)
        ),
        "de": PublishedPolicy(
            Rounds.IF_NEEDED,
            lambda objective, rng: lambda seen: differential_evolution(seen, objective, rng),
        ),
        "realloc-maxt": PublishedPolicy(Rounds.ALWAYS, _always(m_maxt)),
        "realloc-sumt": PublishedPolicy(Rounds.ALWAYS, _always(m_sumt)),
        "realloc-probandwidth": PublishedPolicy(Rounds.ALWAYS, _always(probandwidth)),
        "alloconce": PublishedPolicy(Rounds.NONE, _first_allocation),
        "realloc-prodataamount": PublishedPolicy(Rounds.BATCHES, _always(prodataamount)),
    }
)
POLICIES: Mapping[str, Policy] = MappingProxyType({**PUBLISHED, "headway": _headway})


def _notes(name: str, problem: Problem) -> Iterator[str]:
    if name == "headway":
        return
    if not problem.capacity.is_constant:
        yield "it cannot follow a timetable and uses its lowest bandwidth throughout"
    if name in ("m-maxt", "m-sumt") and len(problem) <= problem.crawlers and not is_sufficient(problem):
        yield "constant rates cannot meet all deadlines, so m-stet is used instead, as in the paper"
    if PUBLISHED[name].rounds is Rounds.IF_NEEDED and len(problem) > problem.crawlers:
        yield f"it needs one crawler per site; with {problem.crawlers} crawlers it works in rounds instead"
    if "probandwidth" in name and not np.all(problem.has_deadline):
        yield "sites without a deadline are given the latest deadline of the others"
