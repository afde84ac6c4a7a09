"""`headway simulate`: what would a crawl do, before it is run?"""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec
from click.core import ParameterSource

from headway.cli.frame import print_lines, read_option, stderr, stdout
from headway.config import checks
from headway.policy.ordering import ORDERING_NAMES
from headway.policy.timetable import Entry, Timetable
from headway.report.sim_result import SimResult
from headway.report.sim_table import heading, legend, one_result, strategy_table
from headway.report.sim_whatif import WhatIf, policy_table, site_table, verdict
from headway.units import UNBOUNDED, Instant, parse_duration, parse_rate

WHAT_IF_LEGEND = (
    "held: in which share of the draws; x 0.5: with half the link. Ranges leave out one draw in ten at "
    "either end."
)
_FOR_JOBS = frozenset({"draws", "sizes_from"})
_FOR_BOTH = frozenset({"web", "bandwidth", "seed", "as_json"})
_SHARE = click.FloatRange(0, 1, max_open=True)
_WEB = "GRAPH/ | synthetic[:pages=N,sites=N,...] | RUN/ | JOB.toml"


@click.command("simulate")
@click.argument("web", metavar=_WEB)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    metavar="NAME",
    help=f"The order of sites and pages: {', '.join(ORDERING_NAMES)}. May be given more than once.",
)
@click.option("--compare", "comparing", is_flag=True, help="The strategies of the paper side by side.")
@click.option(
    "--robots", type=int, default=64, show_default=True, help="Connections at once, to different sites."
)
@click.option("--interval", default="15 s", show_default=True, help="Between two connections to a site.")
@click.option("--pages-per-connection", type=int, default=1, show_default=True, help="On keep-alive.")
@click.option("--bandwidth", metavar="RATE", help="What the link has, such as 5Mbit/s; otherwise unbounded.")
@click.option(
    "--timetable",
    nargs=3,
    multiple=True,
    metavar="DAYS HOURS RATE",
    help="Another bandwidth then, such as: mon-fri 08:00-18:00 1Mbit/s. It begins on a Thursday at midnight.",
)
@click.option(
    "--site", "sites", multiple=True, metavar="HOST", help="Only this site of the web; may be repeated."
)
@click.option(
    "--missing", type=_SHARE, default=0.0, metavar="SHARE", help="Of the pages that are gone (404)."
)
@click.option(
    "--flaky", type=_SHARE, default=0.0, metavar="SHARE", help="Of the attempts that meet an error."
)
@click.option("--down", type=_SHARE, default=0.0, metavar="SHARE", help="Of the sites that never answer.")
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="For all that is drawn.")
@click.option("--draws", type=click.IntRange(min=1), default=100, show_default=True, help="With JOB.toml.")
@click.option(
    "--sizes-from",
    type=click.Path(path_type=Path),
    metavar="RUN/",
    help="With JOB.toml: what its sites held then.",
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Draw it as PNG, SVG or PDF.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def simulate_command(
    web: str,
    *,
    strategies: tuple[str, ...],
    comparing: bool,
    robots: int,
    interval: str,
    pages_per_connection: int,
    bandwidth: str | None,
    timetable: tuple[tuple[str, str, str], ...],
    sites: tuple[str, ...],
    missing: float,
    flaky: float,
    down: float,
    seed: int,
    draws: int,
    sizes_from: Path | None,
    plot: Path | None,
    as_json: bool,
) -> int:
    """Crawl a described web in virtual time: a graph, a made-up web, the web of an earlier run.

    With a job file: will its deadlines hold, under each way to share the link, and what if the link had
    half as much?
    """
    _refuse_idle_options(is_job=web.endswith(".toml"))
    rate = None if bandwidth is None else read_option("--bandwidth", checks.rate, bandwidth)
    if web.endswith(".toml"):
        from headway.app.simulating import what_if_of_job

        with stderr().status("reading the job") as status:
            told = what_if_of_job(
                Path(web),
                Instant(time.time()),
                bandwidth_bytes_per_s=rate,
                sizes_from=sizes_from,
                draws=draws,
                seed=seed,
                tell=status.update,
            )
        _show_what_if(told, as_json=as_json)
        return 0
    from headway.app.simulating import load_web, only_sites, simulate_strategies, usual_strategies
    from headway.sim.setup import Setup
    from headway.sim.trouble import Trouble

    interval_s = read_option("--interval", parse_duration, interval)
    entries = tuple(read_option("--timetable", _entry, words) for words in timetable)
    graph, servers = only_sites(*load_web(web, seed=seed), sites)
    names = list(strategies) or (usual_strategies(graph) if comparing else ["length"])
    setups = [
        Setup(
            strategy=name,
            robots=robots,
            interval_s=interval_s,
            pages_per_connection=pages_per_connection,
            bandwidth=Timetable(UNBOUNDED if rate is None else rate, entries),
            seed=seed,
        )
        for name in names
    ]
    trouble = Trouble.drawn(graph.pages, len(graph.sites), seed, missing=missing, flaky=flaky, down=down)
    with stderr().status("", spinner="dots") as status:
        results = simulate_strategies(graph, servers, setups, trouble=trouble, tell=status.update)
    if plot is not None:
        from headway.report.sim_figure import draw_comparison

        draw_comparison(results, plot)
    _show(results, as_json=as_json, as_list=comparing or len(names) > 1)
    return 0


def _entry(words: tuple[str, str, str]) -> Entry:
    days, hours, rate = words
    return Entry.parse(days, hours, parse_rate(rate))


def _refuse_idle_options(*, is_job: bool) -> None:
    """An option that would change nothing is a misunderstanding."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in _FOR_BOTH or (option.name in _FOR_JOBS) == is_job:
            continue
        if context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            needs = "a web; a job file says its own" if is_job else "a job file"
            raise click.UsageError(f"{option.opts[0]} is for {needs}")


def _show(results: list[SimResult], *, as_json: bool, as_list: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(results if as_list else results[0]))
        return
    console = stdout(is_literal=True)
    print_lines(console, heading(results))
    if as_list:
        console.print(strategy_table(results))
        print_lines(console, legend(results), style="dim")
    else:
        print_lines(console, *one_result(results[0]))


def _show_what_if(told: WhatIf, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(told))
        return
    console = stdout(is_literal=True)
    print_lines(console, *verdict(told))
    console.print()
    console.print(site_table(told))
    console.print()
    console.print(policy_table(told))
    print_lines(console, WHAT_IF_LEGEND, style="dim")
