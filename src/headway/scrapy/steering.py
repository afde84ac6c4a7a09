"""The engine of `headway run-scrapy`: it learns how far the spiders are, and decides the rate of each.

It is built by the runtime from the job, as for any other crawl, with the same planner and policies. Its world
are the spiders: their reports are its events, and its commands are their rates and the bound of the link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from msgspec import structs

from headway.config.job import Job, SiteWish
from headway.engine.decisions import advice_of, decision_of
from headway.engine.machine import Engine
from headway.model.command import (
    AddSite,
    Decision,
    Order,
    OrderAnswered,
    Saving,
    SetCapacity,
    SetRates,
    StopSite,
)
from headway.model.event import CapacityChanged, Event, Ordered, Seeded, SiteProgress, SitesProgressed
from headway.model.page import Site, Task
from headway.planning.estimate import Knowledge, SiteFacts
from headway.planning.live_policies import DEADLINE_MARGIN
from headway.planning.policies import StartPlan, run_policy
from headway.policy.ordering.simple import LongestWait
from headway.runtime.commands import WorldCommand
from headway.runtime.control import LimitWatch, OrderWatch
from headway.runtime.crawling import quotas_so_far
from headway.runtime.driver import EventSink, LiveDriver, WallClock
from headway.runtime.plan import start_plan
from headway.runtime.runtime import Circumstances, Runtime, check_has_rate
from headway.store.rows import SiteSample
from headway.units import UNBOUNDED, BytesPerSecond, Instant, format_duration, format_rate

AIM = 0.985
"""A pacer stays slightly below its bound. So a spider with the bound r is expected to receive this part of
it."""

_REFUSAL = "in run-scrapy change the job's sites instead, and run the same command again"


class SiteTask(msgspec.Struct, frozen=True):
    """One site of the job with its first URLs."""

    wish: SiteWish
    urls: tuple[str, ...]
    """The seeds, and the pages in the sitemaps."""
    data_bytes: float | None = None
    """Its data by the last run, or by its sitemaps; None if nothing is known but what the job says."""

    def at_start(self) -> SiteProgress:
        # The data that the job gives is better known than that of the URLs, whose pages may be of any size.
        waiting = len(self.urls) if self.wish.expected_bytes is None else 1
        return SiteProgress(self.wish.site, 0, 0, waiting)


class SpiderWorld:
    """The spiders as the engine sees them, and what it decides of them. Implements `LiveWorld` and
    `Journal`."""

    def __init__(self, save: Callable[[Sequence[Saving]], None], note: Callable[[str], None]) -> None:
        self.rates: dict[Site, BytesPerSecond] = {}
        self.capacity_bytes_per_s = UNBOUNDED
        self.has_decided = asyncio.Event()
        """Set when a rate or the capacity has changed."""
        self._save = save
        self._note = note

    def attach(self, sink: EventSink) -> None:
        """The supervisor passes the reports on."""

    def start(self, now: Instant, command: WorldCommand) -> None:
        match command:
            case SetRates(rates):
                self.rates = rates
            case SetCapacity(capacity):
                self.capacity_bytes_per_s = capacity
            case _:
                raise AssertionError("the spiders choose their requests themselves")
        self.has_decided.set()

    def committed(self) -> None:
        pass

    async def aclose(self) -> None:
        pass

    def decide(self, decision: Decision) -> None:
        text = _text_of(decision)
        if text:
            self._note(text)

    def save(self, batch: Sequence[Saving]) -> None:
        self._save(batch)


def _text_of(decision: Decision) -> str:
    """What the user is to know of a decision; empty for those about rates, which the supervisor notes."""
    refusal = f": refused: {decision.reason}" if decision.reason else ""
    match decision.decision:
        case "foresee-late":
            assert decision.until is not None
            assert decision.deadline_at is not None
            late = format_duration(decision.until - decision.deadline_at)
            text = f"{decision.site}: deadline in danger: it will be about {late} late"
            return f"{text}; {advice_of(decision.reason, decision.needed_bytes_per_s)}"
        case "foresee-on-time":
            return f"{decision.site}: on time again"
        case "set-capacity" if decision.capacity_bytes_per_s is not None:
            return f"the bound is {format_rate(decision.capacity_bytes_per_s)}"
        case "order-pause" | "order-resume" | "order-deadline" | "order-stop" | "order-add" as order:
            what = f"{order.removeprefix('order-')} {decision.site}".rstrip()
            return f"ordered: {what}{refusal}"
        case _:
            return ""


class Steering:
    """Decides the spiders' rates from `begin` on, when they are released. `world` has the decisions."""

    def __init__(self, job: Job, site_tasks: Sequence[SiteTask], folder: Path, world: SpiderWorld) -> None:
        check_has_rate(job, "run-scrapy")
        # Nobody measures the delays on the spiders' connections, by which a crawl in the background yields.
        job = job.with_crawl(background=False, admission_depth=None, every=None)
        self._job = structs.replace(job, revisiting=None)
        self._site_tasks = site_tasks
        known = {
            each.wish.site: SiteFacts(data_bytes=each.data_bytes) for each in site_tasks if each.data_bytes
        }
        self._folder = folder
        self._usual_circumstances = Circumstances(
            knowledge=Knowledge("the last run or the sitemaps", known),
            ordering=LongestWait(),  # the spiders have an order of their own
            by_processes=True,
        )
        self.world = world
        self._clock = WallClock()
        self._limit = LimitWatch(folder)
        self._orders = OrderWatch(folder)
        self._engine: Engine | None = None
        self._driver: LiveDriver | None = None
        self._driving: asyncio.Task[None] | None = None
        self.planned_ends_s: dict[Site, float] = {}
        """When each site ends by the last plan, in seconds since then."""
        self.planned_bytes: dict[Site, float] = {}

    def plan(self) -> StartPlan:
        """The plan if the spiders were released now."""
        now = self._clock.now()
        plan = start_plan(self._job, now, self._circumstances(now), self._opening(now))
        sites = [Site(name) for name in plan.problem.names]
        self.planned_ends_s = dict(zip(sites, _planned_ends_s(plan), strict=True))
        self.planned_bytes = dict(zip(sites, plan.problem.data_bytes.tolist(), strict=True))
        return plan

    def begin(self) -> None:
        """The spiders are released."""
        self.plan()
        circumstances = self._circumstances(self._clock.now())
        runtime = Runtime.from_job(self._job, self._clock, self.world, circumstances)
        self._engine = runtime.engine
        self._driver = runtime.live_driver(self.world, stays=True)
        opening = self._opening(self._clock.now())
        if self._limit.has_changed():
            opening.insert(0, CapacityChanged(self._limit.limit_bytes_per_s))
        opening += [Ordered(order) for order in self._orders.lasting() if _can_be_carried_out(order)]
        self._driving = asyncio.get_running_loop().create_task(self._driver.run(opening))
        self._driving.add_done_callback(lambda _: self.world.has_decided.set())

    def tell(self, progress: SiteProgress) -> None:
        """A spider has reported."""
        if self._driver is not None:
            self._driver.tell(SitesProgressed((progress,)))

    def look(self) -> None:
        """Take in a new bound and orders from the run folder; raise what the engine cannot go on with."""
        assert self._driver is not None
        assert self._driving is not None
        if self._driving.done():
            self._driving.result()
        if self._limit.has_changed():
            self._driver.tell(CapacityChanged(self._limit.limit_bytes_per_s))
        for order in self._orders.fresh():
            if _can_be_carried_out(order):
                self._driver.tell(Ordered(order))
            else:
                refused = decision_of(self._clock.now(), OrderAnswered(order, _REFUSAL))
                assert refused is not None
                self.world.decide(refused)

    async def aclose(self) -> None:
        if self._driver is not None and self._driving is not None:
            self._driver.stop()
            await asyncio.gather(self._driving, return_exceptions=True)

    def rate_of(self, site: Site) -> float:
        return 0.0 if self.is_paused else self.world.rates.get(site, 0.0)

    @property
    def is_paused(self) -> bool:
        return self._engine is not None and self._engine.bound.is_paused

    def task_of(self, site: Site) -> Task:
        """With the deadline that counts now."""
        if self._engine is not None:
            return self._engine.stats.site_stats(site).task
        return next(task for task in self._job.tasks(self._clock.now()) if task.site == site)

    def sample(self, progress: SiteProgress) -> SiteSample:
        """The state of a site, as `headway status` shows it."""
        now, engine, site = self._clock.now(), self._engine, progress.site
        assert engine is not None
        assert engine.planner is not None
        planner, site_stats = engine.planner, engine.stats.site_stats(site)
        ends_at = planner.range_of(now, site_stats, engine.frontier) or (None, None)
        share = planner.share_of(site) or 0.0
        left_bytes = planner.left_of(site)
        return SiteSample(site, now, progress.wire_bytes, progress.waiting, left_bytes, share, *ends_at)

    def _circumstances(self, now: Instant) -> Circumstances:
        return replace(self._usual_circumstances, quotas=quotas_so_far(now, self._job, self._folder))

    def _opening(self, now: Instant) -> list[Event]:
        # Deadlines such as "2 h" count from the release of the spiders.
        at_start = tuple(each.at_start() for each in self._site_tasks)
        return [Seeded(self._job.tasks(now), ()), SitesProgressed(at_start)]


def _can_be_carried_out(order: Order) -> bool:
    return not isinstance(order, AddSite | StopSite)


def _planned_ends_s(plan: StartPlan) -> list[float]:
    """When the sites end if the spiders receive what a pacer lets through of their rates."""
    earlier = replace(plan.problem, deadline_s=(1 - DEADLINE_MARGIN) * plan.problem.deadline_s)
    schedule = run_policy(plan.policy, earlier, plan.objective)
    if not schedule.on_time:
        schedule = run_policy(plan.policy, plan.problem, plan.objective)
    ends_s: list[float] = (schedule.end_s / AIM).tolist()
    return ends_s
