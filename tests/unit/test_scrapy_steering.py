"""The spiders of run-scrapy are steered by the engine that crawls, plans and simulates the same job."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scrapy")

from msgspec import structs

from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.errors import HeadwayError
from headway.model.command import Decision, Pause, Resume, Saving, SetDeadline, SetRates, StopSite
from headway.model.event import CapacityChanged, Seeded, SiteProgress, SitesProgressed
from headway.model.page import Site
from headway.planning.policies import POLICIES, PUBLISHED
from headway.runtime.control import write_limit, write_order
from headway.runtime.driver import VirtualClock
from headway.runtime.plan import plan_from_job
from headway.runtime.runtime import Circumstances, Runtime
from headway.runtime.simulation import DescribedWeb, simulate_job
from headway.scrapy.steering import SiteTask, SpiderWorld, Steering
from headway.sim.web import Servers, make_sites
from headway.units import Instant, Seconds

START = Instant(1_700_000_000.0)
A, B, C = (Site(f"http://{name}.test") for name in "abc")
SHARES = """
def by_weight(problem):
    link, weights = problem.bandwidth_bytes_per_s, sum(problem.weight)
    return [link * weight / weights for weight in problem.weight]


def fails_later(problem):
    return by_weight(problem) if list(problem.names) != ["http://b.test", "http://c.test"] else [1 / 0]
"""


def job_of(policy: str = "headway", **crawl: object) -> Job:
    source = Source("the test")
    tables = {
        "crawl": {"bandwidth": "60 KB/s", "interval": "0 s", "timezone": "UTC", "policy": policy, **crawl},
        "site": [
            {"url": f"{A}/", "deadline": "60 s", "data": "900 KB"},
            {"url": f"{B}/", "deadline": "90 s", "data": "600 KB", "weight": 3},
            {"url": f"{C}/", "data": "1500 KB"},
        ],
    }
    return build_job(convert(tables, source), source)


def tasks_of(job: Job) -> list[SiteTask]:
    return [SiteTask(wish, tuple(page.url for page in wish.seeds)) for wish in job.sites]


@pytest.fixture
def shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shares_of_a_user.py").write_text(SHARES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shares_of_a_user", raising=False)


def steering_of(job: Job, folder: Path, notes: list[str] | None = None) -> Steering:
    saved: list[Saving] = []
    world = SpiderWorld(saved.extend, (notes if notes is not None else []).append)
    return Steering(job, tasks_of(job), folder, world)


def shares_of(job: Job, circumstances: Circumstances) -> dict[Site, float]:
    """What the planner gives each site at the start."""
    runtime = Runtime.from_job(job, VirtualClock(START), None, circumstances)  # type: ignore[type-var]
    engine, planner = runtime.engine, runtime.engine.planner
    assert planner is not None
    if circumstances.by_processes:
        engine.step(START, Seeded(job.tasks(START), ()))
        engine.step(START, SitesProgressed(tuple(SiteProgress(site, 0, 0, 1) for site in (A, B, C))))
    else:
        engine.step(START, runtime.seeded(START))
    return {site: planner.share_of(site) or 0.0 for site in (A, B, C)}


@pytest.mark.usefixtures("shares")
@pytest.mark.parametrize("policy", [*PUBLISHED, "shares_of_a_user:by_weight"])
def test_the_rates_at_the_start_are_those_of_the_plan_and_of_the_simulation(
    policy: str, tmp_path: Path
) -> None:
    job = job_of(policy)
    steered = steering_of(job, tmp_path).plan().first_rates
    assert sum(steered.values()) <= 60_000 * (1 + 1e-9)
    assert len(steered) == 3
    assert steered == pytest.approx(plan_from_job(job, START).first_rates)
    assert steered == pytest.approx(simulated_rates(job), abs=0.1)


@pytest.mark.parametrize("interval", ["200 ms", "2 s"])
@pytest.mark.parametrize("policy", POLICIES)
def test_with_pauses_between_requests_the_link_is_divided_as_in_any_other_crawl(
    policy: str, interval: str
) -> None:
    job = job_of(policy, interval=interval)
    assert shares_of(job, Circumstances(by_processes=True)) == pytest.approx(shares_of(job, Circumstances()))


def simulated_rates(job: Job) -> dict[str, float]:
    """The first rates of the simulation of a job."""
    data, pages = np.array([9e5, 6e5, 15e5]), np.array([3e4, 3e4, 3e4])
    web = make_sites([[f"{site}/"] for site in (A, B, C)], (data / pages).astype(np.int64), pages, 1)
    quick = Servers(np.full(3, 0.01), np.full(3, 0.01), np.full(3, 2e6))
    rates: list[dict[str, float]] = []

    def note(decision: Decision) -> None:
        if decision.rates_bytes_per_s:
            rates.append(decision.rates_bytes_per_s)

    described = DescribedWeb.without_trouble(web, quick)
    simulate_job(job, described, START, longest_s=Seconds(1.0), log=note)
    return rates[0]


def test_the_engine_divides_the_link_as_the_sites_end_and_is_done_with_the_last() -> None:
    job = job_of("realloc-maxt")
    runtime = Runtime.from_job(job, VirtualClock(START), None, Circumstances(by_processes=True))  # type: ignore[type-var]
    engine, decided = runtime.engine, []

    def tell(after_s: float, event: object) -> None:
        for command in engine.step(Instant(START + after_s), event):  # type: ignore[arg-type]
            decided.extend([command.rates_bytes_per_s] if isinstance(command, SetRates) else [])

    tell(0.0, Seeded(job.tasks(START), ()))
    tell(0.0, SitesProgressed(tuple(SiteProgress(site, 0, 0, 1) for site in (A, B, C))))
    assert decided[-1].keys() == {A, B, C}
    tell(10.0, SitesProgressed((SiteProgress(A, 30, 300_000, 4),)))
    assert engine.stats.wire_bytes == 300_000
    assert not engine.is_finished
    tell(20.0, SitesProgressed((SiteProgress(A, 40, 400_000, 0, has_ended=True),)))
    assert decided[-1].keys() == {B, C}
    assert sum(decided[-1].values()) == pytest.approx(60_000)
    tell(25.0, CapacityChanged(30_000.0))  # type: ignore[arg-type]
    assert sum(decided[-1].values()) == pytest.approx(30_000)
    tell(30.0, SitesProgressed((SiteProgress(B, 9, 90_000, 0, True), SiteProgress(C, 9, 90_000, 0, True))))
    assert engine.is_finished
    assert engine.stats.site_stats(A).ended_at == START + 20.0


async def test_a_limit_and_orders_in_the_run_folder_are_carried_out_or_refused(tmp_path: Path) -> None:
    (tmp_path / "crawl.sqlite").touch()
    notes: list[str] = []
    steering = steering_of(job_of("prodataamount"), tmp_path, notes=notes)
    steering.begin()
    try:
        await until(steering, lambda: bool(steering.world.rates))
        assert steering.world.capacity_bytes_per_s == 60_000
        at = Instant(steering.task_of(A).deadline_at or 0.0)
        write_limit(tmp_path, "30 KB/s")
        write_order(tmp_path, at, SetDeadline(A, Instant(at + 100.0)))
        write_order(tmp_path, at, StopSite(B))
        write_order(tmp_path, at, Pause())
        await until(steering, lambda: steering.is_paused)
        assert steering.rate_of(A) == 0.0
        assert steering.task_of(A).deadline_at == at + 100.0
        write_order(tmp_path, at, Resume())
        await until(steering, lambda: not steering.is_paused)
        await until(steering, lambda: sum(map(steering.rate_of, (A, B, C))) == pytest.approx(30_000))
    finally:
        await steering.aclose()
    refused = f"ordered: stop {B}: refused: in run-scrapy change the job's sites instead"
    assert any(note.startswith(refused) for note in notes)


@pytest.mark.usefixtures("shares")
async def test_a_policy_of_a_user_that_fails_ends_the_run_with_its_name(tmp_path: Path) -> None:
    steering = steering_of(job_of("shares_of_a_user:fails_later"), tmp_path)
    steering.begin()
    try:
        await until(steering, lambda: bool(steering.world.rates))
        steering.tell(SiteProgress(A, 3, 900_000, 0, has_ended=True))
        with pytest.raises(HeadwayError, match=r"shares_of_a_user:fails_later failed .*ZeroDivisionError"):
            await until(steering, lambda: False)
    finally:
        await steering.aclose()


async def until(steering: Steering, is_so: object) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # type: ignore[operator]
            steering.look()
            await asyncio.sleep(0.005)


def test_what_delays_show_and_revisits_are_not_for_spiders(tmp_path: Path) -> None:
    """Nobody measures delays on their connections, and a spider visits its pages once."""
    job = job_of(background=True, every="1 h", admission_depth=4)
    assert steering_of(job, tmp_path).plan().first_rates == steering_of(job_of(), tmp_path).plan().first_rates
    assert structs.replace(job, revisiting=None) != job
