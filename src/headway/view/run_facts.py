"""The facts from which the report of a run is made, as plain values, read from tables and decision log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.model.command import Decision
from headway.store.reader import RunSums
from headway.store.run_folder import DECISIONS
from headway.units import format_rate
from headway.view.run import RunView, SiteState

Floats = NDArray[np.float64]


class SiteHistory(msgspec.Struct, frozen=True):
    """The history of one site: arrays of the same length, NaN where nothing was planned."""

    site: str
    at_s: Floats
    rate_bytes_per_s: Floats
    """The rate received until each instant, since the one before."""
    share_bytes_per_s: Floats
    forecast_from_s: Floats
    forecast_to_s: Floats
    end_s: float | None


class Link(msgspec.Struct, frozen=True):
    """The link, in steps of at least a second from `from_s` to `at_s`. Between two sessions there is none."""

    from_s: Floats
    at_s: Floats
    rate_bytes_per_s: Floats
    highest_bytes_per_s: Floats
    """The highest second of each step."""
    bound_bytes_per_s: Floats
    """Infinite without a bound."""
    predicted_bytes_per_s: Floats
    """NaN where nothing was planned."""
    step_s: float = 1.0
    bounds: Sequence[tuple[float, float]] = ()
    """Since when each bound held."""


class Turn(msgspec.Struct, frozen=True):
    """A period: an hour or a day (cobweb1999, table 2)."""

    from_s: float
    pages: int
    wire_bytes: int


class TypeCount(msgspec.Struct, frozen=True):
    media_type: str
    pages: int
    content_bytes: int
    wire_bytes: int


class OutcomeCount(msgspec.Struct, frozen=True):
    state: str
    kind: str
    pages: int


class Referenced(msgspec.Struct, frozen=True):
    url: str
    links: int
    is_fetched: bool


class Ranks(msgspec.Struct, frozen=True):
    """Fetched pages in the order of settling, and the PageRank of each in the web of the run."""

    settled_s: Floats
    rank: Floats
    depth: NDArray[np.int64]
    links: int


class Missed(msgspec.Struct, frozen=True):
    site: str
    deadline_s: float
    late_s: float | None
    """None: it has not ended yet."""
    sentence: str


class Mark(msgspec.Struct, frozen=True):
    """An order of a person, or a change of the bound."""

    at_s: float
    text: str


class RunFacts(msgspec.Struct, frozen=True):
    view: RunView
    link: Link
    busy: Mapping[str, tuple[float, int]]
    """For each site, how long it answered requests, and how many it answered."""
    turns: Sequence[Turn]
    turn_s: float
    types: Sequence[TypeCount]
    statuses: Sequence[tuple[int, str, int]]
    outcomes: Sequence[OutcomeCount]
    servers: int
    referenced: Sequence[Referenced]
    ranks: Ranks | None
    courses: Sequence[SiteHistory]
    """The sites with the most data."""
    missed: Sequence[Missed]
    marks: Sequence[Mark] = ()

    @property
    def seconds(self) -> float:
        """The length of the time axis of the figures."""
        return self.view.elapsed_s

    @property
    def sites(self) -> Sequence[SiteState]:
        return self.view.sites


_MOST_SITES = 400
_FEWEST_ROWS = 3


def histories_of(sums: RunSums, sites: Sequence[SiteState]) -> list[SiteHistory]:
    """The sites with the most data, if there is enough to draw."""
    largest = sorted(sites, key=lambda site: -site.wire_bytes)[:_MOST_SITES]
    courses = []
    for site in largest:
        table = np.array(
            [[np.nan if cell is None else cell for cell in each] for each in sums.course(site.number)]
        )
        if len(table) >= _FEWEST_ROWS:
            courses.append(_history(site, table))
    return courses


def _history(site: SiteState, table: Floats) -> SiteHistory:
    at, wire_bytes, _, _, share, from_at, to_at = table.T
    began_at = site.began_at
    return SiteHistory(
        site.site,
        at - began_at,
        _rates(at, wire_bytes),
        share,
        from_at - began_at,
        to_at - began_at,
        site.end_s,
    )


def _rates(at: Floats, wire_bytes: Floats) -> Floats:
    """Rows are further and further apart; each rate is the mean since the row before."""
    lengths, carried = np.diff(at, prepend=at[0] - 1.0), np.diff(wire_bytes, prepend=wire_bytes[0])
    rates: Floats = np.maximum(0.0, carried / np.maximum(lengths, 1e-6))
    return rates


_WORD = re.compile(rb'"decision":"(?:foresee-late"|order-|set-capacity")')
_BLOCK_BYTES = 8 * 1024 * 1024
_HEAD_BYTES = 80
"""The word is near the start of its line."""
_MOST_MARKS = 200


class LoggedDecisions(msgspec.Struct, frozen=True):
    """What a report needs from the decision log: orders, changes of the bound, and forecast delays.

    The log has a line for every page, so lines are selected before they are parsed.
    """

    marks: list[Mark]
    forecast_late_s: dict[str, float]
    """When each site was first forecast to be late, in seconds since the start of the crawl."""


def read_decisions(folder: Path, started_at: float) -> LoggedDecisions:
    found = LoggedDecisions([], {})
    decoder = msgspec.json.Decoder(Decision)
    try:
        with (folder / DECISIONS).open("rb") as file:
            for line in _interesting_lines(file):
                try:
                    _take_in(found, decoder.decode(line), started_at)
                except msgspec.DecodeError:
                    continue  # half a line, at the end of a log that is being written
    except OSError:
        pass
    return found


def _interesting_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Whole lines with one of the words at the start; the millions of others are not even split."""
    rest = b""
    while block := file.read(_BLOCK_BYTES):
        text = rest + block
        end = text.rfind(b"\n") + 1
        rest = text[end:]
        for found in _WORD.finditer(text, 0, end):
            begin = text.rfind(b"\n", 0, found.start()) + 1
            if found.start() - begin < _HEAD_BYTES:
                yield text[begin : text.index(b"\n", found.start())]


def _take_in(found: LoggedDecisions, decision: Decision, started_at: float) -> None:
    at_s = decision.at - started_at
    if decision.decision == "foresee-late":
        found.forecast_late_s.setdefault(decision.site, at_s)
    elif len(found.marks) < _MOST_MARKS:
        found.marks.append(Mark(at_s, _text(decision)))


def _text(decision: Decision) -> str:
    if decision.decision == "set-capacity":
        bound = decision.capacity_bytes_per_s
        return f"bound {format_rate(bound)}" if bound is not None else "no bound"
    name = decision.site.partition("://")[2]
    return f"{decision.decision.removeprefix('order-')} {name}".strip()
