"""The report of a run: of a finished one, one under way, an empty one; and why deadlines were missed."""

from __future__ import annotations

import csv
import datetime as dt
import html
import math
import os
import re
import sqlite3
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.support.runs import BOUND, PAGE_BYTES, STARTED_AT, make_run

from headway.report.canvas import new_figure
from headway.report.plots import draw_picture
from headway.report.run_charts import (
    as_csv,
    as_steps,
    draw_sites,
    gantt_order,
    largest_types,
    mean_by_depth,
    mean_by_time,
    shares,
    short,
    time_unit,
)
from headway.report.run_page import esc, page, verdict
from headway.sim.graph import ranks_of_run
from headway.store.reader import RunSums
from headway.store.run_folder import RunFolder
from headway.units import Instant
from headway.view.reporting import Circumstances, LinkGraph, TypeCount, gather, read_decisions, why
from headway.view.run import SiteState
from headway.view.summary import summarise

BERLIN = ZoneInfo("Europe/Berlin")
A, B = "http://a.test", "http://b.test"
LATE = SiteState(
    A, "done", "missed", 50, 0, 0, 5_000_000, 0.0, deadline_at=50.0, started_at=1.0, ended_at=100.0
)
CALM = Circumstances("finished", 120.0, None, 1.0, busy_s=80.0, answers=50)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    make_run(tmp_path / "run", [A, B], pages=20, deadline_s=15.0)
    return tmp_path / "run"


# -- gathering ----------------------------------------------------------------------------------------------


def test_sums_are_those_of_the_run(run: Path) -> None:
    facts = gather(run)
    assert (facts.view.done, facts.view.failed, facts.view.waiting, facts.view.wire_bytes) == (
        36,
        4,
        0,
        40 * PAGE_BYTES,
    )
    assert facts.view.state == "finished"
    assert facts.seconds == 20.0
    assert sum(turn.wire_bytes for turn in facts.turns) == facts.view.wire_bytes
    assert [(each.media_type, each.pages) for each in facts.types] == [("text/html", 36)]
    assert (500, "failed", 4) in facts.statuses


def test_only_the_site_that_was_late_has_missed_its_deadline(run: Path) -> None:
    (missed,) = gather(run).missed
    assert missed.site == A
    assert missed.late_s == pytest.approx(5.0)


def test_a_run_under_way_is_reported_as_far_as_it_is(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [A], pages=10, waiting=7, deadline_s=5.0)
    facts = gather(tmp_path / "run")
    assert (facts.view.state, facts.view.waiting) == ("stopped", 7)
    (missed,) = facts.missed
    assert missed.late_s is None
    assert "7 pages still waiting" in missed.sentence


def test_a_deadline_that_passed_after_the_crawl_was_stopped_is_missed_as_well(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [A], pages=10, waiting=7, deadline_s=500.0)
    facts = gather(tmp_path / "run")
    assert (facts.view.state, facts.seconds) == ("stopped", 10.0)
    (missed,) = facts.missed
    assert "stopped before the deadline with 7 pages" in missed.sentence
    assert "still to come" not in verdict(facts)
    (site,) = summarise(tmp_path / "run").sites
    assert site.verdict == "missed"


def test_a_crawl_that_this_process_has_ended_is_not_taken_for_one_under_way(
    run: Path,
) -> None:
    last_at = STARTED_AT + gather(run).seconds
    assert gather(run, clock=lambda: last_at).view.state == "finished"
    (run / "crawl.sqlite-lock").write_text(f"{os.getpid()}\n")
    assert gather(run, clock=lambda: last_at).view.state == "running", (
        "the process that crawls is alive, and its last sample is fresh"
    )
    assert gather(run, is_over=True, clock=lambda: last_at).view.state == "finished"


def test_an_empty_run_has_a_report_as_well(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", {"crawl": {}}, Instant(STARTED_AT)).close()
    facts = gather(tmp_path / "run")
    assert verdict(facts) == "Nothing has been fetched yet."
    assert "<svg" not in page(facts, {})


def test_the_link_is_thinned_without_losing_its_peaks(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, {"crawl": {}}, Instant(STARTED_AT)) as run:
        received = 0
        for second in range(5_000):
            received += 9_000 if second == 4321 else 1_000
            run.store.record_sample(Instant(STARTED_AT + second), received, BOUND)
        run.store.commit((), {})
    facts = gather(tmp_path)
    assert len(facts.link.at_s) <= 1200
    assert facts.link.highest_bytes_per_s.max() == 9_000.0
    assert facts.link.rate_bytes_per_s.mean() == pytest.approx(1_001.6, abs=2)
    assert facts.view.link.max_bytes_per_s == 9_000.0


# -- ranks --------------------------------------------------------------------------------------------------


def test_ranks_are_those_of_the_simulators_reader(run: Path) -> None:
    with RunSums(run) as sums:
        ranks = LinkGraph(sums).ranks(STARTED_AT)
        keys = np.concatenate([part.keys for part in sums.fetched()])
    assert ranks is not None
    with closing(sqlite3.connect(run / "crawl.sqlite")) as database:
        named = database.execute("SELECT site.site || path, key FROM page JOIN site ON site.id = site_id")
        key_at = dict(named.fetchall())
    theirs = {key_at[url]: rank for url, rank in ranks_of_run(run).items()}
    # Theirs has the pages that failed in it, too; ours only those fetched. Order and places agree.
    ours = dict(zip(keys.tolist(), ranks.rank.tolist(), strict=True))
    common = [key for key in ours if key in theirs]
    assert len(common) == 36
    assert sum(ours.values()) == pytest.approx(1.0)
    assert np.corrcoef([ours[key] for key in common], [theirs[key] for key in common])[0, 1] > 0.8


def test_most_referenced_counts_every_link(run: Path) -> None:
    with RunSums(run) as sums:
        found = LinkGraph(sums).most_referenced(5)
    assert all(each.links == 2 for each in found)
    assert len(found) == 5


def test_a_web_too_large_for_ranks_still_has_its_references(run: Path) -> None:
    with RunSums(run) as sums:
        graph = LinkGraph(sums, most_links=5)
        assert graph.ranks(STARTED_AT) is None
        assert graph.most_referenced(3)


def test_shares_end_with_everything(run: Path) -> None:
    facts = gather(run)
    assert facts.ranks is not None
    _, pages, rank = shares(facts.ranks)
    assert pages[-1] == pytest.approx(1.0)
    assert rank[-1] == pytest.approx(1.0)
    assert (np.diff(rank) >= 0).all()
    assert len(mean_by_time(facts.ranks, facts.seconds)[0]) > 1
    assert mean_by_depth(facts.ranks)[0].tolist() == [0, 1, 2, 3, 4]


# -- reasons ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("site", "around", "told"),
    [
        (
            structs.replace(LATE, done=0),
            structs.replace(CALM, answers=3, troubles=[("dns-failed", 3)]),
            "3 times",
        ),
        (structs.replace(LATE, is_stopped=True), CALM, "stopped by order"),
        (structs.replace(LATE, started_at=None, done=0), CALM, "never requested"),
        (
            structs.replace(LATE, ended_at=None, waiting=9, deadline_at=200.0),
            structs.replace(CALM, state="stopped"),
            "stopped before the deadline with 9 pages",
        ),
        (structs.replace(LATE, started_at=40.0), CALM, "started only 40.0 s after"),
        (LATE, structs.replace(CALM, troubles=[("missing", 25), ("throttled", 20)]), "20 throttled"),
        (LATE, structs.replace(CALM, troubles=[("missing", 25)], link_use=0.9), "the link was full"),
        (LATE, structs.replace(CALM, link_use=0.97), "the link was full (97% of the bound)"),
        (LATE, structs.replace(CALM, busy_s=5.0, interval_s=2.0), "the interval of 2.0 s"),
        (LATE, structs.replace(CALM, busy_s=5.0, interval_s=0.1), "pauses of 1.9 s"),
        (LATE, structs.replace(CALM, link_use=0.3), "its server took 1.6 s for an answer"),
    ],
)
def test_the_cause_is_named(site: SiteState, around: Circumstances, told: str) -> None:
    assert told in why(site, around)


def test_the_sentence_says_that_a_delay_was_forecast() -> None:
    told = why(LATE, structs.replace(CALM, forecast_late_s=20.0))
    assert told.endswith("; this was forecast 30.0 s before the deadline.")


@given(
    st.builds(
        SiteState,
        site=st.just(A),
        done=st.integers(0, 10**6),
        failed=st.integers(0, 10**4),
        waiting=st.integers(0, 10**6),
        wire_bytes=st.integers(0, 10**12),
        phase=st.sampled_from(["waiting", "fetching", "done", "stopped", "unreachable", "open"]),
        outlook=st.sampled_from(["late", "missed"]),
        began_at=st.just(0.0),
        started_at=st.none() | st.floats(0, 1e6),
        ended_at=st.none() | st.floats(0, 1e6),
        deadline_at=st.floats(0.001, 1e6),
        is_stopped=st.booleans(),
    ),
    st.builds(
        Circumstances,
        state=st.sampled_from(["running", "finished", "stopped"]),
        seconds=st.floats(0, 1e6),
        link_use=st.none() | st.floats(0, 1.2),
        interval_s=st.floats(0, 3600),
        troubles=st.lists(st.tuples(st.sampled_from(["reset", "missing"]), st.integers(1, 100)), max_size=2),
        forecast_late_s=st.none() | st.floats(0, 1e6),
        busy_s=st.floats(0, 1e6),
        answers=st.integers(0, 10**6),
    ),
)
def test_every_site_gets_one_sentence(site: SiteState, around: Circumstances) -> None:
    told = why(site, around)
    assert told[0].isupper()
    assert told.endswith(".")
    assert "\n" not in told
    assert "nan" not in told


# -- the decision log ---------------------------------------------------------------------------------------


def test_the_log_gives_orders_and_forecast_delays(tmp_path: Path) -> None:
    (tmp_path / "decisions.jsonl").write_text(
        '{"at":100.0,"decision":"set-capacity","capacity_bytes_per_s":5000.0}\n'
        '{"at":101.0,"decision":"fetch","site":"http://a.test","url":"http://a.test/?\\"decision\\":\\"order-stop\\""}\n'
        '{"at":103.0,"decision":"foresee-late","site":"http://a.test","until":200.0,"deadline_at":150.0}\n'
        '{"at":104.0,"decision":"foresee-late","site":"http://a.test","until":210.0,"deadline_at":150.0}\n'
        '{"at":105.0,"decision":"order-stop","site":"http://a.test"}\n'
        '{"at":106.0,"decision":"order-pa'
    )
    told = read_decisions(tmp_path, 100.0)
    assert told.forecast_late_s == {"http://a.test": 3.0}
    assert [(mark.at_s, mark.text) for mark in told.marks] == [(0.0, "bound 5 KB/s"), (5.0, "stop a.test")]


def test_a_run_without_a_log_has_nothing_to_tell(tmp_path: Path) -> None:
    assert read_decisions(tmp_path, 0.0).marks == []


# -- the page -----------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(max_size=60))
def test_no_name_ever_becomes_markup(name: str) -> None:
    assert html.unescape(esc(name)) == name
    assert not set(esc(name)) & set("<>\"'")


def test_whatever_a_site_is_called_the_page_has_the_same_tags(run: Path, tmp_path: Path) -> None:
    evil = "http://a.test'><script>x</script><b onclick=y>"
    make_run(tmp_path / "evil", [evil, B], pages=20, deadline_s=15.0, detail=evil)
    parsed = []
    for folder in (run, tmp_path / "evil"):
        tags = Tags()
        tags.feed(page(gather(folder), {}))
        parsed.append(tags)
    assert parsed[0].tags == parsed[1].tags
    assert evil in parsed[1].text


def test_a_cell_that_begins_like_a_formula_is_text_to_a_spreadsheet() -> None:
    text = as_csv([("site", "x"), ("=cmd()", 1.5), ("a,b\n", math.nan)])
    rows = list(csv.reader(text.splitlines(keepends=True)))
    assert rows[1] == ["'=cmd()", "1.5"]
    assert rows[2] == ["a,b\n", ""]


def test_all_types_are_counted_even_if_only_some_are_named() -> None:
    types = [TypeCount(f"text/{number}", 10 - number % 5, 100, 90) for number in range(30)]
    shown = largest_types(types)
    assert len(shown) == 9
    assert sum(each.pages for each in shown) == sum(each.pages for each in types)


def test_the_line_of_the_link_begins_with_its_first_second_and_is_broken_between_two_sessions() -> None:
    begins, ends = np.array([0.5, 1.5, 90.0]), np.array([1.5, 2.5, 91.0])
    at, rates = as_steps(begins, ends, np.array([5.0, 6.0, 7.0]))
    assert at.tolist() == [0.5, 0.5, 1.5, 1.5, 2.5, 90, 90, 91]
    assert np.nan_to_num(rates, nan=-1).tolist() == [-1, 5, 5, 6, 6, -1, 7, 7]


def test_a_run_has_a_picture_and_one_without_a_sample_as_well(run: Path, tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "empty", {"crawl": {}}, Instant(STARTED_AT)).close()
    for folder in (run, tmp_path / "empty"):
        draw_picture(folder, folder / "picture.png")
        assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_missed_sites_stand_first_in_the_figure() -> None:
    met = structs.replace(LATE, site=B, ended_at=20.0, outlook="met")
    assert [site.site for site in gantt_order([met, LATE])] == [A, B]


@given(st.text(max_size=300))
def test_names_fit_beside_the_figure(name: str) -> None:
    assert len(short(name)) <= 34
    assert name.endswith(short(name)) or "…" in short(name), "what fits is not cut"


@given(st.floats(0, 1e9))
def test_the_unit_of_time_fits_the_run(seconds: float) -> None:
    unit_s, _ = time_unit(seconds)
    assert seconds / unit_s >= 2 or unit_s == 1.0
    assert seconds / unit_s <= 300 or unit_s == 86400.0, "nobody counts hours in seconds"


@pytest.mark.parametrize(
    ("deadline_at", "label", "marks"),
    [
        (dt.datetime(2026, 12, 2, 7, 30, tzinfo=BERLIN).timestamp(), "time of day, Europe/Berlin", "00:00"),
        (dt.datetime(2026, 12, 1, 22, 0, tzinfo=BERLIN).timestamp() + 7200.25, "since the start", ""),
    ],
    ids=["time of day", "length"],
)
def test_deadlines_that_are_times_of_day_have_a_chart_with_times_of_day(
    run: Path, deadline_at: float, label: str, marks: str
) -> None:
    begin_at = dt.datetime(2026, 12, 1, 22, 0, 5, tzinfo=BERLIN).timestamp()
    facts = gather(run)
    sites = [
        structs.replace(
            site,
            began_at=begin_at,
            deadline_at=deadline_at,
            started_at=begin_at + 3000.0,
            ended_at=begin_at + 7000.0,
        )
        for site in facts.sites
    ]
    view = structs.replace(facts.view, sites=sites, started_at=begin_at, elapsed_s=9.0 * 3600)
    figure = new_figure(7.0, 3.0)
    draw_sites(figure, structs.replace(facts, view=view, timezone="Europe/Berlin"))
    (axes,) = figure.axes
    assert label in axes.get_xlabel()
    names = [tick.get_text() for tick in axes.get_xticklabels()]
    if marks:
        assert marks in names
        assert all(re.fullmatch(r"\d\d:\d\d", name) for name in names)
        place = axes.get_xticks()[names.index(marks)]
        assert place == pytest.approx((7200.0 - 5.0) / 3600.0), "midnight in Berlin, in hours from the start"
