"""The API against its own OpenAPI document: schemathesis asks whatever the document allows, and what it does
not, of a running dashboard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from headway.testing.runs import make_run

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
pytest.importorskip("uvicorn", reason="the dashboard needs the extra 'serve'")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("schema") / "run"
    make_run(folder, ["http://a.test", "http://b.test"], pages=12, waiting=3)
    command = [sys.executable, "-m", "headway", "serve", "--port", "0", "--log-json", os.fspath(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        yield json.loads(process.stderr.readline())["address"]
        process.send_signal(signal.SIGINT)
        process.wait(20)


@pytest.fixture
def api(address: str) -> Any:
    return schemathesis.openapi.from_url(f"{address.partition('#')[0]}api/openapi.json")


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
def test_the_api_keeps_to_its_document(case: Any, address: str) -> None:
    case.call_and_validate(headers={"Authorization": f"Bearer {address.partition('token=')[2]}"}, timeout=20)
