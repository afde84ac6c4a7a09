"""`headway plan`: can the deadlines be met, and with which bandwidth?"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import click
import msgspec
from click.shell_completion import CompletionItem

from headway.cli.frame import DEADLINES_MISSED, print_lines, read_option, stdout
from headway.cli.options import job_options, learning_options, learnt_by
from headway.config import values
from headway.config.job import Job
from headway.planning.estimate import Knowledge
from headway.planning.policies import POLICIES, Outlook, StartPlan
from headway.planning.problem import Objective, Problem
from headway.plugins import is_reference
from headway.report.plan_text import (
    Compared,
    ObjectiveValues,
    assumption_table,
    compare_table,
    forecast_line,
    gantt,
    hour_table,
    hours_of,
    margin_line,
    most_telling,
    objective_line,
    plan_document,
    shared_lines,
    site_table,
    verdict_lines,
)
from headway.runtime.plan import compare, make_outlook, plan_from_file, probe, unknown_sites, with_listed
from headway.units import Instant, format_size

_PROBE_S = 60.0


class PolicyType(click.ParamType):  # type: ignore[type-arg]  # not generic in older versions of click
    """The name of a policy of headway, or the dotted path of a user's own."""

    name = "policy"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text not in POLICIES and not is_reference(text):
            choices = ", ".join(POLICIES)
            self.fail(
                f"{text!r} is neither one of {choices} nor a path such as 'mypackage.shares:fair'.",
                param,
                ctx,
            )
        return text

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in POLICIES if name.startswith(incomplete)]


@click.command("plan")
@click.argument("job", type=click.Path(path_type=Path), metavar="JOB.toml | SITES.csv | SITES.json")
@job_options(
    "plan",
    policy={
        "type": PolicyType(),
        "help": f"How the sites share the link: {', '.join(POLICIES)}, or the dotted path of a policy.  "
        "[default: the job's, or headway]",
    },
    crawlers={
        "type": click.IntRange(min=1),
        "metavar": "M",
        "help": "Sites open at the same time; another begins when one ends.  [default: the job's, or all]",
    },
    objective={"help": "What to minimize once deadlines are met.  [default: the job's, or max-completion]"},
)
@learning_options
@click.option(
    "--probe",
    "probing",
    is_flag=True,
    help="Ask sites of unknown size for robots.txt and their sitemaps, for at most a minute.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Random seed of the policies random, ga and de.",
)
@click.option("--compare", "comparing", is_flag=True, help="Compare all policies in one table.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the plan to a PNG, SVG or PDF file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan_command(
    job: Path,
    *,
    bandwidth: str | None,
    policy: str | None,
    crawlers: int | None,
    objective: str | None,
    learn_from: Path | None,
    forget: bool,
    probing: bool,
    seed: int,
    comparing: bool,
    plot: Path | None,
    as_json: bool,
) -> int:
    """Check whether all deadlines of a job can be met, and with which bandwidth. Without --probe, nothing
    is fetched.

    The command shows what the planner would decide if the crawl started now: when each site starts and ends,
    its rate, and the least bandwidth that meets all deadlines. Values that the job does not give are assumed;
    each is shown with its source: given by the job, learnt in an earlier run, counted in the site's sitemaps
    (--probe), or default. The exit code is 3 if deadlines will be missed.

    Instead of a job file, sites can be given as a CSV table with the header
    name,data_bytes,deadline_s,cap_bytes_per_s,weight,xi (plain numbers; an empty field means none), or as the
    same in JSON.
    """
    plan = plan_from_file(
        job,
        Instant(time.time()),
        bandwidth_bytes_per_s=None
        if bandwidth is None
        else read_option("--bandwidth", values.rate, bandwidth),
        policy=policy,
        crawlers=crawlers,
        learn_from=learn_from,
        learnt=learnt_by(learn_from, forget=forget, warn=partial(click.echo, err=True)),
        ask=_ask if probing else None,
    )
    goal = Objective(objective) if objective else plan.objective
    policy = policy or plan.policy
    if comparing:
        _compare(plan.problem, goal, seed, as_json=as_json)
        if plot is None:
            return 0
    outlook = make_outlook(plan.problem, policy, goal, seed=seed)
    if plot is not None:
        from headway.report.plots import draw_plan

        draw_plan(outlook.schedule, f"{job.stem}: {policy}, {goal}", plot)
    if not comparing:
        if as_json:
            click.echo(msgspec.json.encode(plan_document(outlook, plan)))
        else:
            at_most = plan.at_most()
            _show(plan, outlook, None if at_most is None else make_outlook(at_most, policy, goal, seed=seed))
    return DEADLINES_MISSED if outlook.schedule.late else 0


def _ask(job: Job, knowledge: Knowledge) -> Knowledge:
    """Probe the sites of unknown size, and say what each has answered."""
    found = asyncio.run(probe(job, unknown_sites(job, knowledge), longest_s=_PROBE_S))
    for site, listed in found.items():
        click.echo(f"{site}: {listed.line()}", err=True)
    return with_listed(knowledge, found)


def _show(plan: StartPlan, outlook: Outlook, at_most: Outlook | None) -> None:
    console = stdout()
    shown = most_telling(outlook.schedule)
    print_lines(console, *verdict_lines(outlook, plan.assumptions))
    if at_most is not None:
        print_lines(console, margin_line(outlook, at_most))
    if line := forecast_line(plan):
        print_lines(console, line)
    for quota in plan.quotas:
        amount = f"{format_size(quota.limit_bytes)} a {quota.period}"
        print_lines(console, f"This plan does not include the quota of {amount}; headway simulate does.")
    console.print(site_table(outlook, shown, narrow=console.width < 100))
    for line in gantt(outlook.schedule, shown, min(console.width, 110)):
        console.print(line, markup=False, no_wrap=True, soft_wrap=True)
    hidden = len(outlook.problem) - len(shown)
    if hidden:
        console.print(f"... and {hidden} more sites with more time to spare (--json shows all)")
    hours = hours_of(plan, outlook.schedule)
    has_hours = bool(outlook.problem.shut_s) or not outlook.problem.capacity.is_constant
    if has_hours and len(hours) > 1:
        console.print()
        console.print(hour_table(hours, plan.zone))
    console.print()
    if plan.assumptions:
        console.print(assumption_table(plan.assumptions, shown, plan.problem.cap_bytes_per_s))
        print_lines(console, *shared_lines(plan.assumptions))
    print_lines(console, objective_line(outlook.schedule))


def _compare(problem: Problem, goal: Objective, seed: int, *, as_json: bool) -> None:
    results = compare(problem, goal, seed=seed)
    if as_json:
        rows = [
            Compared(name, None if schedule is None else ObjectiveValues.of(schedule), note)
            for name, schedule, note in results
        ]
        click.echo(msgspec.json.encode(rows))
        return
    console = stdout()
    table, notes = compare_table(problem, results)
    console.print(table)
    print_lines(console, *notes)
