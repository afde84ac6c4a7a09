"""The files that the page on fleets gives away are what their programs read, and name options that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headway.cli.crawl import collect_command, crawl_command

ROOT = Path(__file__).parents[2]
FLEET = ROOT / "docs" / "how-to" / "fleet"
COMMANDS = {"collect": collect_command, "crawl": crawl_command}
UNITS = sorted(FLEET.glob("*.service"))
yaml = pytest.importorskip("yaml")


def check_words(words):
    """That a command line is one of ours."""
    command, *rest = words
    known = {name for param in COMMANDS[command].params for name in param.opts}
    assert {word for word in rest if word.startswith("-")} <= known


def tool(name):
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        pytest.skip(f"{name} is not installed")
    return path


def documents():
    return list(yaml.safe_load_all((FLEET / "kubernetes.yaml").read_text()))


def test_kubernetes_accepts_the_manifests():
    command = [tool("kubernetes-validate"), "--strict", FLEET / "kubernetes.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed for resource") + done.stderr.count("passed for resource") == 4


def test_a_manifest_with_a_slip_would_not_be_accepted(tmp_path):
    wrong = (FLEET / "kubernetes.yaml").read_text().replace("replicas: 4", "replicas: four")
    (tmp_path / "wrong.yaml").write_text(wrong)
    command = [tool("kubernetes-validate"), "--strict", tmp_path / "wrong.yaml"]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize("folder", [FLEET, ROOT], ids=["how-to", "root"])
def test_compose_accepts_its_file(folder):
    command = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", folder / "compose.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_units(unit, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    # It insists on a program that is there.
    text = unit.read_text().replace("/opt/headway/bin/headway", shutil.which("true"))
    copy = tmp_path / unit.name.replace("@", "@news")
    copy.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False
    )
    assert copy.name not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


def test_pods_run_our_commands_and_are_stopped_with_sigterm():
    pods = [each["spec"]["template"]["spec"] for each in documents() if each["kind"] in {"Job", "Deployment"}]
    assert len(pods) == 2
    for pod in pods:
        (container,) = pod["containers"]
        check_words([*container["command"][1:], *container["args"]])
        assert pod["terminationGracePeriodSeconds"] >= 30
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        assert mounts == {volume["name"] for volume in pod["volumes"]}


def test_the_job_in_the_manifests_is_one(tmp_path):
    (config,) = (each for each in documents() if each["kind"] == "ConfigMap")
    (tmp_path / "job.toml").write_text(config["data"]["job.toml"])
    from headway.config.job import build_job
    from headway.config.reading import read_job_file

    file, source = read_job_file(tmp_path / "job.toml")
    assert build_job(file, source).is_bounded


def image_of(text):
    """What the Dockerfile runs, and the folder that it gives to the user it runs as."""
    entrypoint = json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[1])
    return entrypoint, re.search(r"chown crawler (\S+)$", text, re.MULTILINE)[1]


@pytest.mark.parametrize("folder", [FLEET, ROOT], ids=["how-to", "root"])
def test_what_compose_runs_are_our_commands_each_in_a_folder_of_its_own(folder):
    entrypoint, writable = image_of((ROOT / "Dockerfile").read_text())
    assert entrypoint == ["headway"], "so that a command begins with what follows it"
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    for name in ("crawl", "collector"):
        service = services[name]
        if "entrypoint" in service:
            *shell, script = service["entrypoint"]
            assert (shell, script.split()[:2]) == (["sh", "-c"], ["exec", "headway"])
            words = script.split()[2:]
        else:
            command = service["command"]
            words = command if isinstance(command, list) else command.split()
        check_words(words)
        into = words[words.index("-o") + 1]
        assert not into.startswith("/"), "beside the working folder nothing may be written"
        assert ("$$HOSTNAME" in into) is (name == "collector"), "there are several"
        mounts = [volume.split(":")[1] for volume in service["volumes"] if not volume.endswith(":ro")]
        assert mounts == [writable]
    assert services["collector"]["restart"] == "on-failure", "it may come before the crawl"


def test_the_compose_file_names_only_what_it_has():
    compose = yaml.safe_load((FLEET / "compose.yaml").read_text())
    services = compose["services"]
    assert services.keys() == {"database", "crawl", "collector"}
    for service in services.values():
        assert set(service.get("secrets", ())) <= compose["secrets"].keys()
        named = {volume.split(":")[0] for volume in service.get("volumes", ()) if not volume.startswith(".")}
        assert named <= compose["volumes"].keys()
        assert set(service.get("depends_on", ())) <= services.keys()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_count_who_was_asked_to_stop_as_a_success(unit):
    text = unit.read_text()
    assert "11" in re.search(r"^SuccessExitStatus=(.*)$", text, re.MULTILINE)[1].split()
    check_words(re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)[1].split()[1:])
