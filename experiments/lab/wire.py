"""What crossed the wire, second by second, from a recording of interface counters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Recording:
    """A cumulative counter of bytes at known instants; in between it is interpolated."""

    def __init__(self, at_s: Floats, total_bytes: Floats) -> None:
        self.at_s = at_s
        self.total_bytes = total_bytes

    def total_at(self, at_s: Floats | float) -> Floats:
        return np.interp(at_s, self.at_s, self.total_bytes)

    def rates(self, begin_s: float, end_s: float, width_s: float = 1.0) -> Floats:
        """Bytes per second in each whole interval from `begin_s` on."""
        marks = begin_s + width_s * np.arange(int((end_s - begin_s) / width_s + 1e-6) + 1)
        return np.diff(self.total_at(marks)) / width_s

    def mean_rate(self, begin_s: float, end_s: float) -> float:
        return float(self.total_at(end_s) - self.total_at(begin_s)) / (end_s - begin_s)

    def worst_window(self, begin_s: float, end_s: float, width_s: float = 1.0) -> float:
        """The highest rate over any window of the width, wherever it begins."""
        begins = np.arange(begin_s, max(begin_s, end_s - width_s) + 1e-9, 0.01)
        return float(np.max(self.total_at(begins + width_s) - self.total_at(begins)) / width_s)


class Wire:
    """All that was recorded: what the crawler received and sent, and what each server sent."""

    def __init__(self, crawler: Path, servers: Path | None = None) -> None:
        self._crawler = crawler
        self._servers = servers

    @property
    def received(self) -> Recording:
        return _read(self._crawler)[0]

    @property
    def sent(self) -> Recording:
        return _read(self._crawler)[1]

    @property
    def by_server(self) -> list[Recording]:
        """One for each server, in order; empty on loopback."""
        return [] if self._servers is None else _read(self._servers)


def _read(path: Path) -> list[Recording]:
    whole_lines = path.read_text().rpartition("\n")[0].splitlines()
    columns = np.array([line.split() for line in whole_lines], dtype=np.float64)
    return [Recording(columns[:, 0], columns[:, number]) for number in range(1, columns.shape[1])]
