"""`make bench NAME=foresight`: do forecasts hold as often as they say, and does a recorded run end when it
did?

Options: --quick (fewer crawls), --no-live, --seed N. Without the graphs in HEADWAY_DATA only made-up webs
are judged. The unit is the crawl: standard errors are over crawls. Exit code 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.foresight import live_table
from benchmarks.foresight.crawls import Crawl
from benchmarks.foresight.judging import Verdict, also_planned, of_crawls, of_sites, verdict
from benchmarks.foresight.rotation import rotations

_POOLED_WITHIN, _BUCKET_WITHIN, _MOST_SCORE = 0.05, 0.08, 0.85
_WANTED = 0.8
_LEAST_CRAWLS = 130
_MEDIAN_ERROR, _WORST_ERROR, _WHAT_IF_ERROR = 0.05, 0.10, 0.15


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.foresight", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-live", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    missed = []
    judged = rotations(8 if options.quick else 36, options.seed)
    crawls = [crawl for each in judged for crawl in each.crawls]
    before = [crawl for each in judged for crawl in each.before]
    print(f"{len(crawls)} crawls in virtual time; fitted, calibrated and judged on different families:")
    for each in judged:
        sites, whole = verdict_of(each.crawls)
        print(f"  {' -> '.join(each.parts):45} sites {sites.pooled:.2f}, crawls {whole.pooled:.2f}")
    print(HEAD)
    missed += shown("virtual", crawls, before)
    if not options.no_live:
        with tempfile.TemporaryDirectory(prefix="headway-foresight-") as folder:
            lived = live_table.crawls(Path(folder), 4 if options.quick else 14, options.seed)
            print(f"\n{len(lived)} live crawls over loopback, by the table that headway ships:")
            print(HEAD)
            shown("live", lived, None)
            pairs = live_table.recorded(Path(folder), options.seed, is_quick=options.quick)
        missed += told(pairs)
        if len(crawls) + len(lived) < _LEAST_CRAWLS:
            missed.append(f"only {len(crawls) + len(lived)} crawls")
    print()
    print("every target met" if not missed else "missed: " + "; ".join(missed))
    sys.exit(1 if missed else 0)


HEAD = f"{'':16}{'pooled':>14}{'by foreseen progress':>34}{'interval score':>16}{'of point x factors':>20}"


def verdict_of(crawls: Sequence[Crawl]) -> tuple[Verdict, Verdict]:
    return verdict(of_sites(crawls), len(crawls)), verdict(of_crawls(crawls), len(crawls))


def shown(name: str, crawls: Sequence[Crawl], before: Sequence[Crawl] | None) -> list[str]:
    """Print the verdicts; returns the targets that were missed."""
    missed = []
    compared: tuple[Verdict | None, Verdict | None] = (None, None)
    if before is not None:
        compared = verdict_of(before)
    same = verdict_of(also_planned(crawls))
    for what, found, mine, known in zip(("sites", "crawl"), verdict_of(crawls), same, compared, strict=True):
        buckets = " ".join(f"{share:.2f}" for share in found.by_bucket)
        ratio = "" if known is None else f"{mine.score / known.score:.2f}"
        print(
            f"{name + ', ' + what:16}{found.pooled:8.3f} +-{found.error:.3f}{buckets:>34}"
            f"{found.score:16.2f}{ratio:>20}"
        )
        if known is None:
            continue
        if abs(found.pooled - _WANTED) > _POOLED_WITHIN:
            missed.append(f"{what}: {found.pooled:.2f} of the ranges held")
        missed += [
            f"{what}: {share:.2f} held in bucket {number}"
            for number, share in enumerate(found.by_bucket)
            if abs(share - _WANTED) > _BUCKET_WITHIN
        ]
        if mine.score > _MOST_SCORE * known.score:
            missed.append(f"{what}: interval score {mine.score / known.score:.2f} of point x factors")
    return missed


def told(pairs: Sequence[live_table.Pair]) -> list[str]:
    """The table of recorded and simulated ends; returns the targets that were missed."""
    print("\nrecorded runs: simulated end against live ends")
    print(f"{'run':34}{'live':>9}{'second':>9}{'spread':>8}{'simulated':>11}{'error':>8}")
    for pair in pairs:
        print(
            f"{pair.name:34}{pair.live_s:8.1f}s{pair.second_s:8.1f}s{pair.spread:8.1%}"
            f"{pair.simulated_s:10.1f}s{pair.error:+8.1%}"
        )
    own = [pair for pair in pairs if not pair.is_what_if]
    errors = [max(0.0, abs(pair.error) if abs(pair.error) > 2 * pair.spread else 0.0) for pair in own]
    missed = []
    if float(np.median([abs(pair.error) for pair in own])) > _MEDIAN_ERROR and max(errors) > 0:
        missed.append("recorded runs: median error over 5%")
    missed += [
        f"{pair.name}: {pair.error:+.0%}"
        for pair, error in zip(own, errors, strict=True)
        if error > _WORST_ERROR
    ]
    missed += [
        f"{pair.name}: {pair.error:+.0%}"
        for pair in pairs
        if pair.is_what_if and abs(pair.error) > _WHAT_IF_ERROR
    ]
    return missed


if __name__ == "__main__":
    main()
