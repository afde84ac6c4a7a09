"""`python -m benchmarks.faults [--kills 100] [--pages 16000] [--sites 40] [--outages 2] [--seed 1]`"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.faults.counting import Count, count
from benchmarks.faults.killing import Kill, Victim
from benchmarks.faults.reader import BusyReader
from benchmarks.faults.web import FaultyWeb
from benchmarks.notes import write_part

_INTERVAL_MS = 60
_OUTAGE_S = 1.5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="kill -9 so many times")
    parser.add_argument("--pages", type=int, default=16_000, help="about so many pages in all")
    parser.add_argument("--sites", type=int, default=40, help="on so many sites")
    parser.add_argument("--outages", type=int, default=2, help="all servers gone for a while, so many times")
    parser.add_argument("--seed", type=int, default=1, help="another web, and other moments")
    parser.add_argument("--keep", action="store_true", help="write the figures into README.md")
    options = parser.parse_args()
    began_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headway-faults-") as name:
        folder = Path(name)
        web = FaultyWeb(folder, options.sites, options.pages, options.seed)
        try:
            victim = Victim(folder, web.urls, interval_ms=_INTERVAL_MS, seed=options.seed)
            expected = web.expected_bytes()
            print(f"{len(expected)} pages on {options.sites} sites, {options.kills} kills", flush=True)
            with BusyReader(victim.run / "crawl.sqlite", options.seed) as reader:
                kills = _kill_often(victim, options.kills, len(expected))
                code = _finish(victim, web, options.outages)
        finally:
            web.close()
        result = count(victim.run, expected, web.asked(), kills)
        complaints = victim.complaints()
    told = _table(result, kills, options.outages, reader, code, time.monotonic() - began_at)
    print(told)
    if options.keep:
        block = "\n".join(f"    {line}" for line in told.splitlines())
        write_part(Path(__file__).with_name("README.md"), "measured", f"\n{block}\n")
    if complaints:
        print(f"the crawl complained:\n{complaints}")
    return 0 if result.is_clean and code == 0 and len(kills) == options.kills else 1


def _kill_often(victim: Victim, wanted: int, pages: int) -> list[Kill]:
    kills: list[Kill] = []
    most_pages = max(2, round(pages / max(1, wanted)))
    while len(kills) < wanted:
        kill = victim.kill_once(most_pages)
        if kill is None:
            print(f"the crawl was done after {len(kills)} kills: give it more pages")
            break
        kills.append(kill)
        if len(kills) % 10 == 0:
            print(f"  {len(kills)} kills, {len(kill.committed)} pages kept", flush=True)
    return kills


def _finish(victim: Victim, web: FaultyWeb, outages: int) -> int:
    """The last start is not killed; instead, its web goes away now and then."""
    with victim.start() as child:
        for _ in range(outages):
            before = victim.pages_listed()
            while child.poll() is None and victim.pages_listed() < before + 20:
                time.sleep(0.02)
            web.go_away(_OUTAGE_S)
        return child.wait()


def _table(
    result: Count, kills: list[Kill], outages: int, reader: BusyReader, code: int, seconds: float
) -> str:
    starting = sum(kill.was_starting for kill in kills)
    fresh = [len(later.committed) - len(kill.committed) for kill, later in pairwise(kills)]
    rows: list[tuple[str, object, str]] = [
        ("kills (-9)", len(kills), f"{starting} of them at any moment after the start of the process"),
        ("pages committed between kills", round(statistics.median(fresh)) if fresh else "-", "median"),
        ("all servers gone", outages, f"times, for {_OUTAGE_S} s each"),
        (
            "database held by another program",
            reader.reads + reader.locks,
            f"times, {reader.held_s:.0f} s in all",
        ),
        ("pages to find", result.expected, ""),
        ("pages lost", result.lost, "0 wanted"),
        ("unexpected pages", result.unexpected, "0 wanted"),
        ("pages with another size", result.wrong_size, "0 wanted"),
        ("pages asked for", result.asked, ""),
        ("... again, after they were committed", result.asked_after_commit, "0 wanted"),
        (
            "... again, in flight or uncommitted at a kill",
            result.asked_again,
            _each(result.asked_again, kills),
        ),
        ("robots.txt asked for again", result.robots_asked_again, "before its rules were committed"),
        ("lines twice in pages.jsonl", result.listed_twice, "0 wanted"),
        ("rows that disagree with the files", result.rows_disagreeing, "0 wanted"),
        ("WARC files", result.warc_files, f"{result.warc_records} captures"),
        ("WARC files that are not whole", result.warc_bad, "0 wanted (warcio, all digests)"),
        ("pages archived twice", result.archived_twice, "0 wanted"),
        ("last exit code", code, "0 wanted"),
        ("time", f"{seconds:.0f} s", ""),
    ]
    lines = [f"{name:46} {figure!s:>8}  {remark}".rstrip() for name, figure, remark in rows]
    return "\n".join([*lines, "clean" if result.is_clean else "NOT CLEAN"])


def _each(count: int, kills: list[Kill]) -> str:
    return f"{count / len(kills):.1f} a kill" if kills else ""


if __name__ == "__main__":
    sys.exit(main())
