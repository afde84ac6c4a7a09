"""The files that the page on fleets gives away are what their programs read, and name options that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headway.cli.collect import collect_command

DOCS = Path(__file__).parents[2] / "docs" / "how-to"
yaml = pytest.importorskip("yaml")


def options_in(words):
    return {word for word in words if word.startswith("--")}


def known_options():
    return {name for param in collect_command.params for name in param.opts}


def test_the_deployment_runs_a_collector_that_is_stopped_in_good_order():
    deployment = yaml.safe_load((DOCS / "fleet" / "kubernetes.yaml").read_text())
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    spec = deployment["spec"]
    pod = spec["template"]
    assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["headway", "collect"]
    assert options_in(container["args"]) <= known_options()
    assert pod["spec"]["terminationGracePeriodSeconds"] >= 30
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["spec"]["volumes"]}


def test_the_compose_file_names_only_what_it_has():
    compose = yaml.safe_load((DOCS / "fleet" / "compose.yaml").read_text())
    services = compose["services"]
    assert services.keys() == {"database", "crawl", "collector"}
    for service in services.values():
        assert set(service.get("secrets", ())) <= compose["secrets"].keys()
        named = {volume.split(":")[0] for volume in service.get("volumes", ()) if not volume.startswith(".")}
        assert named <= compose["volumes"].keys()
        assert set(service.get("depends_on", ())) <= services.keys()
    assert options_in(services["collector"]["command"][-1].split()) <= known_options()


def test_the_unit_counts_a_collector_that_was_sent_away_as_a_success():
    unit = re.search(r"```ini\n(.*?)```", (DOCS / "fleet.md").read_text(), re.DOTALL)[1]
    assert "SuccessExitStatus=11" in unit
    start = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1].split()
    assert start[1] == "collect"
    assert options_in(start) <= known_options()
