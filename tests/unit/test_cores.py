"""Workers on cores of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headway.runtime.process import Cores, keep_to


def test_as_many_workers_as_cores_have_one_each() -> None:
    cores = Cores(3, {1, 5, 4})
    assert [cores.take(pid) for pid in (100, 101, 102)] == [1, 4, 5]


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_with_more_or_fewer_workers_none_is_pinned(processes: int) -> None:
    cores = Cores(processes, {0, 1, 2})
    assert {cores.take(pid) for pid in range(processes)} == {None}


def test_the_successor_of_a_worker_has_its_core() -> None:
    cores = Cores(2, {0, 1})
    first, second = cores.take(100), cores.take(101)
    cores.give_back(100)
    cores.give_back(100)
    assert cores.take(102) == first != second
    assert cores.take(103) is None


def test_a_crawl_by_one_process_on_one_core_is_left_alone() -> None:
    assert Cores(1, {0}).take(100) is None


def test_a_process_keeps_to_its_core_and_one_that_has_ended_is_no_trouble() -> None:
    core = min(os.sched_getaffinity(0))
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        keep_to(process.pid, None)
        assert os.sched_getaffinity(process.pid) == os.sched_getaffinity(0)
        keep_to(process.pid, core)
        assert os.sched_getaffinity(process.pid) == {core}
    finally:
        process.communicate(b"\n")
    keep_to(process.pid, core)
