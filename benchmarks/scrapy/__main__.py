"""`python -m benchmarks.scrapy {bound,deadlines,overhead,contracts}`; with --write into README.md as well."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec
from benchmarks.bandwidth.settings import FAST, MIXED
from benchmarks.notes import write_part
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


README = Path(__file__).parent / "README.md"


class Page:
    """Prints a table as it grows, and keeps it for README.md."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def row(self, *cells: str) -> None:
        self.say("| " + " | ".join(cells) + " |")

    def head(self, *cells: str) -> None:
        self.row(*cells)
        self.say("|" + "---|" * len(cells))

    def say(self, line: str = "") -> None:
        print(line, flush=True)
        self.lines.append(line)

    def write(self, name: str) -> None:
        write_part(README, name, "\n".join(self.lines))


def bound(seconds: float, page: Page) -> bool:
    """A spider that always wants more, under three bounds: what the wire carried."""
    page.head("bound", "use of it", "highest second", "any second", "at most +5%")
    good = True
    for text, rate, page_bytes, links in BOUNDS:
        settings = {"ADDONS": {"headway.scrapy.Addon": 500}, "HEADWAY_BANDWIDTH": text}
        argument = {"seconds": seconds, "page_bytes": page_bytes, "settings": settings}
        result = run("benchmarks.scrapy.drive:endless", links, argument, timeout_s=seconds + 60)
        wired = msgspec.convert(result, Wired)
        over = max(wired.samples) / rate - 1
        good = good and over <= MOST_OVER
        anywhere = wired.worst_window_bytes_per_s / rate - 1
        verdict = "met" if over <= MOST_OVER else "MISSED"
        page.row(text, f"{wired.mean_bytes_per_s / rate:.3f}", f"{over:+.1%}", f"{anywhere:+.1%}", verdict)
    return good


def six(scale: float, policy: str, page: Page) -> bool:
    """zhu2020's six sites; planned and measured ends, and the worst second of the link."""
    xi = 1.0 if policy == "plain" else deadlines.learn_xi()
    measured = deadlines.measure(policy, scale, xi)
    worst = max(measured.samples) / deadlines.BOUND_BYTES_PER_S - 1
    good = policy == "plain" or worst <= MOST_OVER
    page.say(f"**{measured.policy}**: highest second of the link {worst:+.1%} of the bound.")
    page.say()
    page.head("site", "deadline", "planned", "took", "off by", "")
    for site in measured.sites:
        planned, off = "", None
        if site.planned_s is not None and site.took_s is not None:
            planned, off = f"{site.planned_s:.1f} s", site.took_s / site.planned_s - 1
        good = good and (off is None or abs(off) <= MOST_OFF)
        took = "" if site.took_s is None else f"{site.took_s:.1f} s"
        verdict = "in time" if site.took_s is not None and site.took_s <= site.deadline_s else "LATE"
        page.row(
            site.name,
            f"{site.deadline_s:.1f} s",
            planned,
            took,
            "" if off is None else f"{off:+.1%}",
            verdict,
        )
    page.say()
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
    for each in (bounds, planned, costs, source):
        each.add_argument("--write", action="store_true", help="into README.md")
    options = parser.parse_args()
    if options.command in {"bound", "deadlines"} and (reason := why_not()) is not None:
        print(f"On loopback, without round-trip times and links: {reason}")
    page, name, good = Page(), str(options.command), True
    match name:
        case "bound":
            good = bound(options.seconds, page)
        case "deadlines":
            for policy in options.policy or [*deadlines.POLICIES, "plain"]:
                page, name = Page(), f"deadlines {policy}"
                good = six(options.scale, policy, page) and good
                if options.write:
                    page.write(name)
        case "overhead":
            good = overhead.report(options.pages, options.rounds, page.say)
        case _:
            good = contracts.report(options.folder, page.say)
    if options.write and options.command != "deadlines":
        page.write(name)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
