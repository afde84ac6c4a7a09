"""`headway simulate`: tables, JSON, plots, and clear words for what cannot be."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from rich.table import Table

from headway.cli.simulate import simulate_command
from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.errors import HeadwayError
from headway.model.command import Command, SaveFound, SaveSettled, SaveSite, SaveTasks
from headway.model.event import Seeded
from headway.model.page import Site, Task
from headway.planning.estimate import Assumption, SiteAssumptions
from headway.policy.ordering import make_ordering
from headway.policy.politeness import Politeness, RetryPolicy
from headway.report.simulation import strategy_table
from headway.runtime.driver import simulate
from headway.runtime.simulation import EVERYTHING, seed_pages
from headway.sim.job_simulation import (
    Draw,
    JobSimulation,
    JobSite,
    PolicyChance,
    Range,
    job_site_table,
    policy_table,
)
from headway.sim.study import SimResult
from headway.sim.web import Servers, Trouble, Web
from headway.sim.world import GraphWorld
from headway.store.sqlite import SqliteStore
from headway.units import Instant, Seconds

SMALL = "synthetic:pages=400,sites=12"
JOB = """
[crawl]
bandwidth = "2 Mbit/s"
interval = "0 s"
pages_per_connection = 50
[[site]]
url = "https://a.example/"
deadline = "20 min"
data = "{data}"
[[site]]
url = "https://b.example/"
data = "20 MB"
"""


def run(*args: object) -> Result:
    result = CliRunner().invoke(simulate_command, [str(arg) for arg in args], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


def test_json_has_the_figures_and_the_curve() -> None:
    told = json.loads(run(SMALL, "--strategy", "length", "--json").stdout)
    assert told["strategy"] == "length"
    assert told["pages"] == 400
    assert told["seconds"] > 0
    assert told["speedup"] > 0
    assert 0.5 < told["pagerank_auc"] < 1
    assert told["pagerank_curve"][0] == [0.0, 0.0]
    assert told["pagerank_curve"][-1] == [1.0, pytest.approx(1.0)]
    assert told["bandwidth_bytes_per_s"] is None


def test_comparing_gives_a_row_for_each_strategy_of_the_paper_and_optimal_is_best() -> None:
    told = json.loads(run(SMALL, "--compare", "--robots", "1", "--json").stdout)
    names = [result["strategy"] for result in told]
    assert names == ["optimal", "length", "batch(40)", "depth", "partial(40)", "flow(40)", "random"]
    assert max(told, key=lambda result: result["pagerank_auc"])["strategy"] == "optimal"
    table = run(SMALL, "--compare", "--robots", "1").stdout
    for name in names:
        assert f"\n{name} " in table


def test_several_strategies_may_be_named() -> None:
    told = json.loads(run(SMALL, "--strategy", "depth", "--strategy", "klwf", "--json").stdout)
    assert [result["strategy"] for result in told] == ["depth", "klwf"]


def test_options_reach_the_crawl() -> None:
    usual = json.loads(run(SMALL, "--json").stdout)
    kinder = json.loads(run(SMALL, "--interval", "60 s", "--json").stdout)
    slower = json.loads(run(SMALL, "--bandwidth", "5KB/s", "--json").stdout)
    kept = json.loads(run(SMALL, "--pages-per-connection", "100", "--json").stdout)
    assert kinder["seconds"] > usual["seconds"] > kept["seconds"]
    assert slower["seconds"] > usual["seconds"]
    assert slower["wire_bytes"] / slower["seconds"] <= 5000 * (1 + 1e-9)
    nightly = json.loads(
        run(SMALL, "--bandwidth", "1MB/s", "--timetable", "daily", "00:00-01:00", "1KB/s", "--json").stdout
    )
    # An hour carries 3.6 MB at that rate, and all is fetched in less than an hour otherwise.
    assert usual["wire_bytes"] > 3_600_000
    assert nightly["seconds"] > 3_600 > usual["seconds"]
    troubled = json.loads(run(SMALL, "--missing", "0.3", "--flaky", "0.2", "--json").stdout)
    assert troubled["failed"] > 0
    assert troubled["pages"] < 400


def test_the_plot_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run(SMALL, "--compare", "--plot", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(HeadwayError, match="cannot write the plot"):
        run(SMALL, "--plot", tmp_path / "no" / "folder.png")


def test_a_part_of_a_web_can_be_crawled() -> None:
    told = json.loads(run(SMALL, "--site", "s03.test", "--site", "s07.test", "--json").stdout)
    assert 2 <= told["pages"] < 400


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere"], "does not exist"),
        (["postgresql://nobody@127.0.0.1:1/db#news"], "on a server cannot be simulated"),
        (["tests"], "neither a run folder"),
        ([SMALL, "--robots", "0"], "0 robots"),
        ([SMALL, "--interval", "-5 s"], "must not be negative"),
        ([SMALL, "--strategy", "batch(500)"], "only 400 pages"),
        ([SMALL, "--strategy", "best"], "not an ordering"),
        ([SMALL, "--site", "other.test"], "no site 'other.test'"),
        ([SMALL, "--bandwidth", "5"], "unit is missing"),
        ([SMALL, "--bandwidth", "0 B/s"], "above 0"),
        ([SMALL, "--timetable", "never", "00:00-01:00", "1KB/s"], "never"),
        (["synthetic:pages=1,sites=2"], "each needs its home page"),
    ],
)
def test_what_cannot_be_simulated_is_refused_clearly(args: list[str], words: str) -> None:
    with pytest.raises(HeadwayError) as caught:
        run(*args)
    assert words in str(caught.value)


def job(folder: Path, data: str) -> Path:
    path = folder / "job.toml"
    path.write_text(JOB.format(data=data))
    return path


def policies_of(told: dict[str, Any]) -> dict[tuple[str, float], float]:
    return {(each["policy"], each["bandwidth_factor"]): each["all_met"] for each in told["policies"]}


def test_a_job_with_time_to_spare_holds_in_every_draw_and_one_without_in_none(tmp_path: Path) -> None:
    # 20 minutes at 250 KB/s carry 300 MB.
    for data, met in (("4 MB", 1.0), ("3 GB", 0.0)):
        text = (
            JOB.format(data=data)
            .replace("20 min", "100 s")
            .replace('data = "20 MB"', 'data = "2 MB"\nmax_pages = 60')
        )
        path = tmp_path / "job.toml"
        path.write_text(text.replace('data = "3 GB"', 'data = "3 GB"\nmax_bytes = "40 MB"'))
        told = json.loads(run(path, "--draws", "2", "--json").stdout)
        site = told["sites"][0]
        assert told["simulated_by"] == "engine"
        assert told["all_met"] == met
        assert site["met"] == met
        assert (site["end_s"]["high"] <= site["deadline_s"]) == bool(met)


def test_the_policies_are_compared_where_that_is_asked_for(tmp_path: Path) -> None:
    told = json.loads(run(job(tmp_path, "20 MB"), "--draws", "1", "--compare-policies", "--json").stdout)
    chances = policies_of(told)
    assert chances["headway", 1.0] >= max(chance for (_, factor), chance in chances.items() if factor == 1)
    assert not policies_of(json.loads(run(job(tmp_path, "2 MB"), "--draws", "1", "--json").stdout))


def test_a_job_is_described_with_what_was_assumed(tmp_path: Path) -> None:
    text = run(job(tmp_path, "5 MB"), "--draws", "2").stdout
    assert "the engine in virtual time, 2 draws" in text
    assert "1 of 1 deadlines hold" in text
    assert "a.example" in text
    assert "assumed data: 2 sites given (5 MB to 20 MB)" in text
    assert "assumed server: 2 sites default (1 MB/s)" in text


def test_options_replace_what_the_job_says(tmp_path: Path) -> None:
    path = job(tmp_path, "5 MB")
    usual, slow, polite = (
        json.loads(run(path, "--draws", "1", "--json", *more).stdout)["first"]["end_s"]
        for more in ((), ("--bandwidth", "100 KB/s"), ("--pages-per-connection", "1", "--interval", "5 s"))
    )
    assert slow > 2 * usual
    assert polite > 5 * usual


def test_the_link_follows_the_timetable_from_the_given_start(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB.format(data="5 MB").replace('interval = "0 s"', 'interval = "0 s"\ntimezone = "UTC"'))
    told = json.loads(
        run(
            *(path, "--draws", "1", "--json", "--start", "2050-01-03T00:00"),
            *("--timetable", "daily", "00:00-00:01", "1 KB/s"),
        ).stdout
    )
    assert told["capacity_by_time"] == [[0.0, 1000.0], [60.0, 250_000.0]]
    rates = [rate for at, rate in told["link_by_time"] if at <= 55]
    assert max(rates) <= 1000.0 * (1 + 1e-9)


def test_no_second_is_above_the_bound(tmp_path: Path) -> None:
    told = json.loads(run(job(tmp_path, "5 MB"), "--draws", "1", "--json").stdout)
    assert max(rate for _, rate in told["link_by_time"]) <= 250_000 * (1 + 1e-9)
    assert 0.5 < told["first"]["link_use"] <= 1.0


def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    path, start = job(tmp_path, "3 MB"), ("--start", "2050-01-03T00:00")
    once, again, other = (
        run(path, "--draws", "2", "--json", "--seed", seed, *start).stdout for seed in (1, 1, 2)
    )
    assert once == again != other


def test_the_plot_of_a_job_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run(job(tmp_path, "2 MB"), "--draws", "1", "--plot", tmp_path / "job.png")
    assert (tmp_path / "job.png").read_bytes().startswith(b"\x89PNG")


# -- as people see it -------------------------------------------------------------------------------------


def shown(table: Table) -> list[str]:
    console = Console(width=80, file=io.StringIO())
    with console.capture() as caught:
        console.print(table)
    return [line.rstrip() for line in caught.get().splitlines()]


def spread(low_s: float, high_s: float) -> Range:
    return Range(low_s, (low_s + high_s) / 2, high_s)


def test_tables_lose_nothing_at_eighty_columns() -> None:
    name = "www.a-rather-long-host-name.in-some.example.org"
    value = Assumption(1e6, "default")
    site = JobSite(
        site=f"https://{name}",
        deadline_s=5_400.0,
        met=0.1,
        end_s=spread(23_100, 53_280),
        data_bytes=spread(1e8, 9e8),
        assumed=SiteAssumptions(Site(f"https://{name}"), value, value, value, 1.0),
    )
    chance = {"all_met": 1.0, "late_sites": spread(10, 20), "tardiness_s": spread(0, 1)}
    policies = [
        PolicyChance(
            policy="realloc-prodataamount", bandwidth_factor=f, end_s=spread(86_399, 99_999), **chance
        )
        for f in (1.0, 0.5)
    ]
    draw = Draw(end_s=1.0, is_over=True, pages=1, wire_bytes=1, link_use=None, rate_changes=0, sites=[])
    told = JobSimulation(
        job="job.toml",
        simulated_by="engine",
        started_at=0.0,
        draws=5,
        seed=0,
        bandwidth_bytes_per_s=1e6,
        all_met=0.0,
        late_sites=spread(1, 1),
        end_s=spread(1, 2),
        link_use=None,
        pages=spread(1, 2),
        rate_changes=spread(1, 2),
        sites=[site],
        first=draw,
        link_by_time=[],
        capacity_by_time=[],
    )
    by_site, by_policy = shown(job_site_table(told)), shown(policy_table(policies))
    assert name in "".join(line.split("  ")[0] for line in by_site)
    assert "6 h 25 min - 14 h 48 min" in by_site[1]
    assert by_site[1].count("10%") == 1
    assert by_policy[1].count("100%") == 2
    result = json.loads(run(SMALL, "--bandwidth", "5KB/s", "--json").stdout)
    one = msgspec.convert({**result, "strategy": "batch(100000)", "pages": 3_400_000}, SimResult)
    other = msgspec.structs.replace(one, pages=3_500_000, failed=12_345, seconds=40 * 86_400.0)
    for lines in (by_site, by_policy, shown(strategy_table([one, other]))):
        assert all("…" not in line and len(line) <= 80 for line in lines)


def test_headways_own_policy_comes_first(tmp_path: Path) -> None:
    lines = run(job(tmp_path, "2 MB"), "--draws", "2", "--compare-policies").stdout.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("policy"))
    assert lines[place + 1].startswith("headway ")


def test_sizes_are_those_of_an_earlier_run(tmp_path: Path) -> None:
    """The run is a simulated one, kept in a store as a crawl keeps it."""
    path = tmp_path / "job.toml"
    path.write_text(JOB.format(data="60 MB").replace('data = "60 MB"', "").replace("20 MB", "1 MB"))
    keep_run(tmp_path / "run", Site("https://a.example"), pages=40, size=150_000)
    told = json.loads(run(path, "--draws", "1", "--json", "--sizes-from", tmp_path / "run").stdout)
    site = next(each for each in told["sites"] if each["site"] == "https://a.example")
    assert site["assumed"]["data_bytes"] == {"value": pytest.approx(6e6), "source": "learnt in run run"}
    assert site["data_bytes"]["middle"] == pytest.approx(6e6, rel=0.05)
    assert told["first"]["sites"][0]["pages"] == 40


def keep_run(folder: Path, site: Site, *, pages: int, size: int) -> None:
    folder.mkdir()
    web = Web(
        "kept",
        np.array([0, pages - 1, *[pages - 1] * (pages - 1)]),
        np.arange(1, pages, dtype=np.int32),
        np.zeros(pages, dtype=np.int32),
        np.full(pages, size, dtype=np.int64),
        [site],
        np.array([0], dtype=np.int32),
    )
    store = SqliteStore(folder / "crawl.sqlite")
    store.create(Instant(0.0), {})
    crawl = Engine(
        Policies(
            ordering=make_ordering("depth"), scope=EVERYTHING, politeness=Politeness(), retry=RetryPolicy()
        ),
        EngineSettings(max_connections=1, lease_s=Seconds(math.inf), asks_robots=False),
    )
    world = GraphWorld(
        web, Servers.alike(1), Trouble.drawn(pages, 1, 0), max_connections=1, keep_open_s=Seconds(5.0)
    )

    def keep(_: Instant, command: Command) -> None:
        if isinstance(command, SaveFound | SaveSettled | SaveSite | SaveTasks):
            store.commit([command], {})

    simulate(crawl, world, [Seeded((Task(site),), seed_pages(web))], on_command=keep)
    store.close()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([SMALL, "--robots", "0"], "0 robots"),
        ([SMALL, "--robots", "many"], "not a valid integer"),
        (["nowhere"], "does not exist"),
        (["postgresql://nobody@127.0.0.1:1/db#news"], "on a server cannot be simulated"),
        (["tests"], "neither a run folder"),
        ([SMALL, "--sizes-from", "nowhere"], "job file"),
        ([SMALL, "--draws", "3"], "job file"),
        (["job.toml", "--compare"], "--compare applies to a graph or web"),
        (["job.toml", "--accelerator"], "--accelerator applies to a graph or web"),
    ],
)
def test_no_mistake_ends_in_a_traceback(args: list[str], words: str) -> None:
    command = [sys.executable, "-m", "headway", "simulate", *args]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode in {1, 2, 4}
    assert words in done.stderr
    assert "Traceback" not in done.stderr
