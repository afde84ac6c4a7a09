"""What the report of a run is made from: plain values, whoever gathered them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class SiteFacts(msgspec.Struct, frozen=True):
    """A site; times are seconds since the crawl was begun."""

    site: str
    done: int
    failed: int
    waiting: int
    wire_bytes: int
    start_s: float | None
    end_s: float | None
    """When its last page settled; None while it has pages to come."""
    deadline_s: float | None
    is_stopped: bool = False
    busy_s: float = 0.0
    """How long it was being asked, all answers together."""
    answers: int = 0

    @property
    def is_missed(self) -> bool:
        """Known only of a site that has ended; `RunFacts.missed` judges those that have not as well."""
        if self.deadline_s is None:
            return False
        return self.end_s is not None and (self.end_s > self.deadline_s or not self.done)


class Course(msgspec.Struct, frozen=True):
    """How one site went on: arrays of the same length, NaN where nothing was planned."""

    site: str
    at_s: Floats
    wire_bytes: Floats
    share_bytes_per_s: Floats
    forecast_from_s: Floats
    forecast_to_s: Floats
    end_s: float | None


class Link(msgspec.Struct, frozen=True):
    """The link, in steps of at least a second."""

    at_s: Floats
    rate_bytes_per_s: Floats
    highest_bytes_per_s: Floats
    """Of a step's seconds, the highest."""
    bound_bytes_per_s: Floats
    """Infinite where there was none."""
    predicted_bytes_per_s: Floats
    """NaN where nothing was planned."""
    step_s: float = 1.0


class LinkSums(msgspec.Struct, frozen=True):
    mean_bytes_per_s: float = 0.0
    highest_bytes_per_s: float = 0.0
    use_of_bound: float | None = None
    most_over_bound: float | None = None


class Turn(msgspec.Struct, frozen=True):
    """A length of time: an hour, a day (cobweb1999, table 2)."""

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
    """Something that a person ordered, or a change of the bound."""

    at_s: float
    text: str


class RunFacts(msgspec.Struct, frozen=True):
    name: str
    state: str
    """ "running", "finished" or "stopped"."""
    started_at: float
    seconds: float
    sites: Sequence[SiteFacts]
    link: Link
    link_sums: LinkSums
    turns: Sequence[Turn]
    turn_s: float
    types: Sequence[TypeCount]
    statuses: Sequence[tuple[int, str, int]]
    outcomes: Sequence[OutcomeCount]
    servers: int
    referenced: Sequence[Referenced]
    ranks: Ranks | None
    courses: Sequence[Course]
    """Of some sites, those with the most data first."""
    missed: Sequence[Missed]
    marks: Sequence[Mark] = ()

    @property
    def done(self) -> int:
        return sum(site.done for site in self.sites)

    @property
    def failed(self) -> int:
        return sum(site.failed for site in self.sites)

    @property
    def waiting(self) -> int:
        return sum(site.waiting for site in self.sites)

    @property
    def wire_bytes(self) -> int:
        return sum(site.wire_bytes for site in self.sites)
