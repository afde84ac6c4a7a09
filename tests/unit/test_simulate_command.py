"""`headway simulate`: tables, JSON, plots, and clear words for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headway.cli.simulate import simulate_command
from headway.errors import HeadwayError

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
        ([SMALL, "--missing", "2"], "between 0 and 1"),
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
    for data, whole, half in (("20 MB", 1.0, 1.0), ("220 MB", None, 0.0), ("3 GB", 0.0, 0.0)):
        told = json.loads(run(job(tmp_path, data), "--draws", "20", "--json").stdout)
        chances = {(each["policy"], each["bandwidth_factor"]): each["all_met"] for each in told["policies"]}
        assert whole is None or chances["headway", 1.0] == whole
        assert chances["headway", 0.5] <= half + 0.15
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
