"""Every engine of the product is built in one place, so that a worker process, a collector of a fleet and a
simulation run the engine that the claims beside this one are about."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import headway
from headway.engine.bandwidth import BandwidthPlanner
from headway.engine.machine import Engine
from headway.policy.admission import Admission
from headway.policy.traps import TrapWatch
from headway.runtime import runtime
from headway.runtime.driver import LiveDriver
from headway.runtime.runtime import Runtime

SOURCES = Path(headway.__file__).parent
BUILDER = Path(runtime.__file__)


def callers(*names: str) -> dict[Path, list[int]]:
    """Where in the product something of this name is called, in which lines."""
    found: dict[Path, list[int]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        lines = [call.lineno for call in _calls(path) if _name_of(call.func) in names]
        if lines:
            found[path] = lines
    return found


@cache
def _calls(path: Path) -> list[ast.Call]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _name_of(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


@pytest.mark.parametrize(
    "part", [Engine, BandwidthPlanner, Admission, TrapWatch], ids=lambda part: part.__name__
)
def test_only_the_builder_constructs(part: type) -> None:
    assert callers(part.__name__).keys() == {BUILDER}


def test_a_crawl_a_worker_process_a_collector_run_scrapy_and_a_simulation_start_at_the_runtime() -> None:
    starting = {str(path.relative_to(SOURCES)) for path in callers(Runtime.from_job.__name__)}
    assert {
        "runtime/crawling.py",
        "runtime/plan.py",
        "runtime/simulation.py",
        "cluster/collecting.py",
        "scrapy/steering.py",
    } <= starting
    # Worker processes and collectors are sessions, and only these are built elsewhere than in the runtime.
    sessions = {str(path.relative_to(SOURCES)) for path in callers("build_session")}
    assert {"cluster/processes.py", "cluster/collecting.py"} <= sessions


def test_what_drives_an_engine_live_gets_it_from_the_builder() -> None:
    """A driver is made by the runtime. A session of a fleet is handed its engine by `build_session`, and the
    proxy collector has one of its own."""
    drivers = {str(path.relative_to(SOURCES)) for path in callers(LiveDriver.__name__)}
    assert drivers == {"runtime/runtime.py", "cluster/session.py", "runtime/proxy_refresher.py"}
    builders = {str(path.relative_to(SOURCES)) for path in callers("build_engine", "build_proxy_engine")}
    assert builders == {"runtime/runtime.py", "runtime/proxy_refresher.py", "cluster/collecting.py"}
