"""Every surface says the same of a run: status, report, dashboard, metrics, export and the Python API.

The run has two changes of its bound and a second sitting after a pause in which nobody crawled.
"""

from __future__ import annotations

import asyncio
import csv
import json
import queue
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the dashboard needs the extra 'serve'")

from prometheus_client.parser import text_string_to_metric_families
from tests.support.fleetweb import FleetWeb
from tests.support.postgres import find_postgres

import headway as hw
from headway.dashboard.application import Served as Dashboard
from headway.dashboard.application import new_token
from headway.demoweb import QUICK, ServedProcess, design_web
from headway.store.reader import open_reader
from headway.view.reporting import gather
from headway.view.run import RunView

HEADWAY = Path(sys.executable).with_name("headway")
FIRST, LOW, HIGH = 120_000, 40_000, 200_000
"""Bounds in bytes per second."""
AWAY_S = 3.0
OF_RUN = ("bound_bytes_per_s", "wire_bytes", "done", "failed", "waiting", "started_at")
OF_LINK = (
    "mean_bytes_per_s",
    "max_bytes_per_s",
    "use_of_bound",
    "most_over_bound",
    "received_bytes",
    "active_s",
    "sittings",
)
SHARED = (*OF_RUN, *OF_LINK, "state", "deadlines")


async def crawl_twice(folder: Path) -> RunView:
    with ServedProcess(design_web(seed=21, scale=0.6, roster=("plain",) * 4, tempo=QUICK)) as served:
        deadlines = ["1 h", "4 s", None, "1 h"]
        tasks = [
            hw.Task(url, deadline=deadline, max_pages=60)
            for url, deadline in zip(served.urls, deadlines, strict=True)
        ]
        plan = hw.Plan(bandwidth="120 KB/s", tasks=tasks, allow_private=True, interval="20 ms")
        async with hw.open(plan, out=folder) as run:
            reading = asyncio.create_task(read(run))
            await asyncio.sleep(3.4)
            await run.limit("40 KB/s")
            await asyncio.sleep(3.3)
            await run.limit("200 KB/s")
            await asyncio.sleep(1.6)
            assert run.is_running, "the web is too small for this bound"
            await run.stop()
            await reading
        await asyncio.sleep(AWAY_S)
        async with hw.open(plan, out=folder) as run:
            await read(run)
            return run.view()


async def read(run: hw.Run) -> None:
    async for _ in run:
        pass


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunView]:
    folder = tmp_path_factory.mktemp("agreement") / "run"
    return folder, asyncio.run(crawl_twice(folder))


@pytest.fixture(scope="module")
def surfaces(crawled: tuple[Path, RunView]) -> dict[str, Any]:
    return {"api": crawled[1], **surfaces_of(crawled[0])}


def surfaces_of(run: Path | str) -> dict[str, Any]:
    status = subprocess.run(
        [HEADWAY, "status", "--json", run], capture_output=True, check=True, timeout=60
    ).stdout
    exported = subprocess.run([HEADWAY, "export", run], capture_output=True, check=True, timeout=60).stdout
    return {
        "status": json.loads(status),
        "export": [json.loads(line) for line in exported.splitlines()],
        **served_of(run),
    }


def served_of(run: Path | str) -> dict[str, Any]:
    ready: queue.Queue[Dashboard] = queue.Queue()

    def serve() -> None:
        dashboard = Dashboard(run, host="127.0.0.1", port=0, token=new_token())
        dashboard.run(on_ready=lambda: ready.put(dashboard))

    thread = threading.Thread(target=serve)
    thread.start()
    dashboard = ready.get(timeout=30)
    try:
        answers = {}
        for name, path in (("now", "/api/v1/now?limit=200"), ("metrics", "/metrics")):
            with urllib.request.urlopen(dashboard.origin + path, timeout=20) as answer:
                answers[name] = answer.read().decode()
    finally:
        dashboard.stop()
        thread.join(30)
    metrics = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answers["metrics"])
        for sample in family.samples
    }
    return {"dashboard": json.loads(answers["now"]), "metrics": metrics}


def same(*values: object) -> None:
    first, *others = values
    for other in others:
        if isinstance(first, float | int) and isinstance(other, float | int):
            assert other == pytest.approx(first, rel=1e-9, abs=1e-6), values
        else:
            assert other == first, values


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def check_link(status: dict[str, Any], now: dict[str, Any], metrics: dict[Any, float]) -> None:
    run = now["run"]
    for key in SHARED:
        same(status[key], run[key])
    same(status["seconds"], run["elapsed_s"])
    same(status["mean_bytes_per_s"], metrics["headway_link_mean_rate_bytes_per_second",])
    same(status["wire_bytes"], metrics["headway_bytes_downloaded_total",])
    same(status["done"], metrics["headway_pages_fetched_total",])
    same(status["failed"], metrics["headway_pages_failed_total",])
    same(status["waiting"], metrics["headway_pages_waiting",])
    same(status["use_of_bound"], metrics.get(("headway_link_use_ratio",)))
    same(status["bound_bytes_per_s"], metrics.get(("headway_link_bound_bytes_per_second",)))
    for outlook, count in status["deadlines"].items():
        same(count, metrics.get(("headway_deadlines", outlook.replace("_", "-")), 0))
    same(status["missed"], status["deadlines"]["missed"] + status["deadlines"]["late"])
    failed = Counter({each["kind"]: each["count"] for each in run["errors"] if each["state"] == "failed"})
    same(status["errors"], dict(failed))


def check_sites(status: dict[str, Any], now: dict[str, Any], exported: list[dict[str, Any]]) -> None:
    ours = {site["site"]: site for site in status["sites"]}
    theirs = {line["site"]: line for line in now["sites"]["sites"]}
    assert ours.keys() == theirs.keys()
    states = Counter((page["site"], page["state"]) for page in exported)
    for name, site in ours.items():
        line = theirs[name]
        for key in ("done", "failed", "waiting", "wire_bytes"):
            same(site[key], line[key])
        same(site["done"], states[name, "done"])
        same(site["failed"], states[name, "failed"])
        same(site["verdict"] in {"met", "missed"}, line["outlook"] in {"met", "missed"})
        if site["finished_s"] is not None:
            same(status["started_at"] + site["finished_s"], line["ended_at"])
        # A site's bytes have its robots.txt and the attempts that were repeated as well.
        assert sum(page["wire_bytes"] for page in exported if page["site"] == name) <= site["wire_bytes"]


def test_the_run_is_as_the_test_wants_it(crawled: tuple[Path, RunView]) -> None:
    with open_reader(crawled[0]) as reader:
        samples = list(reader.samples())
    marks = [
        (before.capacity_bytes_per_s, after.capacity_bytes_per_s)
        for before, after in pairwise(samples)
        if before.at == after.at
    ]
    assert marks[:2] == [(FIRST, LOW), (LOW, HIGH)]
    link = crawled[1].link
    assert link.sittings == 2
    assert (link.lowest_bound_bytes_per_s, link.highest_bound_bytes_per_s) == (LOW, HIGH)
    assert crawled[1].elapsed_s >= link.active_s + AWAY_S - 0.5
    assert link.most_over_bound is not None
    assert link.most_over_bound < 1.0, "compared with the bound that held, no second is far over it"


def test_status_dashboard_and_metrics_agree(surfaces: dict[str, Any]) -> None:
    check_link(surfaces["status"], surfaces["dashboard"], surfaces["metrics"])


def test_sites_and_exported_pages_agree(surfaces: dict[str, Any]) -> None:
    check_sites(surfaces["status"], surfaces["dashboard"], surfaces["export"])


def test_the_api_agrees(surfaces: dict[str, Any]) -> None:
    view, status = surfaces["api"], surfaces["status"]
    for key in OF_LINK:
        same(status[key], getattr(view.link, key))
    for key in OF_RUN:
        same(status[key], getattr(view, key))
    assert view.elapsed_s == pytest.approx(status["seconds"], abs=0.5)
    same(status["errors"], dict(view.failures))
    same(status["missed"], view.deadlines.all_missed)
    same(status["deadlines"]["met"], view.deadlines.met)
    for site in status["sites"]:
        (mine,) = [each for each in view.sites if each.site == site["site"]]
        same(site["verdict"], mine.verdict)
        for key in ("done", "failed", "waiting", "wire_bytes", "deadline_s"):
            same(site[key], getattr(mine, key))


def test_the_report_agrees(crawled: tuple[Path, RunView], surfaces: dict[str, Any]) -> None:
    run, status = crawled[0], surfaces["status"]
    told: dict[str, Any] = json.loads(
        subprocess.run(
            [HEADWAY, "report", "--json", run], capture_output=True, check=True, timeout=120
        ).stdout
    )
    same(told["pages"], status["done"])
    same(told["state"], status["state"])
    same(len(told["missed"]), status["missed"])
    assert f"used to {status['use_of_bound']:.0%} of its bound" in told["verdict"]
    over = status["most_over_bound"]
    assert (f"{over:.1%} over it" if over > 0 else f"{-over:.1%} under it") in told["verdict"]
    rows = {row["site"]: row for row in rows_of(run / "report" / "sites.csv")}
    for site in status["sites"]:
        row = rows[site["site"]]
        same(site["done"], int(row["pages"]))
        same(site["failed"], int(row["failed"]))
        same(site["waiting"], int(row["waiting"]))
        same(site["wire_bytes"], int(row["wire_bytes"]))
    link = [float(row["rate_bytes_per_s"]) for row in rows_of(run / "report" / "link.csv")]
    assert max(link) == pytest.approx(status["max_bytes_per_s"], rel=1e-4)
    points = surfaces["dashboard"]["link"]
    assert link == pytest.approx([point["rate_bytes_per_s"] for point in points], rel=1e-4)
    assert [bound for _, bound in gather(run).link.bounds][:3] == [FIRST, LOW, HIGH]


@pytest.mark.skipif(find_postgres() is None, reason="PostgreSQL is not installed")
def test_a_crawl_on_a_server_is_the_same_everywhere(postgres_store: str, tmp_path: Path) -> None:
    with FleetWeb(sites=3, pages=10) as web:
        options = ["--allow-private", "--interval", "0.1s", "--bandwidth", "400 kbit/s", "--deadline", "1 h"]
        command = [HEADWAY, "crawl", *web.seeds, *options, "--store", postgres_store, "-o", tmp_path / "c"]
        subprocess.run([*command, "-q"], check=True, timeout=120)
    time.sleep(0.1)
    found = surfaces_of(postgres_store)
    assert found["status"]["done"] == 30
    check_link(found["status"], found["dashboard"], found["metrics"])
    check_sites(found["status"], found["dashboard"], found["export"])
