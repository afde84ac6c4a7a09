"""`python -m benchmarks.simulator.frontier PAGES STRATEGY [HELD]`: the live frontier in its own process.

Every known page waits (the worst case), on sites whose sizes follow the power law of the synthetic web: all
of them in memory, or about HELD of them, the others being given back when the frontier asks for them (as the
store does, whose own cost is in `benchmarks/store`). A round is what the machine does for a page: ask for a
site, take its page, mark the site busy, then free.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time

import numpy as np

from headway.engine.frontier import Frontier
from headway.engine.seen import seen_set
from headway.model.command import WaitingRecord
from headway.model.page import Page, PageKey, Site
from headway.policy.ordering import make_ordering
from headway.sim.web import SyntheticSpec, site_sizes
from headway.units import Instant

ROUNDS, SPANS = 200_000, 20
INTERVAL_S = 15.0


class KnownPages:
    """Pages made from numbers when they are wanted, in the order of a site by depth."""

    def __init__(self, count: int) -> None:
        spec = SyntheticSpec(pages=count, sites=max(1, count // 100), seed=1)
        chance = np.random.default_rng(1)
        self.site_of = np.repeat(np.arange(spec.sites), site_sizes(spec, chance))
        chance.shuffle(self.site_of)
        self.sites = [Site(f"https://www.site-{number:06}.example") for number in range(spec.sites)]
        self.keys = chance.integers(-(2**63), 2**63 - 1, count)
        self.depths = chance.integers(0, 12, count)
        self._in_order = np.lexsort((self.depths, self.site_of))
        self._begins = np.searchsorted(self.site_of[self._in_order], np.arange(spec.sites + 1))
        self._site_list, self._depth_list = self.site_of.tolist(), self.depths.tolist()
        self._number = {site: number for number, site in enumerate(self.sites)}
        self.spent_s = 0.0
        """In the store's place, which is not the frontier's time."""

    def page(self, number: int) -> Page:
        site = self.sites[self._site_list[number]]
        url = f"{site}/section/{number % 97}/page-{number}.html"
        return Page(url, site, PageKey(int(self.keys[number])), self._depth_list[number])

    def first(self, site: Site, waiting: int, most: int) -> tuple[list[WaitingRecord], bool]:
        """The first of a site's pages of which so many still wait; and whether those are all."""
        begun = time.process_time()
        number = self._number[site]
        end = self._begins[number + 1]
        begin = end - waiting
        chosen = self._in_order[begin : min(begin + most, end)]
        records = [WaitingRecord(self.page(int(page))) for page in chosen]
        self.spent_s += time.process_time() - begun
        return records, bool(begin + most >= end)


def main() -> None:
    count, strategy = int(sys.argv[1]), sys.argv[2]
    held = int(sys.argv[3]) if len(sys.argv) > 3 else None
    known = KnownPages(count)
    before = _resident_mib()
    seen, frontier = seen_set(), Frontier(make_ordering(strategy), held)
    begun = time.process_time()
    for first in range(0, count, 20):
        pages = [known.page(number) for number in range(first, min(first + 20, count))]
        seen.add_all([page.key for page in pages])
        for page in pages:
            frontier.put(page)
    found_us = (time.process_time() - begun) / count * 1e6
    told = {
        "pages": count,
        "found_us": found_us,
        "bytes_per_url": (_resident_mib() - before) * 2**20 / count,
        "handed_out_us": _hand_out(frontier, known, min(ROUNDS, count // 4), is_all_held=held is None),
        "seen": len(seen),
    }
    print(json.dumps(told))


def _hand_out(frontier: Frontier, known: KnownPages, rounds: int, *, is_all_held: bool) -> float:
    now = 0.0
    frontier.next_site(Instant(now))
    gc.collect()
    lengths = []
    for _ in range(SPANS):
        begun = time.process_time() - known.spent_s
        for _ in range(rounds // SPANS):
            now += 0.002
            queue = frontier.next_site(Instant(now))
            if queue is None:
                now = float(frontier.next_ready_at(Instant(now)))
                continue
            frontier.take(queue)
            frontier.occupy(queue.site)
            frontier.free(queue.site, Instant(now + INTERVAL_S))
            if is_all_held:
                continue
            for site, most in frontier.load_requests(()):
                records, is_all = known.first(site, frontier.queue(site).waiting, most)
                frontier.load(site, records, (), is_all=is_all)
        lengths.append((time.process_time() - known.spent_s - begun) / (rounds // SPANS) * 1e6)
    # The median over spans: the machine may be busy with something else for a moment.
    return float(np.median(lengths))


def _resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
