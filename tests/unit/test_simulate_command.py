"""`headway simulate`: tables, JSON, plots, and clear words for what cannot be."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from rich.table import Table

from headway.cli.simulate import simulate_command
from headway.crawl.machine import Crawl
from headway.errors import HeadwayError
from headway.model.command import Command, SaveFound, SaveSettled, SaveSite, SaveTasks
from headway.model.event import Seeded
from headway.model.page import Site
from headway.model.task import Task
from headway.policy.ordering import make_ordering
from headway.policy.politeness import Politeness
from headway.policy.retry import RetryPolicy
from headway.report.sim_result import SimResult
from headway.report.sim_table import strategy_table
from headway.report.sim_whatif import PolicyChance, Range, SiteChance, WhatIf, policy_table, site_table
from headway.sim.kernel import simulate
from headway.sim.run import EVERYTHING, seed_pages
from headway.sim.trouble import Trouble
from headway.sim.web import Servers, Web
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
        (["nowhere"], "is not there"),
        ([SMALL, "--robots", "0"], "0 robots"),
        ([SMALL, "--interval", "-5 s"], "must not be negative"),
        ([SMALL, "--strategy", "batch(500)"], "only 400 pages"),
        ([SMALL, "--strategy", "best"], "no ordering"),
        ([SMALL, "--site", "other.test"], "no site 'other.test'"),
        ([SMALL, "--bandwidth", "5"], "unit is missing"),
        ([SMALL, "--bandwidth", "0 B/s"], "above zero"),
        ([SMALL, "--timetable", "never", "00:00-01:00", "1KB/s"], "never"),
        (["synthetic:pages=1,sites=2"], "each needs its home page"),
    ],
)
def test_what_cannot_be_is_said_clearly(args: list[str], words: str) -> None:
    with pytest.raises(HeadwayError) as caught:
        run(*args)
    assert words in str(caught.value)


def job(folder: Path, data: str) -> Path:
    path = folder / "job.toml"
    path.write_text(JOB.format(data=data))
    return path


def test_a_job_with_time_to_spare_holds_in_every_draw_and_one_without_in_none(tmp_path: Path) -> None:
    # 20 minutes at 250 KB/s carry 300 MB; with half the link, 150 MB.
    for data, whole, half in (("20 MB", 1.0, 1.0), ("220 MB", 1.0, 0.0), ("3 GB", 0.0, 0.0)):
        told = json.loads(run(job(tmp_path, data), "--draws", "20", "--json").stdout)
        chances = {(each["policy"], each["bandwidth_factor"]): each["all_met"] for each in told["policies"]}
        assert chances["headway", 1.0] == pytest.approx(whole, abs=0.5 if data == "220 MB" else 0.0)
        assert chances["headway", 0.5] == pytest.approx(half, abs=0.15)
        assert chances["headway", 1.0] >= max(
            chance for (_, factor), chance in chances.items() if factor == 1
        )


def test_the_answer_for_a_job_is_told_in_words_and_with_ranges(tmp_path: Path) -> None:
    text = run(job(tmp_path, "220 MB"), "--draws", "10").stdout
    assert "all deadlines hold in" in text
    assert "0.5 times the link (125 KB/s)" in text
    assert "a.example" in text
    assert "headway" in text


def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    path = job(tmp_path, "220 MB")
    once, again, other = (run(path, "--draws", "5", "--json", "--seed", seed).stdout for seed in (1, 1, 2))
    assert once == again != other


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
    site = {
        "deadline_s": 5_400.0,
        "data_bytes": spread(1e8, 9e8),
        "end_s": spread(23_100, 53_280),
        "met": 0.1,
    }
    sites = [SiteChance(site=f"https://{name}", bandwidth_factor=factor, **site) for factor in (1.0, 0.5)]
    chance = {"all_met": 1.0, "late_sites": spread(10, 20), "tardiness_s": spread(0, 1)}
    policies = [
        PolicyChance(
            policy="realloc-prodataamount", bandwidth_factor=f, end_s=spread(86_399, 99_999), **chance
        )
        for f in (1.0, 0.5)
    ]
    told = WhatIf(
        job="job.toml",
        draws=5,
        seed=0,
        bandwidth_bytes_per_s=1e6,
        policies=policies,
        sites=sites,
        held_up_by_site=[],
    )
    by_site, by_policy = shown(site_table(told)), shown(policy_table(told))
    assert name in "".join(line.split("  ")[0] for line in by_site)
    assert "6 h 25 min - 14 h 48 min" in by_site[1]
    assert by_site[1].count("10%") == 2
    assert by_policy[1].count("100%") == 2
    result = json.loads(run(SMALL, "--bandwidth", "5KB/s", "--json").stdout)
    one = msgspec.convert({**result, "strategy": "batch(100000)", "pages": 3_400_000}, SimResult)
    other = msgspec.structs.replace(one, pages=3_500_000, failed=12_345, seconds=40 * 86_400.0)
    for lines in (by_site, by_policy, shown(strategy_table([one, other]))):
        assert all("…" not in line and len(line) <= 80 for line in lines)


def test_headways_own_policy_comes_first(tmp_path: Path) -> None:
    lines = run(job(tmp_path, "20 MB"), "--draws", "2").stdout.splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("policy"))
    assert lines[place + 1].startswith("headway ")


def test_sizes_of_an_earlier_run_narrow_the_answer(tmp_path: Path) -> None:
    """The run is a simulated one, kept in a store as a crawl keeps it."""
    path = job(tmp_path, "60 MB")
    keep_run(tmp_path / "run", Site("https://a.example"), pages=4, size=15_000_000)
    guessed, known = (
        json.loads(run(path, "--draws", "40", "--json", *more).stdout)
        for more in ((), ("--sizes-from", tmp_path / "run"))
    )
    widths = [
        next(each for each in told["sites"] if each["site"] == "https://a.example")["data_bytes"]
        for told in (guessed, known)
    ]
    assert widths[0]["high"] / widths[0]["low"] > 1.3 * widths[1]["high"] / widths[1]["low"]
    assert widths[1]["middle"] == pytest.approx(60e6, rel=0.15)


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
    crawl = Crawl(
        ordering=make_ordering("depth"),
        scope=EVERYTHING,
        politeness=Politeness(),
        retry=RetryPolicy(),
        max_connections=1,
        lease_s=Seconds(math.inf),
        asks_robots=False,
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
        (["nowhere"], "is not there"),
        ([SMALL, "--sizes-from", "nowhere"], "job file"),
        ([SMALL, "--draws", "3"], "job file"),
        (["job.toml", "--robots", "3"], "--robots is for a web"),
        (["job.toml", "--plot", "a.png"], "--plot is for a web"),
    ],
)
def test_no_mistake_ends_in_a_traceback(args: list[str], words: str) -> None:
    command = [sys.executable, "-m", "headway", "simulate", *args]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode in {1, 2, 4}
    assert words in done.stderr
    assert "Traceback" not in done.stderr
