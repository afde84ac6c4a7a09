"""`make bench NAME=cost`: hostile inputs by grammar for every parser, and what the costliest of them cost.

Options: --seconds N looks for costlier inputs for so long, for each parser (default 5; 0: those of the corpus
only); --target NAME (repeatable); --keep adds what was found to the corpus, which the tests run; --seed.
Exit code 1: an input costs more than in proportion to its length.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

import msgspec
from rich.console import Console
from rich.table import Table

from .measuring import Cost, Target, cost_of, judged, problem_of, seconds_of
from .recipes import Recipe, changed, drawn, read_corpus, write_corpus
from .targets import TARGETS

_KEPT = 6
"""Recipes of each parser: the costliest, and the steepest."""
_POPULATION = 24


class Found(msgspec.Struct):
    recipe: Recipe
    cost: Cost


def look(target: Target, known: list[Recipe], seconds: float, seed: int) -> list[Found]:
    """The costliest recipes after a search, costliest first."""
    numbers = random.Random(seed)
    until = time.monotonic() + seconds
    length = target.length // 4
    best: dict[Recipe, float] = {}

    def try_out(recipe: Recipe) -> None:
        if recipe not in best:
            octets = recipe.make(length)
            best[recipe] = seconds_of(target.run, octets, 1) / max(1, len(octets))

    for recipe in known:
        try_out(recipe)
    while time.monotonic() < until:
        ranked = sorted(best, key=lambda recipe: -best[recipe])[:_POPULATION]
        is_new = len(ranked) < _POPULATION or numbers.random() < 0.4
        try_out(
            drawn(numbers, target.words) if is_new else changed(numbers, numbers.choice(ranked), target.words)
        )
    ranked = sorted(best, key=lambda recipe: -best[recipe])[: 2 * _KEPT]
    found = [Found(recipe, cost_of(target, recipe)) for recipe in dict.fromkeys([*ranked, *known])]
    return sorted(found, key=lambda each: -each.cost.steps)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.cost", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--target", action="append", choices=list(TARGETS))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    console = Console(width=150)
    corpus = read_corpus()
    problems: list[str] = []
    table = Table(title="The costliest input found for each parser", title_justify="left")
    for heading in ("parser", "input", "bytes", "ms", "steps a byte", "slope", "peak MB"):
        table.add_column(heading, justify="left" if heading in {"parser", "input"} else "right")
    for name in options.target or TARGETS:
        target, known = TARGETS[name], corpus.get(name, [])
        found = look(target, known, options.seconds, options.seed)
        steepest = max(found, key=lambda each: each.cost.slope or 0.0, default=None)
        for each in found:
            if judged(target, each.cost) and (problem := problem_of(target, each.recipe)):
                problems.append(f"{name}: {problem}")
                console.print(problems[-1], style="red", markup=False)
        for each in dict.fromkeys(map(id, filter(None, (*found[:1], steepest)))):
            one = next(other for other in found if id(other) == each)
            cost = one.cost
            slope = "-" if cost.slope is None else f"{cost.slope:.2f}"
            figures = (f"{cost.length:,}", f"{1e3 * cost.seconds:.1f}", f"{cost.steps:.1f}", slope)
            table.add_row(name, str(one.recipe), *figures, f"{cost.peak_bytes / 1e6:.1f}")
        corpus[name] = list(dict.fromkeys([*known, *(each.recipe for each in found[: _KEPT - 1])]))
    console.print(table, markup=False)
    if options.keep:
        write_corpus(corpus)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
