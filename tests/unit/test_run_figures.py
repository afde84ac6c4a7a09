"""The report on disk: a page that stands alone, and every figure as PNG, SVG and CSV beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("matplotlib", reason="figures need the extra 'plot'")

from tests.support.runs import make_run

from headway.report.run_charts import FIGURES
from headway.report.run_page import write_report
from headway.view.reporting import gather


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures") / "run"
    make_run(folder, ["http://a.test", "http://price$in$.test"], pages=30, deadline_s=15.0)
    return write_report(gather(folder), folder / "report")


def test_every_figure_is_there_in_three_forms(report: Path) -> None:
    for figure in FIGURES:
        png, svg, table = (report.with_name(f"{figure.name}.{ending}") for ending in ("png", "svg", "csv"))
        assert png.read_bytes().startswith(b"\x89PNG")
        assert ET.fromstring(svg.read_text()).tag.endswith("svg")
        assert len(table.read_text().splitlines()) > 1


def test_the_page_names_no_other_place(report: Path) -> None:
    text = report.read_text()
    assert "<script" not in text
    assert 'src="' not in text
    assert "url(http" not in text
    assert text.count("<svg") == len(FIGURES)


def test_figures_take_the_colours_of_the_page(report: Path) -> None:
    assert "var(--ink)" in report.read_text()
    assert "var(--ink)" not in report.with_name("link.svg").read_text()


def test_no_two_parts_of_the_page_have_one_name(report: Path) -> None:
    import re

    names = re.findall(r' id="([^"]+)"', report.read_text())
    assert len(names) == len(set(names))


def test_a_figure_without_data_any_more_is_taken_away(report: Path, tmp_path: Path) -> None:
    from msgspec import structs

    folder = tmp_path / "run"
    make_run(folder, ["http://a.test"], pages=12)
    facts = gather(folder)
    write_report(facts, tmp_path / "out")
    assert (tmp_path / "out" / "types.png").exists()
    page = write_report(structs.replace(facts, types=[]), tmp_path / "out")
    assert not (tmp_path / "out" / "types.png").exists()
    assert "by type" not in page.read_text()


def test_the_command_says_what_it_wrote_and_what_is_wrong(tmp_path: Path) -> None:
    def headway(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headway", "report", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    make_run(tmp_path / "run", ["http://a.test"], pages=3)
    done = headway(tmp_path / "run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 pages of 1 sites" in done.stdout
    wrong = headway(tmp_path / "nowhere")
    assert wrong.returncode == 5
    assert "there is no such folder" in wrong.stderr
    assert "Traceback" not in wrong.stderr
