"""What is drawn and told of a crawl fits the screen and names what matters."""

from __future__ import annotations

import io
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from headway.app.view import SiteLine, Trouble, View
from headway.cli.log import Log
from headway.cli.progress import Progress, line_of, picture_of
from headway.errors import StoreError
from headway.model.page import Site
from headway.units import UNBOUNDED, BytesPerSecond, Instant

NOW = Instant(1000.0)


def site_line(number: int, state: str = "fetching", deadline_at: float | None = 1500.0) -> SiteLine:
    due_at = None if deadline_at is None else Instant(deadline_at)
    return SiteLine(
        site=Site(f"http://www{number}.example.org"),
        state=state,
        done=10 * number,
        waiting=5,
        failed=number % 2,
        wire_bytes=100_000,
        rate_bytes_per_s=2000.0,
        deadline_at=due_at,
        forecast_at=(Instant(1100.0), Instant(1200.0)),
        ended_at=Instant(900.0) if state == "done" else None,
    )


def view_of(sites: int, capacity: float = 100_000.0, **others: object) -> View:
    return View(
        now=NOW,
        started_at=Instant(940.0),
        done=123,
        waiting=45,
        in_flight=6,
        failed=7,
        wire_bytes=8_900_000,
        rate_bytes_per_s=95_000.0,
        capacity_bytes_per_s=BytesPerSecond(capacity),
        sites=tuple(site_line(number) for number in range(sites)),
        other_sites=0,
        errors={"missing": 3, "timeout-idle": 1},
        **others,  # type: ignore[arg-type]
    )


def drawn(view: View, columns: int, lines: int) -> list[str]:
    console = Console(file=io.StringIO(), width=columns, height=lines, markup=False)
    console.print(picture_of(view, columns, lines))
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
    text = "\n".join(drawn(view_of(3), 80, 24))
    for word in (
        "http://www1.example.org",
        "fetching",
        "2 KB/s",
        "in 8 min 20 s",
        "95 KB/s of 100 KB/s (95%)",
    ):
        assert word in text


def test_the_plain_line_has_the_sums_the_rate_and_the_errors() -> None:
    line = line_of(view_of(1))
    for word in ("123 pages done", "45 waiting", "7 failed", "8.9 MB", "95 KB/s of 100 KB/s", "3 missing"):
        assert word in line
    assert " of " not in line_of(view_of(1, capacity=UNBOUNDED))


def test_a_site_in_trouble_is_told_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    trouble = Trouble(Site("http://dead.example"), "connect-failed: refused", Instant(1030.0))
    with Progress(Log(), lambda: view_of(1, troubles=(trouble,))) as progress:
        progress.refresh()
        progress.refresh()
    said = capsys.readouterr().err
    assert said.count("http://dead.example: its robots.txt cannot be had (connect-failed: refused)") == 1
    assert "asked again in 30.0 s" in said


def test_json_lines_carry_the_facts_and_nothing_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(as_json=True)
    with Progress(log, lambda: view_of(1, capacity=UNBOUNDED)) as progress:
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


def test_a_log_that_nobody_reads_falls_silent_instead_of_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        log = Log()
        log.say("note", "anybody there?")
        assert not log.is_heard
        log.say("note", "apparently not")


def test_quiet_and_verbose_mean_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    for log in (Log(is_quiet=True), Log(), Log(is_verbose=True)):
        log.say("a", "said")
        log.detail("b", "detailed")
    assert capsys.readouterr().err.splitlines() == ["said", "said", "detailed"]
