"""What all figures begin and end with: an empty one, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.errors import HeadwayError


def new_figure(width: float, height: float) -> Any:
    """In inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as problem:
        raise HeadwayError(
            "plots need matplotlib, which is not installed: pip install 'headway[plot]'"
        ) from problem
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: Path, dpi: int = 144) -> None:
    """As PNG, SVG or PDF, by the file's ending."""
    if not path.suffix:
        raise HeadwayError(f"cannot write the plot {path}: end its name in .png, .svg or .pdf")
    try:
        figure.savefig(path, dpi=dpi)
    except OSError as problem:
        raise HeadwayError(f"cannot write the plot {path}: {problem.strerror or problem}") from problem
    except ValueError as problem:
        raise HeadwayError(f"cannot write the plot {path}: {problem}") from problem
