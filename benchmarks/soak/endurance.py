"""Round after round of the chaos web in one process: does memory stay flat, do good pages come as quickly?"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from benchmarks.soak.crawling import build, chaos_sites, crawl, write_authority
from tests.support.chaos.server import ServedChaos

from headway.demoweb import Served
from headway.model.page import SUCCESS
from headway.store.reader import RunReader


class Round(msgspec.Struct, frozen=True):
    ended_s: float
    """Since the first round began."""
    pages: int
    failed: int
    megabytes: float
    resident_mib: float
    good_p50_ms: float
    """From request to the last byte of a page of the good sites."""
    good_p99_ms: float


class Verdict(msgspec.Struct, frozen=True):
    rounds: int
    growth_mib_per_round: float
    """Slope of resident memory over the second half: the first fills caches and arenas."""
    latency_ratio: float
    """Median of good pages in the last third over that in the first."""


def endure(
    good: Served, chaos: ServedChaos, seconds: float, bandwidth: str, tell: Callable[[Round], None]
) -> list[Round]:
    rounds: list[Round] = []
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headway-soak-") as name:
        folder = Path(name)
        ca_file = write_authority(chaos, folder)
        sites = [{"url": url} for url in good.urls] + chaos_sites(chaos)
        while not rounds or time.monotonic() - started_at < seconds:
            run = folder / f"run-{len(rounds)}"
            crawl(build(sites, bandwidth=bandwidth, ca_file=ca_file), run)
            rounds.append(_round(run, set(good.sites.values()), time.monotonic() - started_at))
            tell(rounds[-1])
            _remove(run)
    return rounds


def judge(rounds: list[Round]) -> Verdict:
    later = [each.resident_mib for each in rounds[len(rounds) // 2 :]]
    growth = float(np.polyfit(range(len(later)), later, 1)[0]) if len(later) > 2 else float("nan")
    third = max(1, len(rounds) // 3)
    first = float(np.nanmedian([each.good_p50_ms for each in rounds[:third]]))
    last = float(np.nanmedian([each.good_p50_ms for each in rounds[-third:]]))
    return Verdict(len(rounds), growth, last / first)


def plot(rounds: list[Round], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, (memory, latency) = plt.subplots(2, sharex=True, figsize=(9, 6), layout="constrained")
    minutes = [each.ended_s / 60 for each in rounds]
    verdict = judge(rounds)
    figure.suptitle(
        f"{verdict.rounds} crawls of the chaos web in one process, "
        f"{sum(each.pages + each.failed for each in rounds):,} pages"
    )
    resident = [each.resident_mib for each in rounds]
    memory.plot(minutes, resident)
    memory.set_title(f"{verdict.growth_mib_per_round:+.2f} MiB a round over the second half", fontsize=10)
    memory.set_ylabel("resident memory, MiB")
    memory.set_ylim(0, 1.25 * max(resident))
    latency.plot(minutes, [each.good_p50_ms for each in rounds], label="median")
    latency.plot(minutes, [each.good_p99_ms for each in rounds], label="99th percentile")
    latency.set_title(f"good pages: last third {verdict.latency_ratio:.2f} times the first", fontsize=10)
    latency.set_ylabel("request to last byte, ms")
    latency.set_xlabel("minutes")
    latency.set_yscale("log")
    latency.set_ylim(bottom=0.1)
    latency.legend(loc="lower right", ncols=2)
    for axes in (memory, latency):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _round(run: Path, good: set[str], ended_s: float) -> Round:
    with RunReader(run) as reader:
        totals = reader.totals()
        durations_ms = [
            page.duration_s * 1000 for page in reader.pages() if page.site in good and page.kind in SUCCESS
        ]
    # A machine that is too busy to serve the good sites in time has no latency to tell in that round.
    p50, p99 = np.percentile(durations_ms or [np.nan], (50, 99))
    return Round(
        ended_s, totals.done, totals.failed, totals.wire_bytes / 1e6, _resident_mib(), float(p50), float(p99)
    )


def _resident_mib() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _remove(run: Path) -> None:
    for path in sorted(run.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    run.rmdir()
