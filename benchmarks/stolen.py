"""What the host of a virtual machine kept of the processors' time while something was measured.

The kernel counts it ("steal"): a processor had work and did not run. A figure that was measured while much
of it went away says something of the neighbours, not of headway.
"""

from __future__ import annotations

from pathlib import Path

QUIET = 0.05
"""A run is disturbed when more than this share of all processors' time was kept from it."""
_STEAL = 7  # of the numbers in the first line of /proc/stat: user nice system idle iowait irq softirq steal
_COUNTED = 8  # guest time, behind these, is in user time already


class Stolen:
    """From its making on."""

    def __init__(self) -> None:
        self._begun = _ticks()

    def share(self) -> float:
        """0 also where the system does not tell."""
        passed = [now - then for now, then in zip(_ticks(), self._begun, strict=True)]
        return passed[_STEAL] / sum(passed) if passed and sum(passed) else 0.0


def _ticks() -> list[int]:
    try:
        first = Path("/proc/stat").read_text().split("\n", 1)[0]
    except OSError:
        return []
    return [int(number) for number in first.split()[1 : 1 + _COUNTED]]
