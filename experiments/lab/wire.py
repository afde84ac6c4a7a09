"""What crossed the wire, second by second, from a recording of the interface's counters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Recording:
    """Cumulative counters at known instants; in between they are interpolated."""

    def __init__(self, at_s: Floats, received_bytes: Floats, sent_bytes: Floats) -> None:
        self.at_s = at_s
        self.received_bytes = received_bytes
        self.sent_bytes = sent_bytes

    @classmethod
    def read(cls, path: Path) -> Recording:
        whole_lines = path.read_text().rpartition("\n")[0].splitlines()
        columns = np.array([line.split() for line in whole_lines], dtype=np.float64).reshape(-1, 3)
        return cls(columns[:, 0], columns[:, 1], columns[:, 2])

    def rates(self, begin_s: float, end_s: float, width_s: float = 1.0) -> Floats:
        """Bytes per second received in each whole interval from `begin_s` on."""
        marks = begin_s + width_s * np.arange(int((end_s - begin_s) / width_s + 1e-6) + 1)
        return np.diff(np.interp(marks, self.at_s, self.received_bytes)) / width_s

    def worst_window(self, begin_s: float, end_s: float, width_s: float = 1.0) -> float:
        """The highest rate over any window of the width, wherever it begins."""
        begins = np.arange(begin_s, max(begin_s, end_s - width_s) + 1e-9, 0.01)
        received = np.interp(begins + width_s, self.at_s, self.received_bytes)
        return float(np.max(received - np.interp(begins, self.at_s, self.received_bytes)) / width_s)
