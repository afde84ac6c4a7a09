"""Orders in the run folder: whole lines only, each once, and no slip of the pen stops a crawl."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.runs import make_run

from headway.errors import StoreError
from headway.model.command import AddSite, Order, Pause, Resume, SetDeadline, StopSite
from headway.model.page import Page, PageKey, Site, Task
from headway.runtime.control import ORDERS_FILE, OrderWatch, write_order
from headway.units import Instant

A = Site("http://a.test")
ORDERS: list[Order] = [
    Pause(),
    SetDeadline(A, Instant(5.0)),
    Resume(),
    StopSite(A),
    AddSite(Task(A, ("http://a.test/",), max_pages=3), (Page("http://a.test/", A, PageKey(7)),)),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    make_run(tmp_path / "run", [A], pages=1)
    return tmp_path / "run"


def test_each_order_is_given_once_in_its_turn(run: Path) -> None:
    watch = OrderWatch(run)
    assert watch.fresh() == []
    for order in ORDERS:
        write_order(run, Instant(1.0), order)
        assert watch.fresh() == [order]
        assert watch.fresh() == []


def test_a_later_process_takes_up_everything_but_a_pause(run: Path) -> None:
    for order in ORDERS:
        write_order(run, Instant(1.0), order)
    watch = OrderWatch(run)
    assert watch.lasting() == [ORDERS[1], ORDERS[3], ORDERS[4]]
    assert watch.fresh() == []


def test_half_a_line_waits_for_its_other_half(run: Path) -> None:
    write_order(run, Instant(1.0), StopSite(A))
    whole = (run / ORDERS_FILE).read_bytes()
    watch = OrderWatch(run)
    (run / ORDERS_FILE).write_bytes(whole[:20])
    assert watch.fresh() == []
    (run / ORDERS_FILE).write_bytes(whole)
    assert watch.fresh() == [StopSite(A)]


@given(st.binary(max_size=200))
def test_nonsense_between_orders_is_passed_over(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes
) -> None:
    folder = tmp_path_factory.mktemp("noise")
    (folder / "crawl.sqlite").touch()
    (folder / ORDERS_FILE).write_bytes(noise + b"\n")
    write_order(folder, Instant(1.0), StopSite(A))
    assert OrderWatch(folder).fresh() == [StopSite(A)]


def test_only_a_run_folder_takes_orders(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a run folder"):
        write_order(tmp_path, Instant(1.0), Pause())
