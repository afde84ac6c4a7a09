"""The three figures, drawn as the paper has them, with headway's pacer beside."""

from __future__ import annotations

import csv
from pathlib import Path

from experiments.diligenti2004.live import LiveOutcome
from experiments.diligenti2004.outcome import Outcome
from experiments.diligenti2004.queue import BOUND_BYTES_PER_S
from matplotlib.axes import Axes
from matplotlib.figure import Figure

DRAWN_S = 40


def draw(outcomes: dict[str, Outcome], where: str, folder: Path) -> None:
    deep, shallow, naive, ours = (outcomes[name] for name in ("maxd 6", "maxd 2", "naive", "headway"))
    figure = Figure(figsize=(8, 9.5), layout="constrained")
    first, second, third = figure.subplots(3, 1, sharex=True, sharey=True)
    _line(first, deep.measured, "measured", "-", "tab:blue")
    _line(first, deep.predicted, "predicted", ":", "tab:blue")
    first.set_title("Figure 1: measured and predicted bandwidth, maxd 6")
    _line(second, deep.measured, "maxd 6", "-", "tab:blue")
    _line(second, shallow.measured, "maxd 2", ":", "tab:orange")
    second.set_title("Figure 2: depth of the search")
    _line(third, naive.measured, "naive controller", "-", "tab:red")
    third.set_title("Figure 3: start a fetcher below the bound, stop one above")
    for axes in (first, second, third):
        paced = "headway, paced" if where == "lab" else "an ideal pacer"
        _line(axes, ours.measured, paced, "-", "tab:green")
        axes.axhline(BOUND_BYTES_PER_S / 1000, color="black", linewidth=0.8, label="bound")
        axes.set_ylabel("KB/s")
        axes.set_ylim(0, 1.2 * max(max(outcome.measured[:DRAWN_S]) for outcome in outcomes.values()) / 1000)
        axes.legend(loc="upper right", fontsize=8, ncols=4)
    third.set_xlabel(f"seconds ({where})")
    figure.savefig(folder / f"figures-{where}.png", dpi=110)


def draw_live(
    deep: LiveOutcome, shallow: LiveOutcome, alone: LiveOutcome, naive: Outcome, folder: Path
) -> None:
    figure = Figure(figsize=(8, 9.5), layout="constrained")
    first, second, third = figure.subplots(3, 1, sharex=True)
    _line(first, deep.measured, "measured", "-", "tab:blue")
    _line(first, deep.predicted, "predicted (CB)", ":", "tab:blue")
    first.set_title("Figure 1: measured and predicted bandwidth, headway with admission_depth = 6")
    _line(second, deep.measured, "maxd 6", "-", "tab:blue")
    _line(second, shallow.measured, "maxd 2", ":", "tab:orange")
    _line(second, alone.measured, "without admission", "-", "tab:green")
    second.set_title("Figure 2: depth of the search")
    _line(third, naive.measured, "naive controller", "-", "tab:red")
    _line(third, deep.measured, "maxd 6", "-", "tab:blue")
    third.set_title("Figure 3: start a fetcher below the bound, stop one above")
    for axes in (first, second, third):
        axes.axhline(BOUND_BYTES_PER_S / 1000, color="black", linewidth=0.8, label="bound")
        axes.set_ylabel("KB/s")
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower right", fontsize=8, ncols=4)
    third.set_xlabel("seconds (live crawls in the lab)")
    figure.savefig(folder / "figures-live.png", dpi=110)


def _line(axes: Axes, values: list[float], label: str, style: str, colour: str) -> None:
    drawn = [value / 1000 for value in values[:DRAWN_S]]
    axes.plot(range(1, len(drawn) + 1), drawn, style, label=label, color=colour, lw=1.4)


def write_samples(outcomes: list[Outcome], path: Path) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["where", "manager", "second", "measured_bytes_per_s", "predicted_bytes_per_s"])
        for outcome in outcomes:
            for second, measured in enumerate(outcome.measured):
                predicted = round(outcome.predicted[second]) if second < len(outcome.predicted) else ""
                rows.writerow([outcome.where, outcome.manager, second + 1, round(measured), predicted])
