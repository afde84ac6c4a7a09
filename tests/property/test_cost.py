"""No input costs more than in proportion to its length; a longer search: `python -m benchmarks.cost`."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from msgspec import structs

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.cost.measuring import Target, problem_of  # noqa: E402
from benchmarks.cost.recipes import Recipe, drawn, read_corpus  # noqa: E402
from benchmarks.cost.targets import TARGETS  # noqa: E402

LONGEST = 32_768
DRAWN = 3
CORPUS = read_corpus()


@pytest.mark.parametrize("name", TARGETS)
def test_time_and_memory_are_in_proportion_to_the_length(name: str) -> None:
    target = TARGETS[name]
    target = structs.replace(target, length=min(target.length, LONGEST))
    numbers = random.Random(name)
    recipes = [*CORPUS[name], *(drawn(numbers, target.words) for _ in range(DRAWN))]
    assert [problem for recipe in recipes if (problem := problem_of(target, recipe))] == []


def _quadratic(octets: bytes) -> int:
    return sum(octets.count(b"x", begin) for begin in range(0, len(octets), 64))


def _hoarding(octets: bytes) -> None:
    [str(octet) * 100 for octet in octets]


def test_a_parser_that_takes_quadratic_time_is_found() -> None:
    assert "power" in problem_of(Target(_quadratic, (b"a",), 262_144), Recipe("a"))


def test_a_parser_that_takes_much_memory_is_found() -> None:
    assert "memory" in problem_of(Target(_hoarding, (b"a",)), Recipe("a"))


def test_a_recipe_makes_an_input_of_about_any_length() -> None:
    for recipe in (
        Recipe("ab"),
        Recipe("<\xa4>", "x", "</>", "y"),
        *(each for of in CORPUS.values() for each in of),
    ):
        assert 0.3 < len(recipe.make(10_000)) / 10_000 < 2
