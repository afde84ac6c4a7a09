"""From the decision log, what a report tells: orders, changes of the bound, and delays that were foreseen.

The log has a line for every page, so lines are sorted out before they are read.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from headway.crawl.decisions import Decision
from headway.report.run_facts import Mark
from headway.store.runfolder import DECISIONS
from headway.units import format_rate

_WORDS = (b'"foresee-late"', b'"order-', b'"set-capacity"')
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
            for line in file:
                head = line[:_HEAD_BYTES]
                if not any(word in head for word in _WORDS):
                    continue
                try:
                    _take_in(told, decoder.decode(line), started_at)
                except msgspec.DecodeError:
                    continue  # half a line, at the end of a log that is being written
    except OSError:
        pass
    return told


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
