"""Where a page's CPU time goes: `python -m benchmarks.crawl.shares`, by a stopwatch (`timed.py`)."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.manuals import SiteFolder, make_web, serve

from . import readme
from .crawlers import headway

ROOT = Path(__file__).parents[2]
COPIES = 3
HEADINGS = ("part", "us a page", "%")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.crawl.shares", description=__doc__)
    parser.add_argument("--copies", type=int, default=COPIES, help="how often each manual is served")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th site")
    parser.add_argument("--write", action="store_true", help="put the table into the README here")
    options = parser.parse_args()
    lines = table_of(make_web(options.copies)[:: options.every])
    for line in lines:
        print(line)
    if options.write:
        readme.put("shares", lines)


def table_of(sites: list[SiteFolder]) -> list[str]:
    seconds, pages = measure(sites)
    whole = sum(seconds.values())
    rows = [
        (part, f"{1e6 * took / pages:.0f}", f"{100 * took / whole:.0f}")
        for part, took in sorted(seconds.items(), key=lambda item: -item[1])
    ]
    return readme.table(HEADINGS, [*rows, ("all", f"{1e6 * whole / pages:.0f}", "100")])


def measure(sites: list[SiteFolder]) -> tuple[dict[str, float], int]:
    """Seconds of each part, and how many pages were kept."""
    with serve(sites, core=max(os.sched_getaffinity(0))), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, *crawl = headway(folder, [site.url for site in sites])
        timed = [sys.executable, "-m", "benchmarks.crawl.timed", str(folder / "seconds"), *crawl]
        pin = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
        subprocess.run([*pin, *timed], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        pages = len((folder / "run" / "pages.jsonl").read_bytes().splitlines())
        return json.loads((folder / "seconds").read_text()), pages


if __name__ == "__main__":
    main()
