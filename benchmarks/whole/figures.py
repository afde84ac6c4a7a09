"""The figures of RESULTS.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.whole.limits import Held
from benchmarks.whole.peers import Peers

OURS, THEIRS = "#1d6fb8", "#9aa5b1"


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    return plt, figure, axes


def _save(plt: Any, figure: Any, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def draw_peers(told: Peers, path: Path) -> None:
    plt, figure, axes = _figure(1, 2, (9.0, 0.5 + 0.38 * len(told.peers)))
    peers = told.peers[::-1]
    names = [peer.name for peer in peers]
    colours = [OURS if peer.name.startswith("headway") else THEIRS for peer in peers]
    for place, values, title in (
        (axes[0][0], [peer.pages_per_s for peer in peers], "pages a second"),
        (axes[0][1], [peer.cpu_ms_per_page for peer in peers], "CPU ms a page"),
    ):
        bars = place.barh(names, values, color=colours)
        place.bar_label(
            bars, [f"{value:,.0f}" if value >= 20 else f"{value:.2f}" for value in values], padding=3
        )
        place.set_title(title, loc="left", fontsize=10)
        place.spines[["top", "right", "bottom"]].set_visible(False)
        place.set_xticks([])
        place.margins(x=0.15)
    axes[0][1].set_yticklabels([])
    _save(plt, figure, path)


def draw_limits(told: list[Held], path: Path) -> None:
    columns = 3
    rows = -(-len(told) // columns)
    plt, figure, axes = _figure(rows, columns, (9.0, 2.1 * rows))
    for number, place in enumerate(axes.flat):
        if number >= len(told):
            place.set_visible(False)
            continue
        held = told[number]
        shares = [sample / held.bound_bytes_per_s for sample in held.samples]
        colour = OURS if "headway" in held.name else THEIRS
        place.bar(range(len(shares)), shares, width=1.0, color=colour)
        place.axhline(1.0, color="#c0392b", linewidth=1)
        place.set_title(held.name.partition(" (")[0], loc="left", fontsize=8)
        place.set_ylim(0, max(1.3, 1.05 * max(shares)))
        place.tick_params(labelsize=7)
        place.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("seconds", fontsize=8)
    figure.supylabel("of the bound", fontsize=8)
    _save(plt, figure, path)
