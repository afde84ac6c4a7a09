"""Where a page's time goes: `python -m benchmarks.crawl.shares`, from samples that py-spy takes of a crawl.

A sample counts for the innermost of our own functions on the stack; what the event loop does around them is
bookkeeping. The profile of a run can be looked at closer with `--functions 30`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.sites import SiteFolder, make_web, serve
from rich.console import Console
from rich.table import Table

from . import readme
from .crawlers import headway

SAMPLES_PER_S = 500
ROOMS = (
    ("fetch/", "fetch: connection, pacer, HTTP"),
    ("parse/", "parse: links, URLs, digest, likeness"),
    ("store/warc", "archive: WARC records"),
    ("store/cdxj", "archive: WARC records"),
    ("store/surt", "archive: WARC records"),
    ("store/", "store: SQLite, logs"),
    ("crawl/", "frontier: machine, queues, policies"),
    ("frontier/", "frontier: machine, queues, policies"),
    ("policy/", "frontier: machine, queues, policies"),
)
REST = "bookkeeping: loop, tasks"
BEGINNING = "start: modules, the job"
_NETWORK = ("selector_events.py", "selectors.py")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.crawl.shares", description=__doc__)
    parser.add_argument("--functions", type=int, default=0, help="name so many functions")
    parser.add_argument("--copies", type=int, default=1, help="how often each manual is served")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th site")
    parser.add_argument("--write", action="store_true", help="put the table into the README here")
    options = parser.parse_args()
    stacks = sample(make_web(options.copies)[:: options.every])
    functions: Counter[str] = Counter()
    for frames, count in stacks.items():
        functions[frames[-1]] += count
    console = Console(width=100)
    console.print(_table("share of a page's time", shares_of(stacks)))
    if options.write:
        readme.put("shares", in_markdown(stacks))
    if options.functions:
        console.print(_table("functions", Counter(dict(functions.most_common(options.functions)))))


def sample(sites: list[SiteFolder]) -> Counter[tuple[str, ...]]:
    """Stacks, outermost frame first, with how often each was met."""
    spy = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if spy is None:
        raise SystemExit("py-spy is needed: pip install py-spy")
    with serve(sites, core=max(os.sched_getaffinity(0))), tempfile.TemporaryDirectory() as name:
        record = [spy, "record", "--format", "raw", "--rate", str(SAMPLES_PER_S), "--nonblocking"]
        record += ["--output", f"{name}/stacks", "--"]
        crawl = headway(Path(name), [site.url for site in sites])
        pin = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
        subprocess.run([*record, *pin, *crawl], check=True, capture_output=True)
        stacks: Counter[tuple[str, ...]] = Counter()
        for line in Path(name, "stacks").read_text().splitlines():
            frames, _, count = line.rpartition(" ")
            stacks[tuple(frames.split(";"))] += int(count)
    return stacks


def shares_of(stacks: Counter[tuple[str, ...]]) -> Counter[str]:
    shares: Counter[str] = Counter()
    for frames, count in stacks.items():
        shares[room_of(frames)] += count
    return shares


def in_markdown(stacks: Counter[tuple[str, ...]]) -> list[str]:
    shares = shares_of(stacks)
    rows = [(name, f"{100 * count / shares.total():.0f}") for name, count in shares.most_common()]
    return readme.table(("part", "%"), rows)


def room_of(frames: tuple[str, ...]) -> str:
    if not any("run_forever" in frame for frame in frames):
        return BEGINNING
    for frame in reversed(frames):
        if any(name in frame for name in _NETWORK):
            return ROOMS[0][1]
        _, ours, place = frame.partition("headway/")
        if ours:
            return next((room for prefix, room in ROOMS if place.startswith(prefix)), REST)
    return REST


def _table(title: str, counts: Counter[str]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    table.add_column("%", justify="right")
    whole = counts.total()
    for name, count in counts.most_common():
        table.add_row(name, f"{100 * count / whole:.1f}")
    return table


if __name__ == "__main__":
    main()
