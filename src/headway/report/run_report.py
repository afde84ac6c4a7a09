"""The report of a run written out: one page, and each figure as PNG, SVG and CSV beside it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from headway.errors import StoreError
from headway.report.run_canvas import write_figure
from headway.report.run_facts import RunFacts
from headway.report.run_figures import FIGURES
from headway.report.run_page import page
from headway.report.run_tables import TABLES, as_csv

PAGE = "report.html"


def write_report(facts: RunFacts, folder: Path) -> Path:
    """Returns the page. Figures that there is nothing for are left out, earlier ones of that name removed."""
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        drawings = {}
        for figure in FIGURES:
            if figure.has_data(facts):
                (folder / f"{figure.name}.csv").write_text(
                    as_csv(TABLES[figure.name](facts)), encoding="utf-8"
                )
                draw = partial(_draw, figure.draw, facts)
                drawings[figure.name] = write_figure(draw, figure.size(facts), folder, figure.name)
            else:
                for ending in ("png", "svg", "csv"):
                    (folder / f"{figure.name}.{ending}").unlink(missing_ok=True)
        fresh = folder / f".{PAGE}.new"
        fresh.write_text(page(facts, drawings), encoding="utf-8")
        fresh.replace(folder / PAGE)
    except OSError as problem:
        raise StoreError(f"{folder}: the report cannot be written: {problem.strerror}") from None
    return folder / PAGE


def _draw(draw: object, facts: RunFacts, figure: object) -> None:
    assert callable(draw)
    draw(figure, facts)
