"""The API against its own OpenAPI document: schemathesis asks whatever the document allows, and what it does
not, of a running dashboard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from tests.support.runs import make_run

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
positive_data_acceptance = pytest.importorskip("schemathesis.specs.openapi.checks").positive_data_acceptance
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


endpoints = pytest.importorskip("headway.dashboard.openapi")
OPERATIONS = [(each.path, each.method.upper()) for each in endpoints.ENDPOINTS] + [("/metrics", "GET")]


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_the_api_keeps_to_its_document(address: str, path: str, method: str, mode: Any) -> None:
    """With questions that the document allows, and with such as it does not."""
    schema = schemathesis.openapi.from_url(f"{address.partition('#')[0]}api/openapi.json")
    # An order that is too long is refused for that alone, which schemathesis does not count as a refusal.
    refusals = schema.config.checks.negative_data_rejection
    refusals.expected_statuses = [*refusals.expected_statuses, "413"]
    operation = schema[path][method]
    # Whether "tomorrow" is a deadline is not for a schema to say: an order may be whole and yet refused.
    left_out = [positive_data_acceptance] if method == "POST" else []
    headers = {"Authorization": f"Bearer {address.partition('token=')[2]}"}

    @settings(max_examples=20, suppress_health_check=list(HealthCheck), deadline=None, database=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        case.call_and_validate(headers=headers, timeout=20, excluded_checks=left_out)

    try:
        ask()
    except Unsatisfiable:
        pytest.skip("there is nothing that the document does not allow here")
