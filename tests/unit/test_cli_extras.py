"""A command whose extra is not installed says which one it needs."""

from __future__ import annotations

import subprocess
import sys


def without(package: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = (
        f"import sys; sys.modules[{package!r}] = None; from headway.cli import main; main({list(words)})"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True)


def test_it_names_the_extra_and_shows_no_traceback() -> None:
    done = without("psycopg", "collect", "--help")
    assert done.returncode == 1
    assert "pip install 'headway[postgres]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_needs_no_extra() -> None:
    assert without("psycopg", "--help").returncode == 0
