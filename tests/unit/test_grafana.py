"""The Grafana dashboard in docs asks for metrics that headway has, and for no others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client", reason="metrics need the extra 'serve'")

from prometheus_client import CollectorRegistry
from tests.support.runs import make_run

from headway.dashboard.answers import Picture, WatchedRun
from headway.dashboard.application import RunCollector, render

BOARD = Path(__file__).parents[2] / "docs" / "grafana" / "headway.json"
ONLY_WHILE_RUNNING = {"headway_link_predicted_bytes_per_second", "headway_forecast_end_timestamp_seconds"}


@pytest.fixture
def picture(tmp_path: Path) -> Picture:
    make_run(tmp_path / "run", ["http://a.test"], pages=20, waiting=2)
    watched = WatchedRun(tmp_path / "run")
    try:
        return watched.picture()
    finally:
        watched.close()


def test_every_metric_of_the_board_is_served(picture: Picture) -> None:
    board = json.loads(BOARD.read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"headway_\w+", target["expr"])
    }
    registry = CollectorRegistry()
    registry.register(RunCollector(lambda: picture))
    text = render(registry, "")[0].decode()
    served = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    assert len(asked) >= 9
    assert asked - ONLY_WHILE_RUNNING <= served


def test_no_two_panels_cover_each_other() -> None:
    boxes = [panel["gridPos"] for panel in json.loads(BOARD.read_text())["panels"]]
    for place, one in enumerate(boxes):
        assert one["x"] + one["w"] <= 24
        for other in boxes[:place]:
            apart = (
                one["x"] >= other["x"] + other["w"]
                or other["x"] >= one["x"] + one["w"]
                or one["y"] >= other["y"] + other["h"]
                or other["y"] >= one["y"] + one["h"]
            )
            assert apart
