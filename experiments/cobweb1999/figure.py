"""Fig 3 drawn: documents a minute against collectors, beside the straight line through the first point."""

from __future__ import annotations

from pathlib import Path

from experiments.cobweb1999.collectors import Point


def draw(points: list[Point], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    counts = [point.collectors for point in points]
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    axes.plot(counts, [point.docs_per_min for point in points], "o-", label="measured")
    slope = points[0].docs_per_min / points[0].collectors
    axes.plot(counts, [slope * count for count in counts], "--", color="grey", label="linear")
    axes.set_xlabel("simultaneous collectors")
    axes.set_ylabel("documents a minute")
    axes.set_xlim(0)
    axes.set_ylim(0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
