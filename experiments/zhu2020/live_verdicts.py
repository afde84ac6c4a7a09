"""What the live crawls show beside the formulas: each site's end against its plan, and the paper's claims by
measured times. Figures 11 and 12 from the same crawls."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from headway.planning.estimate import fit_xi

from .downloads import COLOURS, Download
from .live import ONE_ALLOCATION, PAGE_BYTES, RTT_S, LiveRun, live_points
from .runs import Point
from .sites import NAMES
from .verdicts import Claim, Measure, max_end, sum_of_ends, sum_of_execution, tardiness

NOISE = 0.03
"""A measured time is no theorem: the pacer leaves a part of a bound, and a crawl has to start."""
NOISE_S = 10.0
"""On the paper's scale, about a second and a quarter of the lab's, of all sites together."""


def on_live(runs: Sequence[LiveRun], formulas: Sequence[Point]) -> Iterator[Claim]:
    points = live_points(runs)
    yield from _as_planned(runs)
    yield _use(runs)
    for figures, winner, measure, what in (
        (("2", "3", "4"), "m-maxt", max_end, "max end"),
        (("2", "3", "4"), "m-sumt", sum_of_ends, "sum of ends"),
        (("5", "6", "7"), "m-stet", tardiness, "time beyond deadlines"),
    ):
        for figure in figures:
            mine = [point for point in points if point.figure == figure]
            if mine:
                yield _least(figure, mine, measure, winner, what)
                yield _least(figure, mine, measure, "headway", what)
    fifty = [point for point in points if point.figure == "8-10"]
    if fifty:
        for figure, measure, what in (
            ("8", max_end, "max end"),
            ("9", sum_of_execution, "sum of execution"),
            ("10", tardiness, "time beyond deadlines"),
        ):
            yield _least(figure, fifty, measure, "headway", what)
    yield from _same_order(points, formulas)


def _as_planned(runs: Sequence[LiveRun]) -> Iterator[Claim]:
    """By policy: how far each site ended from its plan, as a part of the whole crawl's time."""
    by_policy: dict[str, list[float]] = {}
    unfinished: dict[str, int] = {}
    late: dict[str, int] = {}
    for one in runs:
        whole_s = max(site.planned_end_s for site in one.sites)
        for site, end_s in zip(one.sites, one.ends_s(), strict=True):
            policy = one.case.policy
            if math.isinf(end_s):
                unfinished[policy] = unfinished.get(policy, 0) + 1
                continue
            by_policy.setdefault(policy, []).append((end_s - site.planned_end_s) / whole_s)
            due_s = site.deadline_s or math.inf
            late[policy] = late.get(policy, 0) + (site.planned_end_s <= due_s * (1 + 1e-9) < end_s)
    for policy, apart in by_policy.items():
        size = np.abs(apart)
        lost = f"; {unfinished[policy]} did not end" if policy in unfinished else ""
        yield Claim(
            "live",
            f"{policy}: sites end when planned, within {NOISE:.0%} of the crawl (median) and all deadlines "
            "that the plan holds are met",
            f"{len(apart)} sites, median {np.median(apart):+.1%}, nine of ten within "
            f"{np.quantile(size, 0.9):.1%}, worst {size.max():.1%}; "
            f"{late.get(policy, 0)} late against the plan{lost}",
            "holds" if np.median(size) <= NOISE and not late.get(policy) and not lost else "does not hold",
        )


def _use(runs: Sequence[LiveRun]) -> Claim:
    used = [one.use_of_link for one in runs if one.use_of_link is not None]
    over = [one.most_over_bound for one in runs]
    return Claim(
        "live",
        "no second on the wire is more than 5% over the bound",
        f"{len(runs)} crawls, highest {max(over):+.1%}, median {np.median(over):+.1%}; use while all sites "
        f"were crawled {min(used, default=math.nan):.3f} to {max(used, default=math.nan):.3f}",
        "holds" if max(over) <= 0.05 else f"on {sum(each <= 0.05 for each in over)} of {len(over)}",
    )


def _least(figure: str, points: Sequence[Point], measure: Measure, winner: str, what: str) -> Claim:
    wins = count = 0
    worst = 0.0
    for x in sorted({point.x for point in points}):
        here = {point.policy: measure(point) for point in points if point.x == x}
        best = min(value for policy, value in here.items() if policy not in {winner, "headway"})
        room = NOISE_S if measure is tardiness else 0.0
        wins += here[winner] <= best * (1 + NOISE) + room
        worst = max(worst, here[winner] / best - 1 if best > 0 else 0.0)
        count += 1
    return Claim(
        figure,
        f"live: {winner} has the least {what}",
        f"{wins} of {count} crawls within the noise of {NOISE:.0%}"
        + (f"; at most {worst:+.1%} of the next best" if math.isfinite(worst) and worst > 0 else ""),
        "holds" if wins == count else f"holds on {wins / count:.0%}",
    )


def _same_order(points: Sequence[Point], formulas: Sequence[Point]) -> Iterator[Claim]:
    """Pairs of policies that the formulas tell apart by more than the noise come in the same order live."""
    by_formula = {(point.figure, point.x, point.policy): point for point in formulas}
    measures: dict[str, Measure] = {
        **dict.fromkeys(("2", "3", "4"), max_end),
        **dict.fromkeys(("5", "6", "7"), tardiness),
        "8-10": max_end,
    }
    for figure in dict.fromkeys(point.figure for point in points):
        measure, same, count = measures[figure], 0, 0
        for x in sorted({point.x for point in points if point.figure == figure}):
            here = [point for point in points if point.figure == figure and point.x == x]
            for one, other in itertools.combinations(here, 2):
                told = [by_formula.get((figure, x, each.policy)) for each in (one, other)]
                if told[0] is None or told[1] is None:
                    continue
                first, second = measure(told[0]), measure(told[1])
                if abs(first - second) <= NOISE * max(first, second) + (
                    NOISE_S if measure is tardiness else 0
                ):
                    continue
                count += 1
                same += (measure(one) < measure(other)) == (first < second)
        if count:
            yield Claim(
                figure,
                "live: policies come in the order of the formulas",
                f"{same} of {count} pairs that the formulas tell apart",
                "holds" if same == count else f"holds on {same / count:.0%}",
            )


def live_downloads(runs: Sequence[LiveRun]) -> list[Download]:
    """Each site of the crawls at constant rates: its bodies, its rate and its time, as in the lab."""
    downloads = []
    for one in runs:
        if one.case.policy not in ONE_ALLOCATION:
            continue
        for number, site in enumerate(one.sites):
            if site.end_s is not None and site.first_rate_bytes_per_s > 0:
                page, rtt = PAGE_BYTES[number % len(PAGE_BYTES)], RTT_S[number % len(RTT_S)]
                downloads.append(
                    Download(
                        f"{NAMES[number]}: pages of {page / 1e3:g} KB, {1e3 * rtt:g} ms away",
                        site.payload_bytes,
                        site.first_rate_bytes_per_s,
                        site.end_s * one.case.scale.time,
                    )
                )
    return downloads


def on_live_downloads(downloads: Sequence[Download]) -> Iterator[Claim]:
    """Eq 17 on whole sites of live crawls: t = xi D / v with a xi of each site's own."""
    for site in dict.fromkeys(each.site for each in downloads):
        mine = [each for each in downloads if each.site == site]
        xi = fit_xi([(each.data_bytes, each.rate_bytes_per_s, each.duration_s) for each in mine])
        apart = [each.duration_s * each.rate_bytes_per_s / (xi * each.data_bytes) - 1 for each in mine]
        middle = float(np.median(np.abs(apart)))
        yield Claim(
            "11-12",
            f"live: time is proportional to data and inverse to bandwidth ({site})",
            f"xi = {xi:.3f}; {len(mine)} crawls, {middle:.1%} off the line (median), "
            f"at most {max(map(abs, apart)):.1%}",
            "holds" if middle <= NOISE else f"within {middle:.1%}",
        )


def draw_live_downloads(downloads: Sequence[Download], path: Path) -> None:
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    by_rate, by_data = figure.subplots(1, 2)
    sites = list(dict.fromkeys(each.site for each in downloads))
    for colour, site in zip(itertools.cycle(COLOURS), sites, strict=False):
        mine = [each for each in downloads if each.site == site]
        xi = fit_xi([(each.data_bytes, each.rate_bytes_per_s, each.duration_s) for each in mine])
        rates = np.array([each.rate_bytes_per_s for each in mine])
        data = np.array([each.data_bytes for each in mine])
        times = np.array([each.duration_s for each in mine])
        by_rate.plot(rates / 1e3, 1e6 * times / data, "o", color=colour, markersize=4)
        line = np.linspace(rates.min(), rates.max(), 80)
        by_rate.plot(line / 1e3, 1e6 * xi / line, color=colour, linewidth=1, label=f"{site}; xi {xi:.2f}")
        by_data.plot(data / 1e6, times * rates / 1e6, "o", color=colour, markersize=4)
        ends = np.array([data.min(), data.max()])
        by_data.plot(ends / 1e6, xi * ends / 1e6, color=colour, linewidth=1)
    by_rate.set_title("Figure 11, live: time of a megabyte against bandwidth", fontsize=10)
    by_rate.set_xlabel("rate of the site (KB/s)")
    by_rate.set_ylabel("time (s/MB)")
    by_data.set_title("Figure 12, live: time at 1 MB/s against data", fontsize=10)
    by_data.set_xlabel("data of the site (MB)")
    by_data.set_ylabel("time x rate (MB)")
    for axes in (by_rate, by_data):
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


def write_sites(runs: Sequence[LiveRun], path: Path) -> None:
    """Planned and measured end of each site of each crawl, on the paper's scale."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(
            ("figure", "x", "policy", "objective", "site", "deadline_s", "planned_end_s", "start_s", "end_s")
        )
        for one in runs:
            case = one.case
            for site in one.sites:
                times = (site.deadline_s, site.planned_end_s, site.start_s, site.end_s)
                shown = ("" if time is None else f"{time:.2f}" for time in times)
                rows.writerow((case.figure, case.x, case.policy, case.objective, site.name, *shown))
