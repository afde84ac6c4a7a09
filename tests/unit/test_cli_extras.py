"""A command whose extra is not installed says which one it needs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from headway.cli.frame import _EXTRAS, DEADLINES_MISSED

ROOT = Path(__file__).parents[2]


def without(packages: Iterable[str], *words: str) -> subprocess.CompletedProcess[str]:
    program = (
        f"import sys; sys.modules |= dict.fromkeys({list(packages)}); "
        f"from headway.cli import main; main({list(words)})"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True)


def test_it_names_the_extra_and_shows_no_traceback() -> None:
    done = without(["psycopg"], "collect", "--store", "postgresql://127.0.0.1:1/none")
    assert done.returncode == 1
    assert f"pip install '{ROOT}[postgres]'" in done.stderr.replace("\n", "")
    assert "Traceback" not in done.stderr


def test_help_needs_no_extra() -> None:
    assert without(["psycopg"], "--help").returncode == 0


def test_each_extra_that_is_named_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(_EXTRAS.values()) <= project["optional-dependencies"].keys()


@pytest.mark.parametrize(
    "command", ["crawl", "demo", "export", "limit", "plan", "report", "schema", "serve", "simulate", "status"]
)
def test_a_plain_installation_has_the_command(command: str) -> None:
    done = without(_EXTRAS, command, "--help")
    assert done.returncode == 0, done.stderr


def test_a_plain_installation_crawls_and_reports(tmp_path: Path) -> None:
    """What the README shows first needs no extra."""
    run = str(tmp_path / "run")
    for words in (
        ["demo", "-q", "--scale", "0.1", "--bandwidth", "100 Mbit/s", "-o", run],
        ["report", run],
        ["status", run],
    ):
        done = without(_EXTRAS, *words)
        assert done.returncode in {0, DEADLINES_MISSED}, done.stderr
    assert (tmp_path / "run" / "report" / "report.html").exists()


def test_worker_processes_and_recrawls_of_run_folders_need_no_extra() -> None:
    program = (
        f"import sys; sys.modules |= dict.fromkeys({list(_EXTRAS)}); "
        "import headway.cluster.processes, headway.cluster.collecting"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
