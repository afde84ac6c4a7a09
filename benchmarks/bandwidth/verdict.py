"""From what the wire carried to the figures of the table: use, over, and the rates of the sites."""

from __future__ import annotations

import msgspec
import numpy as np
from benchmarks.bandwidth.drive import MEASURED_FROM_S, Drive, Measured
from benchmarks.bandwidth.settings import Setting

SETTLING_S = 1.0
"""Within this a change of bound or rates must have taken effect."""
SITE_WINDOW_S = 10.0


class Verdict(msgspec.Struct, frozen=True):
    use: float
    over: float
    worst_window: float | None
    """As `over`, but over any second, wherever it begins; where the bound is one throughout."""
    worst_site: float | None
    """The largest deviation of a site from its allocation over ten seconds, where all sites have enough."""
    cpu_share: float
    pages: int


def met(setting: Setting, verdict: Verdict) -> str:
    if setting.least_use is None or setting.most_over is None:
        return "reported"
    good = verdict.use >= setting.least_use and verdict.over <= setting.most_over
    return "met" if good and (verdict.worst_site or 0.0) <= 0.05 else "MISSED"


def judge(
    drive: Drive, measured: Measured, *, check_sites: bool, most_bytes_per_s: float = np.inf
) -> Verdict:
    """`most_bytes_per_s`: more than this the crawler could not use, whatever the bound."""
    samples = np.array(measured.samples)
    bounds = _bound_of_each_second(drive, len(samples))
    steady = np.isfinite(bounds)
    first = int(MEASURED_FROM_S)
    use = float(
        np.sum(samples[first:][steady[first:]])
        / np.sum(np.minimum(bounds[first:][steady[first:]], most_bytes_per_s))
    )
    first_bound = drive.phases[0].capacity_bytes_per_s
    constant = len({phase.capacity_bytes_per_s for phase in drive.phases}) == 1
    return Verdict(
        use=use,
        over=float(np.max(samples[steady] / bounds[steady])) - 1.0,
        worst_window=measured.worst_window_bytes_per_s / first_bound - 1.0 if constant else None,
        worst_site=_worst_site(drive, measured) if check_sites and measured.by_site else None,
        cpu_share=measured.cpu_s / drive.seconds,
        pages=measured.pages,
    )


def _bound_of_each_second(drive: Drive, seconds: int) -> np.ndarray:
    """Not a number for the second in which the bound changes: there it has two values."""
    bounds = np.full(seconds, drive.phases[0].capacity_bytes_per_s)
    before = drive.phases[0].capacity_bytes_per_s
    for phase in drive.phases[1:]:
        at = int(phase.at_s)
        bounds[at:] = phase.capacity_bytes_per_s
        if phase.capacity_bytes_per_s != before:
            bounds[at : at + int(SETTLING_S)] = np.nan
        before = phase.capacity_bytes_per_s
    return bounds


def _worst_site(drive: Drive, measured: Measured) -> float | None:
    tenths = np.array(measured.by_site)
    ends = [*(phase.at_s for phase in drive.phases[1:]), tenths.shape[1] / 10]
    worst = 0.0
    for phase, end in zip(drive.phases, ends, strict=True):
        begin = phase.at_s + SETTLING_S
        window_s = min(SITE_WINDOW_S, end - begin)
        rates = phase.rates_bytes_per_s or [phase.capacity_bytes_per_s / len(tenths)] * len(tenths)
        for at in np.arange(begin, end - window_s + 0.01, 1.0):
            received = tenths[:, round(at * 10) : round((at + window_s) * 10)].mean(axis=1)
            worst = max(worst, float(np.max(np.abs(received / np.array(rates) - 1.0))))
    return worst
