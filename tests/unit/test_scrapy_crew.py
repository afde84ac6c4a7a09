"""A crawler is kept on its plan: told more when it is behind, less when it is ahead, and no debt for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("scrapy")

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headway.scrapy.course import AIM
from headway.scrapy.crew import SiteRun
from headway.scrapy.worker import Progress, WorkerTask

RATE = 10_000.0


def site_run() -> SiteRun:
    run = SiteRun(0, "http://a.test", WorkerTask("x", {}, {}, "link"), 1e6, Path("log"))
    run.follow_plan(0.0, RATE)
    run.has_gone = True
    return run


def received(run: SiteRun, wire_bytes: float) -> None:
    run.progress = msgspec.structs.replace(run.progress, wire_bytes=int(wire_bytes))


def test_on_its_plan_it_is_told_its_rate() -> None:
    run = site_run()
    received(run, RATE)
    assert run.follow_plan(1.0, RATE) == pytest.approx(RATE / AIM)


def test_behind_it_is_told_more_and_ahead_less() -> None:
    behind, ahead = site_run(), site_run()
    received(behind, 0.5 * RATE)
    received(ahead, 1.5 * RATE)
    assert behind.follow_plan(1.0, RATE) > RATE / AIM > ahead.follow_plan(1.0, RATE)


def test_nothing_is_due_before_it_was_let_go() -> None:
    run = SiteRun(0, "http://a.test", WorkerTask("x", {}, {}, "link"), 1e6, Path("log"))
    run.follow_plan(0.0, RATE)
    assert run.follow_plan(30.0, RATE) == pytest.approx(RATE / AIM)


@given(st.lists(st.floats(0.0, 0.3), min_size=1, max_size=60))
def test_a_server_that_cannot_is_not_asked_for_ever_more(parts: list[float]) -> None:
    run = site_run()
    total = 0.0
    for part in parts:
        total += part * RATE
        received(run, total)
        assert run.follow_plan(1.0, RATE) <= 2.0 * RATE / AIM + 1e-6


def test_a_crawler_that_gives_the_rate_it_is_told_comes_back_to_its_plan() -> None:
    run = site_run()
    total, told = 0.0, RATE / AIM
    for second in range(40):
        total += (0.3 if second < 3 else 1.0) * told * AIM
        received(run, total)
        told = run.follow_plan(1.0, RATE)
    assert total == pytest.approx(40 * RATE, rel=0.02)


def test_a_run_without_progress_has_all_its_data_left() -> None:
    run = site_run()
    assert run.progress == Progress(False, 0, 0, 0, 0)
    assert run.left_bytes() == 1e6
