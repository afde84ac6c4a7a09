"""What is drawn and told of a crawl fits the screen and names what matters."""

from __future__ import annotations

import datetime as dt
import io
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from rich.console import Console

from headway.cli.crawl import _say_shortage, _say_shut
from headway.cli.frame import Log
from headway.cli.running import Progress, display_of, line_of
from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.errors import StoreError
from headway.view.link import LinkFigures
from headway.view.run import ErrorCount, Phase, RobotsTrouble, RunView, SiteState


def site_state(number: int, phase: Phase = "fetching", deadline_at: float | None = 1500.0) -> SiteState:
    return SiteState(
        site=f"http://www{number}.example.org",
        phase=phase,
        outlook="on-time",
        done=10 * number,
        waiting=5,
        failed=number % 2,
        wire_bytes=100_000,
        began_at=940.0,
        rate_bytes_per_s=2000.0,
        deadline_at=deadline_at,
        forecast_from_at=1100.0,
        forecast_to_at=1200.0,
        ended_at=900.0 if phase == "done" else None,
    )


def view_of(sites: int, bound: float | None = 100_000.0, **others: object) -> RunView:
    return RunView(
        name="run",
        state="running",
        now=1000.0,
        started_at=940.0,
        last_seen_at=1000.0,
        elapsed_s=60.0,
        link=LinkFigures(rate_bytes_per_s=95_000.0),
        bound_bytes_per_s=bound,
        sites=tuple(site_state(number) for number in range(sites)),
        site_count=sites,
        sites_done=0,
        done=123,
        waiting=45,
        in_flight=6,
        failed=7,
        wire_bytes=8_900_000,
        errors=[ErrorCount("failed", "missing", 3), ErrorCount("failed", "timeout-idle", 1)],
        **others,  # type: ignore[arg-type]
    )


def drawn(view: RunView, columns: int, lines: int) -> list[str]:
    console = Console(file=io.StringIO(), width=columns, height=lines, markup=False)
    console.print(display_of(view, columns, lines))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@given(sites=st.integers(0, 30), columns=st.integers(40, 250), lines=st.integers(8, 80))
@settings(max_examples=60, deadline=None)
def test_a_picture_fits_any_usual_screen(sites: int, columns: int, lines: int) -> None:
    picture = drawn(view_of(sites), columns, lines)
    assert len(picture) <= lines
    assert max(map(len, picture)) <= columns


@given(sites=st.integers(0, 30), columns=st.integers(1, 39), lines=st.integers(1, 8))
@settings(max_examples=30, deadline=None)
def test_a_picture_can_be_drawn_on_a_screen_that_is_none(sites: int, columns: int, lines: int) -> None:
    assert drawn(view_of(sites), columns, lines)


def test_on_80_columns_sites_show_their_rate_and_deadline() -> None:
    text = "\n".join(drawn(view_of(3, forecast_at=1200.0), 80, 24))
    for word in (
        "http://www1.example.org",
        "fetching",
        "2 KB/s",
        "in 8 min 20 s",
        "69%",
        "0 of 3 sites done, ends within 3 min 20 s",
        "95 KB/s of 100 KB/s (95%)",
    ):
        assert word in text


def test_what_is_left_by_the_estimate_decides_how_far_the_crawl_is() -> None:
    known = view_of(1, left_bytes=8_900_000.0)
    assert known.progress == 0.5
    assert view_of(1).progress == (123 + 7) / (123 + 7 + 45 + 6)
    assert "50%, 0 of 1 sites done" in "\n".join(drawn(known, 100, 24))


def test_the_end_is_shown_only_when_all_unfinished_sites_are_known() -> None:
    view = structs.replace(view_of(3, forecast_at=1200.0), site_count=9)
    assert "ends within" not in "\n".join(drawn(view, 100, 24))
    assert "ends within" in "\n".join(drawn(structs.replace(view, sites_done=6), 100, 24))


def test_the_plain_line_has_the_sums_the_rate_and_the_errors() -> None:
    line = line_of(view_of(1))
    for word in ("123 pages done", "45 waiting", "7 failed", "8.9 MB", "95 KB/s of 100 KB/s", "3 missing"):
        assert word in line
    assert " of " not in line_of(view_of(1, bound=None))


def test_a_closed_crawl_says_until_when() -> None:
    view = view_of(1, bound=0.0, closed_until=1000.0 + 3600.0)
    assert "closed until 01:16" in line_of(view, dt.UTC)
    assert "0 B/s of" not in line_of(view, dt.UTC)
    assert "closed until" in "\n".join(drawn(view, 80, 24))


def job_with_window(opens_in_h: int, deadline: str, **site: object) -> Job:
    begin = dt.datetime.now(dt.UTC) + dt.timedelta(hours=opens_in_h)
    window = {"from": f"{begin:%H:%M}", "until": f"{begin + dt.timedelta(hours=1):%H:%M}"}
    sites = [
        {"url": "http://shut.example/", "window": [window], "deadline": deadline, **site},
        {"url": "http://open.example/", "deadline": deadline},
    ]
    source = Source("the test")
    return build_job(convert({"crawl": {"timezone": "UTC"}, "site": sites}, source), source)


@pytest.mark.parametrize(("opens_in_h", "is_late"), [(4, True), (1, False)])
def test_a_deadline_before_which_no_window_opens_is_reported_at_the_start(
    capsys: pytest.CaptureFixture[str], opens_in_h: int, is_late: bool
) -> None:
    _say_shut(Log(), job_with_window(opens_in_h, "3 h"))
    said = capsys.readouterr().err
    assert ("http://shut.example: no window is open before the deadline" in " ".join(said.split())) is is_late
    assert "http://open.example" not in said


@pytest.mark.parametrize(("data", "is_late"), [("10 GB", True), ("10 KB", False)])
def test_a_deadline_that_the_window_is_too_short_for_is_reported_without_a_bandwidth_too(
    capsys: pytest.CaptureFixture[str], data: str, is_late: bool
) -> None:
    _say_shortage(Log(), job_with_window(1, "6 h", data=data, cap="100 KB/s"))
    said = " ".join(capsys.readouterr().err.split())
    assert ("deadlines cannot hold by the plan" in said and "shut.example" in said) is is_late


def test_a_site_in_trouble_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    trouble = RobotsTrouble("http://dead.example", "connect-failed: refused", 1030.0)
    with Progress(Log(), lambda: view_of(1, troubles=(trouble,))) as progress:
        progress.refresh()
        progress.refresh()
    said = capsys.readouterr().err
    assert said.count("http://dead.example: robots.txt cannot be fetched (connect-failed: refused)") == 1
    assert "retry in 30.0 s" in said


def test_json_lines_carry_the_facts_and_nothing_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(as_json=True)
    with Progress(log, lambda: view_of(1, bound=None)) as progress:
        progress.refresh()
    assert log.problem(StoreError("run: the disk is full")) == 5
    first, last = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["event"], first["done"], first["capacity_bytes_per_s"]) == ("progress", 123, None)
    assert (last["level"], last["message"], last["exit_code"]) == ("error", "run: the disk is full", 5)


def test_what_servers_say_cannot_steer_the_terminal_nor_pass_for_markup(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Log().say("note", "http://[fe80::1]/ said \x1b[2J\x07[bold]boo[/bold]")
    assert capsys.readouterr().err == "http://[fe80::1]/ said \ufffd[2J\ufffd[bold]boo[/bold]\n"


def test_a_closed_log_falls_silent_instead_of_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        log = Log()
        log.say("note", "anybody there?")
        assert not log.is_open
        log.say("note", "apparently not")


def test_quiet_and_verbose_mean_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    for log in (Log(is_quiet=True), Log(), Log(is_verbose=True)):
        log.say("a", "said")
        log.detail("b", "detailed")
    assert capsys.readouterr().err.splitlines() == ["said", "said", "detailed"]
