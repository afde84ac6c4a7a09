"""`make bench NAME=memory`: the crawling process with millions of known URLs, and what a page costs then.

A real machine and a real store; only the web is synthetic: every page fetched links to new ones until all are
known. Each size runs in a process of its own. Options: --pages N (10,000,000), --sites N (1,000), --all-held
(everything in memory, for comparison), --seconds N (stop growing after so long), --write (into README.md).
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.notes import write_part

from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.model.command import FetchPage, LoadPages, SaveFound, SaveSettled, SaveSite, SaveTasks, Saving
from headway.model.event import Event, Loaded, PageSettled, PagesLoaded, Seeded
from headway.model.page import Kind, Lease, Outcome, Page, PageKey, Site, Task
from headway.policy.ordering.simple import Length
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.scope import Scope
from headway.store.sqlite import SqliteStore
from headway.units import Instant, Seconds

LINKS = 400
COMMIT_EVERY = 20
MOST_HELD = 200_000
GOAL_MIB = 1024


class Growing:
    """A crawl of a web that grows by so many links a page."""

    def __init__(self, folder: Path, sites: int, most_held: int | None) -> None:
        ordering = Length()
        self.crawl = Engine(
            Policies(
                ordering=ordering,
                scope=Scope(),
                politeness=Politeness(interval_s=Seconds(0.0)),
                retry=RetryPolicy(),
            ),
            EngineSettings(max_connections=64, lease_s=Seconds(1e9), asks_robots=False, most_held=most_held),
        )
        self.store = SqliteStore(folder / "crawl.sqlite")
        self.store.order_waiting(ordering.name, ordering.page_key)
        self.store.create(Instant(0.0), {})
        self.sites = [Site(f"http://site{number:05}.test") for number in range(sites)]
        self.known = 0
        self.fetched = 0
        self._open: list[Lease] = []
        self._batch: list[Saving] = []
        self._wished: list[LoadPages] = []
        self._tell(Seeded(tuple(map(Task, self.sites)), self._new_pages(sites, 0)))

    def turn(self, links: int) -> None:
        """The oldest request is answered, with new links or without."""
        lease = self._open.pop(0)
        self.fetched += 1
        outcome = Outcome(Kind.FETCHED, 200, 20_000, Seconds(0.1), content_type="text/html")
        self._tell(PageSettled(lease, outcome, self._new_pages(links, lease.page.depth + 1)))
        if self.fetched % COMMIT_EVERY == 0:
            self.commit()

    def commit(self) -> None:
        self.store.commit(self._batch, {})
        self._batch = []
        if self._wished:
            loads = []
            for wish in self._wished:
                records = tuple(self.store.first_waiting(wish.site, wish.most))
                loads.append(Loaded(wish.site, records, len(records) < wish.most))
            self._wished = []
            self._tell(PagesLoaded(tuple(loads)))

    def _new_pages(self, count: int, depth: int) -> tuple[Page, ...]:
        pages = []
        for number in range(self.known, self.known + count):
            site = self.sites[number % len(self.sites)]
            # Spread over all 64 bits, as fingerprints of URLs are.
            key = (number * 0x9E3779B97F4A7C15 + 1) % 2**64 - 2**63
            pages.append(Page(f"{site}/articles/of/the/year/{number}.html", site, PageKey(key), depth))
        self.known += count
        return tuple(pages)

    def _tell(self, event: Event) -> None:
        for command in self.crawl.step(Instant(float(self.fetched)), event):
            match command:
                case SaveFound() | SaveSettled() | SaveSite() | SaveTasks():
                    self._batch.append(command)
                case LoadPages():
                    self._wished.append(command)
                case FetchPage(lease):
                    self._open.append(lease)


def grow(pages: int, sites: int, seconds: float, *, all_held: bool) -> None:
    """In a process of its own: until so many pages are known; then some thousands are fetched."""
    with tempfile.TemporaryDirectory(prefix="headway-memory-") as folder:
        growing = Growing(Path(folder), sites, None if all_held else MOST_HELD)
        gc.freeze()
        began = time.perf_counter()
        while growing.known < pages and time.perf_counter() - began < seconds:
            growing.turn(LINKS)
        growing.commit()
        grown_s = time.perf_counter() - began
        resident = _resident_mib()
        began, before = time.process_time(), growing.fetched
        for _ in range(min(5_000, growing.crawl.frontier.waiting // 2)):
            growing.turn(0)
        growing.commit()
        told = {
            "known": growing.known,
            "waiting": growing.crawl.frontier.waiting,
            "resident_mib": resident,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "found_us": grown_s / growing.known * 1e6,
            "page_us": (time.process_time() - began) / (growing.fetched - before) * 1e6,
        }
        growing.store.close()
    print(json.dumps(told))


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.memory", description=__doc__)
    parser.add_argument("--pages", type=int, default=10_000_000)
    parser.add_argument("--sites", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--all-held", action="store_true")
    parser.add_argument("--write", action="store_true", help="into README.md")
    parser.add_argument("--grow", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.grow:
        grow(options.grow, options.sites, options.seconds, all_held=options.all_held)
        return
    lines = [f"{options.sites:,} sites; all pages but a few thousand wait.", ""]
    columns = (
        "known URLs",
        "resident MiB",
        "peak MiB",
        "bytes a URL, at the peak",
        "a URL found, relative",
        "a page fetched then, relative",
    )
    lines += [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    sizes = [size for size in (options.pages // 100, options.pages // 10, options.pages) if size > 1000]
    peak = 0.0
    first: dict[str, float] = {}
    for size in sizes:
        command = [sys.executable, "-m", "benchmarks.memory", "--grow", str(size)]
        command += ["--sites", str(options.sites), "--seconds", str(options.seconds)]
        command += ["--all-held"] * options.all_held
        told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
        first = first or told
        cells = (
            f"{told['known']:,}",
            f"{told['resident_mib']:.0f}",
            f"{told['peak_mib']:.0f}",
            f"{told['peak_mib'] * 2**20 / told['known']:,.0f}",
            f"{told['found_us'] / first['found_us']:.1f}",
            f"{told['page_us'] / first['page_us']:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
        peak = told["peak_mib"]
    lines += ["", f"{options.pages:,} known URLs under 1 GiB: {'yes' if peak < GOAL_MIB else 'NO'}."]
    print("\n".join(lines))
    if options.write:
        write_part(Path(__file__).parent / "README.md", "figures", "\n".join(lines))


if __name__ == "__main__":
    main()
