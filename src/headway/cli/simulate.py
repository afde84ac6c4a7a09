"""`headway simulate`: a job, a recorded run, a graph or a synthetic web crawled in virtual time."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from click.core import ParameterSource

from headway.cli.frame import print_lines, read_option, stderr, stdout
from headway.cli.options import job_options
from headway.config import values
from headway.policy.ordering import ORDERING_NAMES
from headway.policy.timetable import Entry
from headway.report.simulation import heading, legend, one_result, strategy_table
from headway.sim.job_simulation import (
    JobSimulation,
    assumption_lines,
    hidden_line,
    job_site_table,
    policy_table,
    run_site_table,
    verdict,
)
from headway.sim.study import SimResult
from headway.units import Instant, parse_duration, parse_rate

if TYPE_CHECKING:
    from headway.runtime.simulation import Wanted

POLICY_LEGEND = (
    "Computed from rates alone, without the crawl's engine. held: share of the draws in which the deadlines "
    "are met; x 0.5: with half the bandwidth. Ranges are from the 10th to the 90th percentile of the draws."
)
_DRAWS_OF_POLICIES = 100
_FOR_JOBS = frozenset({"draws", "sizes_from", "start", "comparing_policies"})
_FOR_WEBS = frozenset({"sites", "comparing", "accelerated"})
_SHARE = click.FloatRange(0, 1, max_open=True)
_WEB = "GRAPH/ | synthetic[:pages=N,sites=N,...] | RUN/ | JOB.toml"


@click.command("simulate")
@click.argument("web", metavar=_WEB)
@job_options(
    "simulate",
    strategy={
        "multiple": True,
        "help": f"Order of sites and pages: {', '.join(ORDERING_NAMES)}, or the dotted path of your own. May "
        "be repeated, except for a job.",
    },
    robots={
        "help": "Connections at the same time, at most one to each site.  [default: that of the job or run, "
        "else 64]"
    },
    interval={
        "help": "Pause between two connections to a site.  [default: that of the job or run, else 15 s]"
    },
    pages_per_connection={
        "help": "Pages fetched in a row from a site before the pause.  [default: that of the job or run, "
        "else 1]"
    },
    bandwidth={
        "help": "Bandwidth limit, such as 5Mbit/s.  [default: that of the job or run, else unlimited]"
    },
)
@click.option("--compare", "comparing", is_flag=True, help="Compare the strategies of castillo2004.")
@click.option(
    "--timetable",
    nargs=3,
    multiple=True,
    metavar="DAYS HOURS RATE",
    help="Use another bandwidth at these times, such as: mon-fri 08:00-18:00 1Mbit/s. May be repeated. The "
    "crawl of a graph starts on a Thursday at midnight.",
)
@click.option(
    "--site", "sites", multiple=True, metavar="HOST", help="Crawl only this site of the web; may be repeated."
)
@click.option(
    "--missing", type=_SHARE, default=0.0, metavar="SHARE", help="Share of pages that are gone (404)."
)
@click.option("--flaky", type=_SHARE, default=0.0, metavar="SHARE", help="Share of requests that fail.")
@click.option("--down", type=_SHARE, default=0.0, metavar="SHARE", help="Share of sites that never answer.")
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Random seed.")
@click.option(
    "--draws",
    type=click.IntRange(min=1),
    metavar="N",
    help="With JOB.toml: number of random webs to simulate.  [default: 1 to 10, fewer for large jobs]",
)
@click.option(
    "--sizes-from",
    type=click.Path(path_type=Path),
    metavar="RUN/",
    help="With JOB.toml: take the sizes and server speeds of sites from this earlier run.",
)
@click.option(
    "--start",
    metavar="WHEN",
    help="With JOB.toml: when the crawl starts, such as 22:00 or 2030-01-31T22:00.  [default: now]",
)
@click.option(
    "--compare-policies",
    "comparing_policies",
    is_flag=True,
    help="With JOB.toml: also compare the allocation policies, computed from rates alone.",
)
@click.option(
    "--accelerator/--engine",
    "accelerated",
    default=None,
    help="For a graph: use the accelerator for ordering studies, which shares the link evenly, or the "
    "crawl's engine with its planner. Without a bandwidth limit both give the same result, and the "
    "accelerator is used.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the result to a PNG, SVG or PDF file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def simulate_command(
    web: str,
    *,
    strategy: tuple[str, ...],
    comparing: bool,
    robots: int | None,
    interval: str | None,
    pages_per_connection: int | None,
    bandwidth: str | None,
    timetable: tuple[tuple[str, str, str], ...],
    sites: tuple[str, ...],
    missing: float,
    flaky: float,
    down: float,
    seed: int,
    draws: int | None,
    sizes_from: Path | None,
    start: str | None,
    comparing_policies: bool,
    accelerated: bool | None,
    plot: Path | None,
    as_json: bool,
) -> int:
    """Simulate the crawl of a job, an earlier run, a graph or a synthetic web in virtual time.

    The simulation runs the engine of the crawl. With a job file, it shows whether the deadlines will be met;
    with a run folder, what the run would have done with another bandwidth, interval or strategy. Options
    replace the settings of the job or the run.
    """
    from headway.runtime.simulation import TroubleShares, Wanted, is_run

    is_job = web.endswith(".toml")
    _refuse_idle_options(is_job=is_job)
    entries = tuple(read_option("--timetable", _entry, words) for words in timetable)
    wanted = Wanted(
        strategies=strategy,
        robots=robots,
        interval_s=None if interval is None else read_option("--interval", parse_duration, interval),
        pages_per_connection=pages_per_connection,
        bandwidth_bytes_per_s=None
        if bandwidth is None
        else read_option("--bandwidth", values.rate, bandwidth),
        timetable=entries,
        sites=sites,
        trouble=TroubleShares(missing, flaky, down),
        seed=seed,
    )
    if is_job:
        simulation = _simulate_job(
            Path(web),
            wanted,
            start=start,
            draws=draws,
            sizes_from=sizes_from,
            comparing_policies=comparing_policies,
        )
        if plot is not None:
            from headway.report.simulation import draw_job

            draw_job(simulation, plot)
        _show_job(simulation, as_json=as_json)
        return 0
    from headway.runtime.simulation import simulate_run, simulate_web

    with stderr().status("reading the web", spinner="dots") as status:
        if is_run(web):
            results = simulate_run(
                Path(web), wanted, comparing=comparing, accelerated=bool(accelerated), tell=status.update
            )
        else:
            results = simulate_web(
                web, wanted, comparing=comparing, accelerated=accelerated, tell=status.update
            )
    if plot is not None:
        from headway.report.simulation import draw_comparison

        draw_comparison(results, plot)
    _show(results, as_json=as_json, as_list=comparing or len(strategy) > 1)
    return 0


def _simulate_job(
    path: Path,
    wanted: Wanted,
    *,
    start: str | None,
    draws: int | None,
    sizes_from: Path | None,
    comparing_policies: bool,
) -> JobSimulation:
    from headway.config.job import load_job
    from headway.runtime.simulation import compare_policies, simulate_drawn_job, wanted_job

    # A whole second, so that the same seed gives the same figures.
    started_at = Instant(math.floor(time.time()))
    job = wanted_job(load_job(path, started_at if start is None else None), wanted)
    if start is not None:
        now = started_at
        started_at = read_option("--start", lambda text: values.deadline_at(text, now, job.zone), start)
        load_job(path, started_at)  # for the line of a deadline before the start
    with stderr().status("reading the job", spinner="dots") as status:
        simulation = simulate_drawn_job(
            job,
            path.name,
            started_at,
            sizes_from=sizes_from,
            draws=draws,
            seed=wanted.seed,
            trouble=wanted.trouble,
            tell=status.update,
        )
        if comparing_policies:
            simulation = compare_policies(
                job, path.name, simulation, draws=draws or _DRAWS_OF_POLICIES, tell=status.update
            )
    return simulation


def _entry(words: tuple[str, str, str]) -> Entry:
    days, hours, rate = words
    return Entry.parse(days, hours, parse_rate(rate))


def _refuse_idle_options(*, is_job: bool) -> None:
    """Refuse an option that would have no effect."""
    context = click.get_current_context()
    for option in context.command.params:
        if context.get_parameter_source(option.name or "") is not ParameterSource.COMMANDLINE:
            continue
        if is_job and option.name in _FOR_WEBS:
            raise click.UsageError(f"{option.opts[0]} applies to a graph or web, not to a job file")
        if not is_job and option.name in _FOR_JOBS:
            raise click.UsageError(f"{option.opts[0]} applies to a job file only")


def _show(results: list[SimResult], *, as_json: bool, as_list: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(results if as_list else results[0]))
        return
    console = stdout(is_literal=True)
    print_lines(console, heading(results))
    if as_list:
        console.print(strategy_table(results))
        print_lines(console, legend(results), style="dim")
        return
    print_lines(console, *one_result(results[0]))
    if sites := results[0].sites:
        console.print()
        console.print(run_site_table(sites))
        print_lines(console, *filter(None, [hidden_line(len(sites))]))


def _show_job(simulation: JobSimulation, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(simulation))
        return
    console = stdout(is_literal=True)
    print_lines(console, *verdict(simulation))
    console.print()
    console.print(job_site_table(simulation))
    print_lines(console, *filter(None, [hidden_line(len(simulation.sites))]))
    console.print()
    print_lines(console, *assumption_lines(simulation), style="dim")
    if simulation.policies:
        console.print()
        console.print(policy_table(simulation.policies))
        print_lines(console, POLICY_LEGEND, style="dim")
