"""The whole bench shows what failed as failed, explains what a crawler lacks, and keeps between its marks."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # `benchmarks` is not installed

from benchmarks.manuals import SiteFolder
from benchmarks.notes import write_part
from benchmarks.whole import __main__ as whole
from benchmarks.whole import frontpage, results
from benchmarks.whole.coverage import explain
from benchmarks.whole.parts import PARTS, Part

HOME = "http://127.1.0.2:18480/"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (whole, results, frontpage):
        monkeypatch.setattr(module, "KEPT", tmp_path)
    monkeypatch.setattr(results, "RESULTS", tmp_path / "RESULTS.md")
    return tmp_path


def part(*command: str, limit_s: float = 30.0) -> Part:
    return Part("memory", "a try", command, limit_s, command, limit_s)


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("raise ValueError('no such web')", "failed"),
        ("print('here', flush=True); time.sleep(60)", "out of time"),
    ],
)
def test_a_part_that_fails_or_takes_too_long_is_shown_as_such(kept: Path, statement: str, word: str) -> None:
    tried = part("timeit", "-n1", "-r1", "-s", "import time", statement, limit_s=3.0)
    ended = whole.run_part(tried, quick=True)
    assert tried.verdict(ended["exit_code"]) == word
    results.write_results()
    page = (kept / "RESULTS.md").read_text()
    assert f"| {word} |" in page
    assert ("no such web" if word == "failed" else "here") in page


def test_every_part_can_be_called() -> None:
    for each in PARTS:
        assert importlib.util.find_spec(each.whole[0]) is not None
        assert importlib.util.find_spec(each.quick[0]) is not None
        assert each.quick_limit_s <= each.limit_s


def test_what_a_crawler_lacks_is_explained_from_the_files(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<a href="a.html">a</a><link rel="next" href="next.html">')
    for name in ("a", "next", "alone"):
        (tmp_path / f"{name}.html").write_text("<p>text")
    site = SiteFolder("manual", tmp_path, HOME, 4, 100)
    lacking = [f"{HOME}index.html", f"{HOME}next.html", f"{HOME}alone.html"]
    told = {missing.example: missing.why for missing in explain(lacking, [HOME, f"{HOME}a.html"], [site])}
    assert told == {
        f"{HOME}index.html": "has the same file under another address",
        f"{HOME}next.html": "linked by <link>",
        f"{HOME}alone.html": "no element of any page links to it",
    }


def test_only_what_is_between_the_marks_is_written(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n")
    write_part(page, "figures", "new")
    write_part(page, "figures", "newer")
    assert page.read_text() == "before\n<!-- figures -->\nnewer\n<!-- end of figures -->\nafter\n"
    write_part(page, "more", "at the end")
    assert page.read_text().endswith("after\n\n<!-- more -->\nat the end\n<!-- end of more -->\n")


def test_the_page_says_with_which_command_and_in_which_form(kept: Path) -> None:
    whole.run_part(part("timeit", "-n1", "-r1", "1"), quick=True)
    results.write_results()
    page = (kept / "RESULTS.md").read_text()
    assert json.loads((kept / "memory.ended").read_text())["exit_code"] == 0
    assert "quick form" in page
    assert "python -m timeit" in page
