"""Puts what was measured into the README, between two marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

README = Path(__file__).with_name("README.md")


def put(name: str, lines: Iterable[str], path: Path = README) -> None:
    """Replace what stands between `<!-- name -->` and `<!-- /name -->`."""
    text = path.read_text()
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if begin not in text or end not in text:
        raise SystemExit(f"{path.name} has no place for {name}: {begin.strip()} and {end}")
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    path.write_text(before + begin + "".join(f"{line}\n" for line in lines) + end + after)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]
