"""A crawl of a trap ends by itself, says why it left things out, and finds every true page."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.chaos.process import ChaosProcess
from tests.support.chaos.site import AFTER, BAD
from tests.support.chaos.traps import TRAPS

from headway.demoweb import QUICK, ServedProcess, design_web
from headway.engine.availability import REACHABLE_AGAIN, UNREACHABLE_SINCE
from headway.store.reader import RunReader
from headway.view.summary import summarise

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.soak.crawling import build, crawl  # noqa: E402

FAR = {"max_depth": 100_000}
"""Traps are known for what they are, not by their depth."""
ENOUGH = 3000
"""A crawl that got so far would go on for ever."""


@pytest.fixture(scope="module")
def chaos() -> Iterator[ChaosProcess]:
    with ChaosProcess(TRAPS) as served:
        yield served


def run_of(chaos: ChaosProcess, name: str, folder: Path, **options: object) -> Path:
    seeds = [chaos.url(name, AFTER)]
    site = {"url": chaos.url(name, BAD), "seeds": seeds, "max_pages": ENOUGH}
    crawl(build([site], pages_per_connection=1000, scope=FAR, **options), folder / "run")
    return folder / "run"


@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_is_left_and_nothing_true_is_missed(chaos: ChaosProcess, name: str, tmp_path: Path) -> None:
    run = run_of(chaos, name, tmp_path)
    site, origin = TRAPS[name], chaos.origins[name]
    with RunReader(run) as reader:
        assert reader.totals().waiting == 0
        assert reader.totals().done < ENOUGH
        fetched = {page.url.removeprefix(origin) for page in reader.pages() if page.state == "done"}
        reasons = Counter({each.reason: each.count for each in reader.outcomes() if each.state == "excluded"})
    assert set(site.true_paths) <= fetched
    assert reasons[site.trap] > 0, reasons
    decisions = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()]
    assert any(line.get("reason") == site.trap for line in decisions if line["decision"] == "exclude")


def test_without_the_watch_a_trap_is_not_left(chaos: ChaosProcess, tmp_path: Path) -> None:
    run = run_of(chaos, "trap-numbers", tmp_path, traps=False)
    with RunReader(run) as reader:
        assert reader.totals().done == ENOUGH


def test_nothing_of_the_demo_web_is_taken_for_a_trap(tmp_path: Path) -> None:
    """It has a calendar without end, too, but one with something to say on every page."""
    with ServedProcess(design_web(5, tempo=QUICK, scale=0.5)) as demo:
        sites = [{"url": url, "max_pages": 400} for url in demo.urls]
        short = {"connect": "1 s", "first_byte": "500 ms", "idle": "500 ms", "total": "5 s"}
        crawl(build(sites, pages_per_connection=1000, timeouts=short), tmp_path / "run")
    summary = summarise(tmp_path / "run")
    assert summary.done > 150
    assert summary.noticed.left_out == {}
    # One of its servers is down for a while, which is noted as well.
    assert {notice.what for notice in summary.noticed.notices} <= {UNREACHABLE_SINCE, REACHABLE_AGAIN}
