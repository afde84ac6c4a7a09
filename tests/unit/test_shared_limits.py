"""The planner knows which sites take turns, by domain or by server: plan, simulation and crawl agree."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headway.config.job import load_job
from headway.engine.demands import SharedLimits, shared_ends_s
from headway.engine.stats import SiteStats
from headway.model.page import Site, Task
from headway.planning.policies import StartPlan
from headway.policy.politeness import Politeness
from headway.policy.server_groups import GroupRules
from headway.runtime.plan import make_outlook, plan_from_job
from headway.runtime.simulation import simulate_drawn_job
from headway.units import Instant, Seconds

NOW = Instant(1_800_000_000.0)


def job_text(names: dict[str, str], more: str = "") -> str:
    sites = "".join(
        f'[[site]]\nurl = "http://{name}/"\ndata = "300 KB"\ndeadline = "{due}"\n'
        for name, due in names.items()
    )
    return f'[crawl]\nbandwidth = "10 Mbit/s"\ninterval = "5 s"\n{more}{sites}'


def planned(folder: Path, names: dict[str, str], more: str = "") -> StartPlan:
    (folder / "job.toml").write_text(job_text(names, more))
    return plan_from_job(load_job(folder / "job.toml", NOW), NOW)


def late_of(plan: StartPlan) -> set[str]:
    schedule = make_outlook(plan.problem, "headway").schedule
    return {plan.problem.names[site][7:] for site in np.flatnonzero(schedule.tardiness_s).tolist()}


ALONE = {"one.example": "2 min", "two.example": "2 min", "three.example": "2 min"}
TOGETHER = {"one.site.example": "2 min", "two.site.example": "2 min", "three.site.example": "2 min"}


def test_sites_of_one_domain_cannot_each_have_the_whole_interval(tmp_path: Path) -> None:
    # Ten pages of 30 KB, one each 5 s, take 50 s; thirty of them take more than two minutes.
    assert late_of(planned(tmp_path, ALONE)) == set()
    plan = planned(tmp_path, TOGETHER)
    assert late_of(plan) == set(TOGETHER)
    assert [(each.name, each.sites, each.pause_s) for each in plan.assumptions[0].shared] == [
        ("site.example", 3, 5.0)
    ]


def test_the_site_that_is_due_first_has_its_turn_first(tmp_path: Path) -> None:
    names = {"one.site.example": "1 min", "two.site.example": "2 min", "three.site.example": "3 min"}
    assert late_of(planned(tmp_path, names)) == set()
    names["three.site.example"] = "130 s"
    assert late_of(planned(tmp_path, names)) == {"three.site.example"}


def test_owners_below_a_public_suffix_share_nothing(tmp_path: Path) -> None:
    names = {"one.github.io": "2 min", "two.github.io": "2 min", "three.github.io": "2 min"}
    assert late_of(planned(tmp_path, names)) == set()


def test_ports_of_one_public_address_are_one_server(tmp_path: Path) -> None:
    names = {"8.8.8.8": "70 s", "8.8.8.8:81": "70 s"}
    assert late_of(planned(tmp_path, names)) == set(names)
    assert late_of(planned(tmp_path, names, "per_server_connections = 2\n")) == set()


def test_a_rule_for_a_domain_counts_in_the_plan(tmp_path: Path) -> None:
    rule = '[[server]]\ndomain = "site.example"\ninterval = "1 s"\n'
    (tmp_path / "job.toml").write_text(job_text(TOGETHER) + rule)
    plan = plan_from_job(load_job(tmp_path / "job.toml", NOW), NOW)
    assert late_of(plan) == set()


@pytest.mark.parametrize("dues", [("1 min", "2 min", "3 min"), ("3 min", "3 min", "3 min")])
def test_a_simulated_crawl_ends_as_planned(tmp_path: Path, dues: tuple[str, ...]) -> None:
    plan = planned(tmp_path, dict(zip(TOGETHER, dues, strict=True)))
    ends = make_outlook(plan.problem, "headway").schedule.end_s
    job = load_job(tmp_path / "job.toml", NOW)
    result = simulate_drawn_job(job, "job.toml", NOW, draws=1)
    assert result.all_met == 1.0
    assert result.first.end_s == pytest.approx(float(ends.max()), rel=0.15)


def test_a_name_joins_its_server_once_that_is_known() -> None:
    limits = SharedLimits(GroupRules(Seconds(5.0), Seconds(5.0)), Politeness(Seconds(5.0)))
    one, two = (SiteStats(Task(Site(f"https://{name}.example"), ())) for name in ("one", "two"))
    limits.note(0, one)
    limits.note(1, two)
    assert limits.all() == []
    one.server_group = two.server_group = "192.0.2.1"
    limits.note(0, one)
    limits.note(1, two)
    assert [(group.key, group.rows) for group in limits.all()] == [("192.0.2.1", [0, 1])]
    two.server_group = "192.0.2.2"
    limits.note(1, two)
    assert limits.all() == []


def test_turns_are_taken_by_deadline_and_equal_ones_together() -> None:
    ends = shared_ends_s(np.array([10.0, 20.0, 5.0, 1.0]), np.array([50.0, 100.0, 50.0, np.inf]))
    assert ends.tolist() == [15.0, 35.0, 15.0, 36.0]
