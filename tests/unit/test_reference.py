"""What of the reference is made from the code is what the code says; shells complete the command line."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("click_man")
pytest.importorskip("prometheus_client")

ROOT = Path(__file__).parents[2]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = load(ROOT / "scripts" / "make_reference.py").pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_is_what_the_code_says(path: Path) -> None:
    assert path.read_text() == PAGES[path], "the code says something else now: run `make reference`"


def test_nothing_is_left_of_commands_that_are_gone() -> None:
    assert set((ROOT / "docs" / "man").iterdir()) <= set(PAGES)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion(shell: str) -> None:
    said = headway({"_HEADWAY_COMPLETE": f"{shell}_source"})
    assert "_HEADWAY_COMPLETE=" in said


@pytest.mark.parametrize(
    ("words", "offered"),
    [("headway cr", "crawl"), ("headway crawl --ban", "--bandwidth"), ("headway plan --pol", "--policy")],
)
def test_words_are_completed(words: str, offered: str) -> None:
    place = str(len(words.split()) - 1)
    said = headway({"_HEADWAY_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": place})
    assert f"plain,{offered}" in said.splitlines()


def headway(environment: dict[str, str]) -> str:
    program = str(Path(sys.executable).with_name("headway"))
    done = subprocess.run(
        [program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout
