"""What is wrong with a command about recrawls and Squid is said in one line that names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["crawl", "--again", "nowhere"], "there is no such folder"),
        (["crawl", "--again", "."], "not a run folder"),
        (["crawl"], "give a job file or URLs"),
        (["listen-squid", "nowhere", "--proxy", "http://127.0.0.1:1"], "there is no such folder"),
        (["listen-squid", "."], "--proxy"),
        (["listen-squid", ".", "--proxy", "ftp://x"], "only http:// proxies"),
        (
            ["listen-squid", ".", "--proxy", "http://127.0.0.1:1", "--listen", "foo"],
            "not an address to listen on",
        ),
    ],
)
def test_a_mistake_is_named_and_no_traceback_is_shown(words: list[str], said: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headway", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode not in {0, None}
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_configuration_for_squid_names_the_socket(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headway", "listen-squid", "run", "--print-config"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert str(tmp_path / "run" / "announced" / "helper.sock") in done.stdout
    assert "url_rewrite_program" in done.stdout
