"""The fetcher managers that the figures compare. They decide and do no I/O, so that the lab and the
simulation run the very same ones."""

from __future__ import annotations

from typing import Protocol

from experiments.diligenti2004.queue import BOUND_BYTES_PER_S, Entry

from headway.policy.admission import Admission, NaiveController
from headway.policy.prediction import Prediction
from headway.units import BytesPerSecond, Instant

PRIOR_BYTES_PER_S = 40_000.0
FETCHERS = 50
"""Fetchers in the pool: enough that the manager, not the pool, decides."""


class Manager(Protocol):
    def start(self, now: Instant) -> list[Entry]:
        """Pages to begin now; they leave the queue."""
        ...

    def ended(self, now: Instant, entry: Entry, received_bytes: int, duration_s: float) -> None: ...

    def second(self, now: Instant, received_bytes: float) -> None:
        """A second is over, in which so much arrived."""
        ...

    def predicted_bytes_per_s(self) -> float: ...


class BoundedManager:
    """The paper's: predicted rates are summed up, and the queue is searched to a depth for what fits."""

    def __init__(self, queue: list[Entry], max_depth: int) -> None:
        self._queue = queue
        self._table = Prediction(BytesPerSecond(PRIOR_BYTES_PER_S))
        self._admission: Admission[int] = Admission(BytesPerSecond(BOUND_BYTES_PER_S), max_depth=max_depth)
        self._depth = max_depth

    def start(self, now: Instant) -> list[Entry]:
        window = self._queue[: self._depth]
        rates = [(entry.rank, self._table.predict(now, str(entry.server))) for entry in window]
        chosen = self._admission.admit(now, rates)
        for index in chosen:
            self._admission.started(*rates[index])
        for index in reversed(chosen):
            del self._queue[index]
        return [window[index] for index in chosen]

    def ended(self, now: Instant, entry: Entry, received_bytes: int, duration_s: float) -> None:
        self._admission.ended(entry.rank)
        if duration_s > 0:
            self._table.learn(now, str(entry.server), BytesPerSecond(received_bytes / duration_s))

    def second(self, now: Instant, received_bytes: float) -> None:
        """Nothing: this manager looks ahead, not back."""

    def predicted_bytes_per_s(self) -> float:
        return self._admission.committed_bytes_per_s


class NaiveManager:
    """Shkapenyuk and Suel's: a fetcher more in the next second, or one less. One told to stop finishes the
    page that it is at."""

    def __init__(self, queue: list[Entry]) -> None:
        self._queue = queue
        self._controller = NaiveController(BytesPerSecond(BOUND_BYTES_PER_S), most_fetchers=FETCHERS)
        self._at_work = 0

    def start(self, now: Instant) -> list[Entry]:
        count = max(0, self._controller.fetchers - self._at_work)
        begun, self._queue[:count] = self._queue[:count], []
        self._at_work += len(begun)
        return begun

    def ended(self, now: Instant, entry: Entry, received_bytes: int, duration_s: float) -> None:
        self._at_work -= 1

    def second(self, now: Instant, received_bytes: float) -> None:
        self._controller.measured(BytesPerSecond(received_bytes))

    def predicted_bytes_per_s(self) -> float:
        return 0.0
