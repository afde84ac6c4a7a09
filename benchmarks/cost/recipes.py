"""Hostile inputs by grammar: a recipe says what is repeated, so that it makes an input of any length.

An input is `before`, then `unit` and `nested` so often that the length is reached (all units first, as in
tags that are opened and then closed), then `after`. In a unit the sign `COUNT` stands for the number of the
repetition, so that names, URLs and values differ.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

CORPUS = Path(__file__).with_name("corpus.json")
COUNT = b"\xa4"
_MOST_OF_A_UNIT = 4


class Recipe(msgspec.Struct, frozen=True, omit_defaults=True):
    """Texts are octets, each written as the character with its number."""

    unit: str
    before: str = ""
    nested: str = ""
    after: str = ""

    def make(self, length: int) -> bytes:
        before, unit, nested, after = (
            part.encode("latin-1") for part in (self.before, self.unit, self.nested, self.after)
        )
        each = len(unit) + len(nested) + (4 if COUNT in unit else 0)
        times = max(1, (length - len(before) - len(after)) // max(1, each))
        if COUNT in unit:
            units = b"".join([unit.replace(COUNT, b"%d" % number) for number in range(times)])
        else:
            units = unit * times
        return before + units + nested * times + after

    def __str__(self) -> str:
        nested = f" {_short(self.nested)} x n" if self.nested else ""
        before, after = _short(self.before), _short(self.after)
        return " ".join(filter(None, (before, f"{_short(self.unit)} x n{nested}", after)))


def _short(text: str) -> str:
    shown = ascii(text)[1:-1]
    return shown if len(shown) <= 40 else f"{shown[:24]}..{shown[-12:]}"


def drawn(random_numbers: random.Random, words: Sequence[bytes]) -> Recipe:
    """A recipe from the words of a grammar."""

    def some(least: int, most: int) -> str:
        count = random_numbers.randint(least, most)
        return b"".join(random_numbers.choice(words) for _ in range(count)).decode("latin-1")

    return Recipe(
        some(1, random_numbers.randint(1, _MOST_OF_A_UNIT)),
        some(0, 2),
        some(0, 1) if random_numbers.random() < 0.3 else "",
        some(0, 2),
    )


def changed(random_numbers: random.Random, recipe: Recipe, words: Sequence[bytes]) -> Recipe:
    """A recipe with one part drawn again, or with a word added to it."""
    name = random_numbers.choice(("unit", "before", "nested", "after"))
    word = random_numbers.choice(words).decode("latin-1")
    old: str = getattr(recipe, name)
    new = random_numbers.choice((word, old + word, word + old, old[: len(old) // 2], ""))
    return msgspec.structs.replace(recipe, **{name: new or (word if name == "unit" else "")})


def read_corpus() -> dict[str, list[Recipe]]:
    """The costliest recipes that were found for each parser, and those that once took quadratic time."""
    return msgspec.json.decode(CORPUS.read_bytes(), type=dict[str, list[Recipe]]) if CORPUS.exists() else {}


def write_corpus(corpus: dict[str, list[Recipe]]) -> None:
    CORPUS.write_bytes(msgspec.json.format(msgspec.json.encode(corpus), indent=1) + b"\n")
