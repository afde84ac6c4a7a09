"""A plan put together: sites from a table or a job file in, schedules and a verdict out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headway.app.sitetable import read_site_table
from headway.config.job import Job, load_job
from headway.errors import JobError
from headway.policy.allocation.capacity import Timetable
from headway.policy.allocation.outlook import Outlook
from headway.policy.allocation.policies import POLICIES, run_policy
from headway.policy.allocation.problem import Objective, Problem, Schedule
from headway.policy.estimate import PRIOR_PAGE_BYTES, Evidence, cap_bytes_per_s, remaining_bytes
from headway.units import BytesPerSecond, Instant, Seconds

_HORIZON_S = Seconds(28 * 86_400.0)
_USUAL_SERVER = BytesPerSecond(1_000_000.0)
_USUAL_LATENCY_S = Seconds(0.1)
_USUAL_PAGES = 300


def problem_from_file(
    path: Path,
    now: Instant,
    *,
    bandwidth_bytes_per_s: BytesPerSecond | None = None,
    crawlers: int | None = None,
) -> tuple[Problem, Objective | None]:
    """The problem that a CSV or JSON table of sites, or a job file, describes; and the objective if it
    names one."""
    if path.suffix.lower() == ".toml":
        job = load_job(path)
        problem = problem_from_job(job, now, bandwidth_bytes_per_s, crawlers)
        return problem, Objective(job.file.crawl.objective)
    sites = read_site_table(path)
    if bandwidth_bytes_per_s is None:
        raise JobError(f"{path} says nothing of the bandwidth; give one, such as --bandwidth 1Mbit/s")
    problem = Problem.of(
        sites.column("data_bytes"),
        Timetable.constant(bandwidth_bytes_per_s),
        deadline_s=sites.column("deadline_s"),
        cap_bytes_per_s=sites.column("cap_bytes_per_s"),
        weight=sites.column("weight"),
        xi=sites.column("xi"),
        names=sites.names,
        crawlers=crawlers,
    )
    return problem, None


def problem_from_job(
    job: Job, now: Instant, bandwidth_bytes_per_s: BytesPerSecond | None = None, crawlers: int | None = None
) -> Problem:
    """A crawl that would begin now. What a site holds is what the job says, or else a guess."""
    if bandwidth_bytes_per_s is None and not job.is_bounded:
        raise JobError("the job has no bandwidth, so there is nothing to share; give one with --bandwidth")
    tasks = job.tasks(now)
    data, caps = [], []
    for task in tasks:
        evidence = Evidence(waiting_pages=_USUAL_PAGES, max_pages=task.max_pages, max_bytes=task.max_bytes)
        data.append(float(task.expected_bytes or max(remaining_bytes(evidence).expected, 1.0)))
        polite = cap_bytes_per_s(
            PRIOR_PAGE_BYTES,
            pause_s=Seconds(job.interval_s / job.file.crawl.pages_per_connection),
            latency_s=_USUAL_LATENCY_S,
            server_rate_bytes_per_s=_USUAL_SERVER,
        )
        caps.append(polite if task.cap_bytes_per_s is None else min(polite, task.cap_bytes_per_s))
    return Problem.of(
        data,
        _link_of(job, now) if bandwidth_bytes_per_s is None else Timetable.constant(bandwidth_bytes_per_s),
        deadline_s=[np.inf if task.deadline_at is None else task.deadline_at - now for task in tasks],
        cap_bytes_per_s=caps,
        weight=[task.weight for task in tasks],
        names=[task.site for task in tasks],
        crawlers=crawlers or job.file.crawl.max_connections,
    )


def make_outlook(
    problem: Problem, policy: str, objective: Objective = Objective.MAX_COMPLETION, *, seed: int = 0
) -> Outlook:
    return Outlook.of(policy, objective, run_policy(policy, problem, objective, seed=seed))


def compare(
    problem: Problem, objective: Objective = Objective.MAX_COMPLETION, *, seed: int = 0
) -> list[tuple[str, Schedule | None, str]]:
    """Every policy on the same job: its schedule and what to know of it, or why it cannot take the job."""
    results: list[tuple[str, Schedule | None, str]] = []
    for name in POLICIES:
        try:
            schedule = run_policy(name, problem, objective, seed=seed)
        except JobError as reason:
            results.append((name, None, str(reason)))
        else:
            results.append((name, schedule, "; ".join(schedule.notes)))
    return results


def _link_of(job: Job, now: Instant) -> Timetable:
    segments = job.timetable.segments(now, _HORIZON_S)
    return Timetable([(float(from_s), float(rate)) for from_s, _, rate in segments])
