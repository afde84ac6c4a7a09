"""The claims of section 5, one by one: on how many points each holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec

from .runs import Point

Measure = Callable[[Point], float]
NEARLY = 1e-6
SEARCH_NOISE = 0.02
"""GA and DE stop near the optimum, not at it; a step against the trend of up to this is theirs."""


class Claim(msgspec.Struct, frozen=True):
    figure: str
    text: str
    found: str
    verdict: str


def max_end(point: Point) -> float:
    return point.max_end_s


def sum_of_ends(point: Point) -> float:
    return point.sum_of_ends_s


def sum_of_execution(point: Point) -> float:
    return point.sum_of_execution_s


def tardiness(point: Point) -> float:
    return point.tardiness_s


def on_sufficient(points: Sequence[Point]) -> Iterator[Claim]:
    for figure, trend, word in (("2", -1, "bandwidth"), ("3", 1, "data"), ("4", 1, "tightness")):
        mine = [point for point in points if point.figure == figure]
        for measure, what, winner in ((max_end, "max end", "m-maxt"), (sum_of_ends, "sum of ends", "m-sumt")):
            yield _monotone(figure, mine, measure, trend, f"{what} of every method", word)
            yield _least(figure, mine, measure, winner, f"{winner} has the least {what}")
            yield _ordered(figure, mine, measure, ("ga", "de"), ("probandwidth", "random"), what)
            yield _never_worse(figure, mine, measure, what)
        if figure == "4":
            yield _steeper(mine)


def on_insufficient(points: Sequence[Point]) -> Iterator[Claim]:
    for figure, trend, word in (("5", -1, "bandwidth"), ("6", 1, "data"), ("7", 1, "tightness")):
        mine = [point for point in points if point.figure == figure]
        yield _monotone(figure, mine, tardiness, trend, "time beyond deadlines of every method", word)
        yield _least(figure, mine, tardiness, "m-stet", "m-stet has the least time beyond deadlines")
        yield _ordered(
            figure, mine, tardiness, ("ga", "de"), ("probandwidth", "prodataamount"), "time beyond deadlines"
        )
        yield _never_worse(figure, mine, tardiness, "time beyond deadlines")


def on_scheduling(by_way: dict[str, list[list[Point]]]) -> Iterator[Claim]:
    """Figures 8 to 10 are no theorems: they hang on how deadlines fall, so each way is judged by itself."""
    for way, draws in by_way.items():
        points = [point for draw in draws for point in draw]
        mark = f"deadlines {way}"
        for figure, measure, winner in (
            ("8", lambda p: p.max_end_s * (1 + p.tardiness_s), "realloc-maxt"),
            ("9", lambda p: p.sum_of_execution_s * (1 + p.tardiness_by_sum_s), "realloc-sumt"),
            ("10", tardiness, "realloc-sumt"),
        ):
            rivals = ("realloc-probandwidth", "alloconce", "realloc-prodataamount")
            yield _share_of_wins(figure, points, measure, winner, rivals, mark)
        yield _monotone(
            "10", points, tardiness, -1, f"time beyond deadlines of every method ({mark})", "bandwidth"
        )
        yield _monotone(
            "10", points, lambda p: p.late, -1, f"late sites of every method ({mark})", "bandwidth"
        )
        for measure, what in (
            (max_end, "max end"),
            (sum_of_execution, "sum of execution"),
            (tardiness, "time beyond deadlines"),
            (lambda p: float(p.late), "late sites"),
        ):
            yield _never_worse("8-10", points, measure, f"{what}, {mark}")


def report(claims: Sequence[Claim], conditions: str) -> str:
    held = sum(claim.verdict == "holds" for claim in claims)
    lines = [
        "# zhu2020: verdicts",
        "",
        conditions,
        "",
        f"{held} of {len(claims)} claims hold on every point.",
        "",
        "| figure | claim | found | verdict |",
        "|---|---|---|---|",
    ]
    lines += [f"| {claim.figure} | {claim.text} | {claim.found} | {claim.verdict} |" for claim in claims]
    return "\n".join(lines) + "\n"


def _by_x(points: Sequence[Point]) -> Iterator[dict[str, Point]]:
    """Each place of the sweep (and each draw) with all its policies."""
    group: dict[str, Point] = {}
    for point in points:
        if point.policy in group:
            yield group
            group = {}
        group[point.policy] = point
    yield group


def _verdict(count: int, total: int) -> str:
    return "holds" if count == total else f"holds on {count / total:.0%}"


def _least(figure: str, points: Sequence[Point], measure: Measure, winner: str, text: str) -> Claim:
    groups = list(_by_x(points))
    wins = margin = 0
    for group in groups:
        rivals = [measure(point) for name, point in group.items() if name not in {winner, "headway"}]
        wins += measure(group[winner]) <= min(rivals) * (1 + NEARLY) + NEARLY
        margin += measure(group[winner]) < min(rivals) * (1 - 1e-3)
    found = f"{wins} of {len(groups)} points, by more than 0.1% on {margin}"
    return Claim(figure, text, found, _verdict(wins, len(groups)))


def _ordered(
    figure: str,
    points: Sequence[Point],
    measure: Measure,
    better: Sequence[str],
    worse: Sequence[str],
    what: str,
) -> Claim:
    groups = list(_by_x(points))
    wins = sum(
        max(measure(group[name]) for name in better)
        <= min(measure(group[name]) for name in worse) * (1 + NEARLY)
        for group in groups
    )
    text = f"{' and '.join(better)} do better than {' and '.join(worse)} on {what}"
    return Claim(figure, text, f"{wins} of {len(groups)} points", _verdict(wins, len(groups)))


def _monotone(
    figure: str, points: Sequence[Point], measure: Measure, trend: int, what: str, factor: str
) -> Claim:
    steps = against = 0
    worst = 0.0
    lines: dict[str, list[list[Point]]] = {}
    for point in points:
        runs = lines.setdefault(point.policy, [[]])
        if runs[-1] and point.x <= runs[-1][-1].x:
            runs.append([])
        runs[-1].append(point)
    culprits: set[str] = set()
    for name, runs in lines.items():
        noise = SEARCH_NOISE if name in {"ga", "de"} else NEARLY
        for run in runs:
            for before, after in pairwise(run):
                wrong = -trend * (measure(after) - measure(before))
                steps += 1
                if wrong > noise * max(abs(measure(before)), 1e-3):
                    against += 1
                    culprits.add(name)
                    worst = max(worst, wrong)
    word = "falls" if trend < 0 else "grows"
    found = f"{steps - against} of {steps} steps"
    if against:
        found += f"; against it: {', '.join(sorted(culprits))}, by up to {worst:.3g}"
    return Claim(figure, f"{what} {word} with {factor}", found, _verdict(steps - against, steps))


def _share_of_wins(
    figure: str, points: Sequence[Point], measure: Measure, winner: str, rivals: Sequence[str], mark: str
) -> Claim:
    groups = list(_by_x(points))
    wins = sum(
        measure(group[winner]) <= min(measure(group[name]) for name in rivals) * (1 + NEARLY)
        for group in groups
    )
    return Claim(
        figure,
        f"{winner} outperforms its benchmarks ({mark})",
        f"{wins} of {len(groups)} points",
        _verdict(wins, len(groups)),
    )


def _never_worse(figure: str, points: Sequence[Point], measure: Measure, what: str) -> Claim:
    groups = list(_by_x(points))
    wins = 0
    ours = theirs = 0.0
    for group in groups:
        best = min(
            measure(point) for name, point in group.items() if name != "headway" and _keeps(group, name)
        )
        wins += measure(group["headway"]) <= best * (1 + NEARLY) + NEARLY
        ours += measure(group["headway"]) / len(groups)
        theirs += best / len(groups)
    found = f"{wins} of {len(groups)} points; mean {ours:.5g} against {theirs:.5g} of the best of the paper"
    return Claim(figure, f"**headway** is never worse on {what}", found, _verdict(wins, len(groups)))


def _keeps(group: dict[str, Point], name: str) -> bool:
    """A method that misses more deadlines does not count as better on time."""
    return group[name].tardiness_s >= group["headway"].tardiness_s - NEARLY


def _steeper(points: Sequence[Point]) -> Claim:
    line = {point.x: point.max_end_s for point in points if point.policy == "m-maxt"}
    before = (line[965.0] - line[850.0]) / (965 - 850)
    after = (line[995.0] - line[965.0]) / (995 - 965)
    return Claim(
        "4",
        "the increase is more evident beyond a tightness of 965",
        f"m-maxt's max end: {before:.2f} s per kbit/s before, {after:.2f} after",
        "holds" if after > 2 * before else "does not hold",
    )
