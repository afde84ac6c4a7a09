"""`python -m benchmarks.bandwidth [--short] [--only SETTING] [--repeat N] [--json FILE]`

A run in which the host kept much of the processors' time from this machine is shown, and measured again.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import msgspec
from benchmarks.bandwidth.drive import Measured, Phase
from benchmarks.bandwidth.settings import Setting, settings
from benchmarks.bandwidth.verdict import Verdict, judge, met
from benchmarks.stolen import QUIET
from experiments.lab import run, why_not
from msgspec import structs

_MOST_TRIES = 4


def measure(setting: Setting) -> tuple[Measured, Verdict]:
    result = run(
        f"benchmarks.bandwidth.drive:{setting.target}",
        setting.links,
        msgspec.to_builtins(setting.drive),
        timeout_s=setting.drive.seconds + 60,
    )
    measured = msgspec.convert(result, Measured)
    most = unbounded_rate(setting) if setting.compared else math.inf
    return measured, judge(setting.drive, measured, check_sites=setting.check_sites, most_bytes_per_s=most)


def unbounded_rate(setting: Setting) -> float:
    """What the same workers reach without a bound."""
    drive = structs.replace(setting.drive, phases=[Phase(0.0, 1e12)], seconds=4.0)
    target = f"benchmarks.bandwidth.drive:{setting.target}"
    result = run(target, setting.links, msgspec.to_builtins(drive), timeout_s=60)
    return msgspec.convert(result, Measured).mean_bytes_per_s


def _tell(setting: Setting, measured: Measured, verdict: Verdict) -> None:
    anywhere = "" if verdict.worst_window is None else f"{verdict.worst_window:+.1%}"
    site = "" if verdict.worst_site is None else f"{verdict.worst_site:.1%}"
    print(
        f"{setting.name:17} {verdict.use:6.3f} {verdict.over:+7.1%} {anywhere:>8}"
        f" {site:>6} {verdict.cpu_share:5.2f} {measured.stolen:7.1%} {verdict.pages:6d}"
        f"  {met(setting, verdict)}  ({setting.explained})",
        flush=True,
    )
    for failure in measured.failures[:3]:
        print(f"    {failure}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bandwidth", description=__doc__)
    parser.add_argument("--short", action="store_true", help="10 s a setting instead of 40 s")
    parser.add_argument("--only", action="append", help="only this setting (may be given more than once)")
    parser.add_argument("--repeat", type=int, default=1, help="measure each setting so many times")
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    options = parser.parse_args()
    chosen = settings(10.0 if options.short else 40.0)
    if options.only:
        names = {setting.name for setting in chosen}
        if unknown := set(options.only) - names:
            parser.error(
                f"no such setting: {', '.join(sorted(unknown))}; there are {', '.join(sorted(names))}"
            )
        chosen = [setting for setting in chosen if setting.name in options.only]
    reason = why_not()
    if reason is not None:
        print(f"On loopback, without round-trip times and links: {reason}")
    print(
        f"{'setting':17} {'use':>6} {'over':>7} {'any 1 s':>8} {'site':>6} {'cpu':>5} {'stolen':>7}"
        f" {'pages':>6}  verdict"
    )
    kept = []
    missed = False
    for setting in chosen:
        for _ in range(options.repeat):
            for last in (*[False] * (_MOST_TRIES - 1), True):
                measured, verdict = measure(setting)
                disturbed = measured.stolen > QUIET and met(setting, verdict) != "reported"
                _tell(setting, measured, verdict)
                kept.append({"setting": setting, "measured": measured, "verdict": verdict})
                if not disturbed or last:
                    missed = missed or met(setting, verdict) == "MISSED"
                    break
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(kept)))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
