"""`headway plan` as a user meets it: the answer, the JSON, the pictures, and clear words for bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.runs import PAGE_BYTES, make_run

from headway.cli.plan import plan_command
from headway.config.job import load_job
from headway.errors import HeadwayError, JobError, UnitError
from headway.model.command import SetRates
from headway.model.event import Seeded
from headway.planning.estimate import PRIOR_PAGE_BYTES, PRIOR_SITE_PAGES
from headway.planning.policies import POLICIES
from headway.runtime.runtime import build_engine
from headway.units import Instant

EXAMPLES = Path(__file__).parents[2] / "examples"
SIX = EXAMPLES / "zhu2020-six.csv"
FIFTY = EXAMPLES / "zhu2020-fifty.csv"


def plan(*args: object) -> Result:
    result = CliRunner().invoke(plan_command, [str(arg) for arg in args], standalone_mode=False)
    if isinstance(result.exception, HeadwayError):
        raise result.exception
    return result


def plan_json(*args: object) -> dict[str, Any]:
    result = plan(*args, "--json")
    answer: dict[str, Any] = json.loads(result.output)
    assert result.return_value == (3 if answer["objective"]["late"] else 0), result.output
    return answer


def plan_text(folder: Path, text: str, name: str = "sites.csv") -> Result:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return plan(path, "--bandwidth", "1KB/s")


def check_document(answer: dict[str, Any], crawlers: int) -> None:
    assert list(answer) == [
        "policy",
        "bandwidth_bytes_per_s",
        "required_bytes_per_s",
        "sufficient",
        "objective",
        "sites",
    ]
    assert list(answer["objective"]) == ["max_completion_s", "sum_execution_s", "total_tardiness_s", "late"]
    moments = []
    for site in answer["sites"]:
        assert list(site) == [
            "name",
            "data_bytes",
            "deadline_s",
            "start_s",
            "end_s",
            "tardiness_s",
            "segments",
        ]
        fetched = sum((to_s - from_s) * rate for from_s, to_s, rate in site["segments"])
        assert fetched == pytest.approx(site["data_bytes"], rel=1e-6)
        assert site["segments"][0][0] == site["start_s"]
        assert site["segments"][-1][1] == site["end_s"]
        late_s = max(0.0, site["end_s"] - (site["deadline_s"] or float("inf")))
        assert site["tardiness_s"] == pytest.approx(late_s, abs=1e-6 * site["end_s"])
        moments += [(from_s + to_s) / 2 for from_s, to_s, _ in site["segments"] if to_s - from_s > 1e-6]
    every = [segment for site in answer["sites"] for segment in site["segments"]]
    for moment in moments:
        running = [rate for from_s, to_s, rate in every if from_s <= moment < to_s]
        assert sum(running) <= answer["bandwidth_bytes_per_s"] * (1 + 1e-6)
        assert len(running) <= crawlers
    assert answer["objective"]["late"] == sum(site["tardiness_s"] > 0 for site in answer["sites"])
    ends = [site["end_s"] for site in answer["sites"]]
    assert answer["objective"]["max_completion_s"] == pytest.approx(max(ends))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_answers_in_the_documented_json_for_six_sites(policy: str) -> None:
    answer = plan_json(SIX, "--bandwidth", "1000Kbit/s", "--policy", policy)
    assert answer["policy"] == policy
    assert answer["bandwidth_bytes_per_s"] == 125_000
    check_document(answer, crawlers=6)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_answers_in_the_documented_json_for_fifty_sites(policy: str) -> None:
    answer = plan_json(FIFTY, "--bandwidth", "530Kbit/s", "--crawlers", 5, "--policy", policy)
    check_document(answer, crawlers=5)


def test_the_answer_for_six_sites_is_the_papers_and_ours() -> None:
    constant = plan_json(SIX, "--bandwidth", "1000Kbit/s", "--policy", "m-maxt")
    assert constant["required_bytes_per_s"] / 125 == pytest.approx(745.5, abs=0.1)
    assert constant["objective"]["max_completion_s"] == pytest.approx(155.04, abs=0.01)
    ours = plan_json(SIX, "--bandwidth", "1000Kbit/s")
    assert ours["policy"] == "headway"
    assert ours["required_bytes_per_s"] / 125 == pytest.approx(345.2, abs=0.1)
    assert ours["objective"]["max_completion_s"] == pytest.approx(125.0, abs=0.01)
    assert ours["sufficient"] is True
    assert plan_json(SIX, "--bandwidth", "340Kbit/s")["sufficient"] is False


@pytest.mark.parametrize("objective", ["max-completion", "sum-completion", "tardiness", "late-sites"])
def test_every_objective_is_at_its_best_when_asked_for(objective: str) -> None:
    args = (FIFTY, "--bandwidth", "480Kbit/s", "--crawlers", 5)
    key = {"tardiness": "total_tardiness_s", "late-sites": "late"}.get(objective, "max_completion_s")
    asked = plan_json(*args, "--objective", objective)["objective"][key]
    others = ("max-completion", "sum-completion", "tardiness", "late-sites")
    rest = [plan_json(*args, "--objective", other)["objective"][key] for other in others]
    assert asked <= min(rest) * (1 + 1e-6)


def test_the_text_says_whether_it_will_do_and_what_would(tmp_path: Path) -> None:
    said = plan(SIX, "--bandwidth", "1000Kbit/s").output
    assert "All deadlines hold." in said
    assert "43.2 KB/s; the deadline of sinanews (3 min 20 s) binds" in said
    assert "█" in said
    said = plan(SIX, "--bandwidth", "300Kbit/s").output
    assert "Not all deadlines hold: " in said
    assert "╳" in said
    slow = "name,data_bytes,deadline_s,cap_bytes_per_s\nslow,1000,10,5\nfree,10,,\n"
    said = plan_text(tmp_path, slow).output
    assert "No bandwidth would meet all deadlines: the cap of slow is too low." in said
    assert "No site has a deadline." in plan_text(tmp_path, "name,data_bytes\na,5\n").output


def test_compare_shows_every_policy_in_one_table() -> None:
    said = plan(FIFTY, "--bandwidth", "530Kbit/s", "--crawlers", 5, "--compare").output
    for name in POLICIES:
        assert f"\n {name} " in said
    assert "no policy below" in said
    rows = json.loads(plan(SIX, "--bandwidth", "1Mbit/s", "--compare", "--json").output)
    assert [row["policy"] for row in rows] == list(POLICIES)


def test_compare_says_who_cannot_take_the_job(tmp_path: Path) -> None:
    rows = "".join(f"s{i},100,\n" for i in range(300))
    path = tmp_path / "many.csv"
    path.write_text("name,data_bytes,deadline_s\n" + rows, encoding="utf-8")
    said = plan(path, "--bandwidth", "1KB/s", "--compare").output
    assert "ga and de can search at most 200 sites" in said
    assert "... and 250 more sites" in plan(path, "--bandwidth", "1KB/s").output


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
@pytest.mark.parametrize("policy", ["headway", "realloc-sumt"])
def test_the_plot_is_written_in_the_form_of_its_ending(
    tmp_path: Path, policy: str, ending: str, begins: bytes
) -> None:
    picture = tmp_path / f"plan.{ending}"
    plan(FIFTY, "--bandwidth", "530Kbit/s", "--crawlers", 5, "--policy", policy, "--plot", picture)
    assert picture.read_bytes().startswith(begins)


def test_a_plot_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    for name in ("nowhere/plan.png", "plan.unknown", "plan"):
        with pytest.raises(HeadwayError, match="cannot write the plot"):
            plan(SIX, "--bandwidth", "1Mbit/s", "--plot", tmp_path / name)


def test_json_tables_say_the_same_as_csv(tmp_path: Path) -> None:
    rows = [line.split(",") for line in SIX.read_text(encoding="utf-8").split()[1:]]
    sites = [
        {"name": n, "data_bytes": int(d), "deadline_s": int(t), "cap_bytes_per_s": None} for n, d, t in rows
    ]
    for document in (sites, {"sites": sites}):
        path = tmp_path / "six.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        assert plan_json(path, "--bandwidth", "1Mbit/s") == plan_json(SIX, "--bandwidth", "1Mbit/s")


def test_xi_stretches_the_data_and_columns_may_be_absent_or_empty(tmp_path: Path) -> None:
    path = tmp_path / "sites.csv"
    path.write_text("\ufeffname, data_bytes ,xi\na,1000,1.5\n\nb,1000,\n", encoding="utf-8")
    answer = plan_json(path, "--bandwidth", "1KB/s")
    assert [site["data_bytes"] for site in answer["sites"]] == [1500.0, 1000.0]
    assert [site["deadline_s"] for site in answer["sites"]] == [None, None]
    assert answer["required_bytes_per_s"] == 0.0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name,data_bytes\na,-5\n", "line 2, data_bytes: -5 is not more than zero"),
        ("name,data_bytes\na,0\n", "line 2, data_bytes: 0 is not more than zero"),
        ("name,data_bytes\na,nan\n", "line 2, data_bytes: 'nan' is not a finite number"),
        ("name,data_bytes\na,inf\n", "line 2, data_bytes: 'inf' is not a finite number"),
        ("name,data_bytes\na,1e999\n", "is not a finite number"),
        (
            "name,data_bytes\na,5 MB\n",
            "line 2, data_bytes: '5 MB' is not a plain number; sizes are plain bytes",
        ),
        ("name,data_bytes\na,\n", "line 2, data_bytes: it is missing"),
        ("name,data_bytes,deadline_s\na,1,-1\n", "line 2, deadline_s: -1 s is in the past"),
        ("name,data_bytes,deadline_s\na,1,soon\n", "line 2, deadline_s: 'soon' is not a plain number"),
        ("name,data_bytes,cap_bytes_per_s\na,1,0\n", "line 2, cap_bytes_per_s: 0 is not more than zero"),
        ("name,data_bytes,weight\na,1,-2\n", "line 2, weight: -2 is not more than zero"),
        ("name,data_bytes,xi\na,1,nan\n", "line 2, xi: 'nan' is not a finite number"),
        ("name,data_bytes\na,1\nb,1\na,2\n", "line 4, name: 'a' appears twice, first in line 2"),
        ("name,data_bytes\n,1\n", "line 2, name: every site needs a name"),
        ("name,data_bytes\na,1,2\n", "line 2: it has 3 fields and the header 2"),
        ("name,data_bytes,speed\na,1,2\n", "line 1: there is no column 'speed'"),
        ("name;data_bytes\na;1\n", "separate columns by commas"),
        ("name\na\n", "the column 'data_bytes' is missing"),
        ("name,data_bytes,name\na,1,b\n", "line 1, name: the column appears twice"),
        ("name,data_bytes\n", "contains no site"),
        ("", "it is empty"),
        ('name,data_bytes\n"a,1\n', "line 2"),
    ],
)
def test_a_bad_table_is_refused_with_its_line_and_column(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(JobError) as caught:
        plan_text(tmp_path, text)
    assert "sites.csv" in str(caught.value)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[{", "it is not JSON"),
        ("3", "it should be a list of sites"),
        ("[]", "contains no site"),
        ("[3]", "site 1: it should be an object"),
        ('[{"name": "a"}]', "site 1, data_bytes: it is missing"),
        ('[{"name": 3, "data_bytes": 1}]', "site 1, name: every site needs a name"),
        ('[{"name": "a", "data_bytes": "1"}]', "site 1, data_bytes: '1' is text, not a number"),
        ('[{"name": "a", "data_bytes": true}]', "site 1, data_bytes: True is not a plain number"),
        ('[{"name": "a", "data_bytes": 1, "wight": 1}]', "site 1: there is no key 'wight'"),
        ('[{"name": "a", "data_bytes": 1, "deadline_s": -3}]', "deadline_s: -3 s is in the past"),
    ],
)
def test_bad_json_is_refused_with_its_site_and_key(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(JobError) as caught:
        plan_text(tmp_path, text, "sites.json")
    assert complaint in str(caught.value)


def test_a_bandwidth_that_is_missing_zero_or_without_a_unit_is_refused() -> None:
    with pytest.raises(JobError, match="give one, such as --bandwidth"):
        plan(SIX)
    with pytest.raises(UnitError, match=r"--bandwidth: .*above 0"):
        plan(SIX, "--bandwidth", "0Kbit/s")
    for text in ("1000", "-5Kbit/s", "1000kb/s", "nan Kbit/s"):
        with pytest.raises(UnitError):
            plan(SIX, "--bandwidth", text)


def test_files_that_are_not_there_or_not_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="cannot read"):
        plan(tmp_path / "missing.csv", "--bandwidth", "1KB/s")
    with pytest.raises(JobError, match="is a folder; give a job file"):
        plan(tmp_path, "--bandwidth", "1KB/s")
    (tmp_path / "raw.csv").write_bytes(b"name,data_bytes\n\xff\xfe,1\n")
    with pytest.raises(JobError, match="not text in UTF-8"):
        plan(tmp_path / "raw.csv", "--bandwidth", "1KB/s")


def test_a_job_file_is_planned_with_its_own_bandwidth_and_timetable(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        '[crawl]\nbandwidth = "100 KB/s"\nobjective = "tardiness"\n'
        '[[site]]\nurl = "https://a.example/"\ndata = "3 MB"\ndeadline = "2 h"\n'
        '[[site]]\nurl = "https://b.example/"\nmax_pages = 50\ncap = "1 KB/s"\n',
        encoding="utf-8",
    )
    answer = plan_json(path)
    assert answer["bandwidth_bytes_per_s"] == 100_000
    assert [site["name"] for site in answer["sites"]] == ["https://a.example", "https://b.example"]
    assert answer["sites"][0]["data_bytes"] == 3_000_000
    assert answer["sites"][0]["deadline_s"] == pytest.approx(7200)
    assert {rate for _, _, rate in answer["sites"][1]["segments"]} == {1000}
    assert "objective tardiness" in plan(path).output
    path.write_text('[[site]]\nurl = "https://a.example/"\n', encoding="utf-8")
    with pytest.raises(JobError, match="no bandwidth"):
        plan(path)


JOB = """[crawl]
bandwidth = "100 KB/s"
interval = "10 s"
[[site]]
url = "https://given.example/"
data = "3 MB"
deadline = "2 h"
[[site]]
url = "https://unknown.example/"
deadline = "5 min"
[[site]]
url = "https://limited.example/"
max_pages = 5
"""


def test_a_plan_says_that_it_leaves_out_the_quota_of_the_job(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        '[crawl]\nbandwidth = "8 Mbit/s"\nquota = { day = "100 MB" }\n'
        '[[site]]\nurl = "http://a.test/"\ndata = "50 MB"\n'
    )
    done = plan(path)
    assert done.exit_code == 0
    assert "does not include the quota of 100 MB a day" in done.stdout


def test_a_plan_says_what_it_assumes_of_each_site_and_from_where(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB, encoding="utf-8")
    given, unknown, limited = (site["assumed"] for site in plan_json(path)["sites"])
    assert given["data_bytes"] == {"value": 3_000_000, "source": "given"}
    usual = {"value": PRIOR_PAGE_BYTES, "source": "default"}
    assert unknown["data_bytes"] == {"value": PRIOR_SITE_PAGES * PRIOR_PAGE_BYTES, "source": "default"}
    assert limited["data_bytes"]["value"] == 5 * PRIOR_PAGE_BYTES
    assert given["page_bytes"] == unknown["page_bytes"] == usual
    assert unknown["rate_bytes_per_s"]["source"] == "default"
    assert unknown["pause_s"] == 10.0
    low, high = unknown["data_range_bytes"]
    assert low < unknown["data_bytes"]["value"] < high
    first, second, _ = (line.split() for line in plan(path).output.rpartition("source")[2].splitlines()[2:5])
    assert first[1:3] == ["3", "MB"]
    assert first[-2:] == ["data", "given"]
    assert (second[1:3], second[-1]) == (["9", "MB"], "default")


def test_a_site_that_is_too_slow_is_explained_by_its_interval_and_page_size(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB, encoding="utf-8")
    result = plan(path)
    assert result.return_value == 3
    assert "https://unknown.example cannot deliver its data in time" in result.output
    said = " ".join(result.output.split())
    assert "pages of 30 KB (default), one each 10.0 s (interval), from a server of 1 MB/s (default)" in said
    assert "What helps: a shorter interval, a later deadline" in said
    assert "the cap of" not in said


def test_the_first_rates_of_a_plan_are_those_that_the_crawl_gives_its_pacer(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB, encoding="utf-8")
    job = load_job(path)
    crawl = build_engine(job)
    seeded = Seeded(job.tasks(Instant(0.0)), job.seeds())
    (rates,) = [one for one in crawl.step(Instant(0.0), seeded) if isinstance(one, SetRates)]
    planned = {site["name"]: site["first_rate_bytes_per_s"] for site in plan_json(path)["sites"]}
    assert planned == pytest.approx(rates.rates_bytes_per_s)


def test_what_an_earlier_run_learnt_is_used_and_named(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB, encoding="utf-8")
    site = "https://unknown.example"
    make_run(tmp_path / "monday", [site], pages=20)
    assumed = plan_json(path, "--learn-from", tmp_path / "monday")["sites"][1]["assumed"]
    source = "learnt in run monday"
    assert assumed["data_bytes"] == {"value": 20.0 * PAGE_BYTES, "source": source}
    assert assumed["page_bytes"] == {"value": PAGE_BYTES, "source": source}
    assert assumed["rate_bytes_per_s"] == {"value": PAGE_BYTES / 0.5, "source": source}
    with pytest.raises(HeadwayError, match="not a run folder"):
        plan(path, "--learn-from", tmp_path)
    with pytest.raises(JobError, match="leave it out"):
        plan(SIX, "--bandwidth", "1Mbit/s", "--learn-from", tmp_path / "monday")


def test_a_hundred_thousand_rows_are_planned_and_shown_in_short(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    rows = "".join(f"s{i},{1000 + i % 7},{3600 + i}\n" for i in range(100_000))
    path.write_text("name,data_bytes,deadline_s\n" + rows, encoding="utf-8")
    said = plan(path, "--bandwidth", "100KB/s").output
    assert "100000 sites" in said
    assert "more sites" in said
    assert said.count("\n") < 200
