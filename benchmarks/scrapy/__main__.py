"""`python -m benchmarks.scrapy {bound,deadlines,overhead,contracts}`"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec
from benchmarks.bandwidth.settings import FAST, MIXED
from benchmarks.scrapy import contracts, deadlines, overhead
from benchmarks.scrapy.drive import Wired
from experiments.lab import run, why_not

BOUNDS = (
    ("140 KB/s", 140e3, 12e3, MIXED),
    ("1 MB/s", 1e6, 60e3, MIXED),
    ("20 MB/s", 20e6, 2e6, FAST),
)
MOST_OVER = 0.05
MOST_OFF = 0.05


def bound(seconds: float) -> bool:
    """A spider that always wants more, under three bounds: what the wire carried."""
    print(f"{'bound':10} {'use':>6} {'worst second':>13} {'any second':>11}")
    good = True
    for text, rate, page, links in BOUNDS:
        settings = {"ADDONS": {"headway.scrapy.Addon": 500}, "HEADWAY_BANDWIDTH": text}
        argument = {"seconds": seconds, "page_bytes": page, "settings": settings}
        result = run("benchmarks.scrapy.drive:endless", links, argument, timeout_s=seconds + 60)
        wired = msgspec.convert(result, Wired)
        over = max(wired.samples) / rate - 1
        good = good and over <= MOST_OVER
        anywhere = wired.worst_window_bytes_per_s / rate - 1
        print(
            f"{text:10} {wired.mean_bytes_per_s / rate:6.3f} {over:+13.1%}"
            f" {anywhere:+11.1%}  {'met' if over <= MOST_OVER else 'MISSED'}",
            flush=True,
        )
    return good


def six(scale: float, policies: list[str]) -> bool:
    """zhu2020's six sites; planned and measured ends, and the worst second of the link."""
    good = True
    xi = 1.0
    if set(policies) - {"plain"}:
        xi = deadlines.learn_xi()
        print(f"xi {xi:.3f}, learnt in a short crawl of the same sites")
    for policy in policies:
        measured = deadlines.measure(policy, scale, xi)
        print(f"{measured.policy}")
        print(f"  {'site':10} {'deadline':>9} {'planned':>9} {'took':>9} {'off by':>8} {'data':>7}")
        for site in measured.sites:
            planned = "" if site.planned_s is None else f"{site.planned_s:.1f} s"
            off = None if site.planned_s is None or site.took_s is None else site.took_s / site.planned_s - 1
            is_late = site.took_s is None or site.took_s > site.deadline_s
            good = good and (off is None or abs(off) <= MOST_OFF)
            data = "" if site.data_off is None else f"{site.data_off:+.1%}"
            print(
                f"  {site.name:10} {site.deadline_s:7.1f} s {planned:>9} {site.took_s or 0:7.1f} s"
                f" {'' if off is None else f'{off:+.1%}':>8} {data:>7}  {'MISSED' if is_late else 'in time'}"
            )
        worst = max(measured.samples) / deadlines.BOUND_BYTES_PER_S - 1
        good = good and (policy == "plain" or worst <= MOST_OVER)
        print(f"  worst second of the link {worst:+.1%} of the bound", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scrapy", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    bounds = commands.add_parser("bound", help=bound.__doc__)
    bounds.add_argument("--seconds", type=float, default=15.0)
    planned = commands.add_parser("deadlines", help=six.__doc__)
    planned.add_argument("--scale", type=float, default=0.4, help="of the paper's data and deadlines")
    planned.add_argument("--policy", action="append", help="m-maxt, m-sumt, headway, plain; may be repeated")
    costs = commands.add_parser("overhead", help=overhead.__doc__)
    costs.add_argument("--pages", type=int, default=600)
    costs.add_argument("--rounds", type=int, default=5)
    source = commands.add_parser("contracts", help="Scrapy's own tests of download handlers, on ours.")
    source.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command in {"bound", "deadlines"} and (reason := why_not()) is not None:
        print(f"On loopback, without round-trip times and links: {reason}")
    match options.command:
        case "bound":
            good = bound(options.seconds)
        case "deadlines":
            good = six(options.scale, options.policy or [*deadlines.POLICIES, "plain"])
        case "overhead":
            good = overhead.report(options.pages, options.rounds)
        case _:
            return contracts.run(options.folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
