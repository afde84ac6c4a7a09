"""`headway plan`: will the deadlines hold, and with which bandwidth would they?"""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from headway.app.planning import compare, make_outlook, problem_from_file
from headway.cli.frame import print_lines, read_option, stdout
from headway.config import checks
from headway.policy.allocation.outlook import Outlook
from headway.policy.allocation.policies import POLICIES
from headway.policy.allocation.problem import Objective, Problem
from headway.report.plan_gantt import gantt
from headway.report.plan_json import Compared, ObjectiveValues, plan_document
from headway.report.plan_table import compare_table, most_telling, objective_line, site_table, verdict_lines
from headway.units import Instant


@click.command("plan")
@click.argument("job", type=click.Path(path_type=Path), metavar="JOB.toml | SITES.csv | SITES.json")
@click.option("--bandwidth", metavar="RATE", help="What the link has, such as 5Mbit/s.")
@click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    default="headway",
    show_default=True,
    metavar="NAME",
    help=f"How the link is shared out: {', '.join(POLICIES)}.",
)
@click.option("--crawlers", type=click.IntRange(min=1), metavar="M", help="Sites open at once; else all.")
@click.option(
    "--objective",
    type=click.Choice([str(objective) for objective in Objective]),
    help="What to make small once every deadline that can hold does; else the job's, or max-completion.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="For random, ga and de.")
@click.option("--compare", "comparing", is_flag=True, help="All policies in one table.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw it as PNG, SVG or PDF.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def plan_command(
    job: Path,
    *,
    bandwidth: str | None,
    policy: str,
    crawlers: int | None,
    objective: str | None,
    seed: int,
    comparing: bool,
    plot: Path | None,
    as_json: bool,
) -> int:
    """Say whether all deadlines of a job can hold, and how; nothing is fetched.

    Sites may come as a CSV table with the header name,data_bytes,deadline_s,cap_bytes_per_s,weight,xi
    (plain numbers, an empty field for none), or as the same in JSON.
    """
    problem, wanted = problem_from_file(
        job,
        Instant(time.time()),
        bandwidth_bytes_per_s=None
        if bandwidth is None
        else read_option("--bandwidth", checks.rate, bandwidth),
        crawlers=crawlers,
    )
    goal = Objective(objective) if objective else wanted or Objective.MAX_COMPLETION
    if comparing:
        _compare(problem, goal, seed, as_json=as_json)
        if plot is None:
            return 0
    outlook = make_outlook(problem, policy, goal, seed=seed)
    if plot is not None:
        from headway.report.plan_figure import draw_plan

        draw_plan(outlook.schedule, f"{job.stem}: {policy}, {goal}", plot)
    if not comparing:
        _show(outlook, as_json=as_json)
    return 0


def _show(outlook: Outlook, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(plan_document(outlook)))
        return
    console = stdout()
    shown = most_telling(outlook.schedule)
    print_lines(console, *verdict_lines(outlook))
    console.print(site_table(outlook, shown, narrow=console.width < 100))
    for line in gantt(outlook.schedule, shown, min(console.width, 110)):
        console.print(line, markup=False, no_wrap=True, soft_wrap=True)
    hidden = len(outlook.problem) - len(shown)
    if hidden:
        console.print(f"... and {hidden} more sites with more time to spare (--json shows all)")
    console.print()
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
