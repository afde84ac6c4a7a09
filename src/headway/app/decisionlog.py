"""From the decision log, what a report tells: orders, changes of the bound, and delays that were foreseen.

The log has a line for every page, so lines are sorted out before they are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from headway.model.decision import Decision
from headway.report.run_facts import Mark
from headway.store.runfolder import DECISIONS
from headway.units import format_rate

_WORD = re.compile(rb'"decision":"(?:foresee-late"|order-|set-capacity")')
_BLOCK_BYTES = 8 * 1024 * 1024
_HEAD_BYTES = 80
"""The word stands near the front of its line."""
_MOST_MARKS = 200


class LoggedDecisions(msgspec.Struct, frozen=True):
    marks: list[Mark]
    foreseen_s: dict[str, float]
    """When each site was first said to be late, in seconds since the crawl was begun."""


def read_decisions(folder: Path, started_at: float) -> LoggedDecisions:
    told = LoggedDecisions([], {})
    decoder = msgspec.json.Decoder(Decision)
    try:
        with (folder / DECISIONS).open("rb") as file:
            for line in _interesting_lines(file):
                try:
                    _take_in(told, decoder.decode(line), started_at)
                except msgspec.DecodeError:
                    continue  # half a line, at the end of a log that is being written
    except OSError:
        pass
    return told


def _interesting_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Whole lines with one of the words at the front; the millions of others are not even cut apart."""
    rest = b""
    while block := file.read(_BLOCK_BYTES):
        text = rest + block
        end = text.rfind(b"\n") + 1
        rest = text[end:]
        for found in _WORD.finditer(text, 0, end):
            begin = text.rfind(b"\n", 0, found.start()) + 1
            if found.start() - begin < _HEAD_BYTES:
                yield text[begin : text.index(b"\n", found.start())]


def _take_in(told: LoggedDecisions, decision: Decision, started_at: float) -> None:
    at_s = decision.at - started_at
    if decision.decision == "foresee-late":
        told.foreseen_s.setdefault(decision.site, at_s)
    elif len(told.marks) < _MOST_MARKS:
        told.marks.append(Mark(at_s, _text(decision)))


def _text(decision: Decision) -> str:
    if decision.decision == "set-capacity":
        bound = decision.capacity_bytes_per_s
        return f"bound {format_rate(bound)}" if bound is not None else "no bound"
    name = decision.site.partition("://")[2]
    return f"{decision.decision.removeprefix('order-')} {name}".strip()
