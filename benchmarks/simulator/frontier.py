"""`python -m benchmarks.simulator.frontier PAGES STRATEGY`: the live frontier, in a process of its own.

Every known page waits (the worst case), on sites whose sizes follow the power law of the synthetic web. A
round is what the machine does for a page: ask for a site, take its page, mark the site busy, then free.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time

import numpy as np

from headway.frontier.frontier import Frontier
from headway.frontier.seen import SeenSet
from headway.model.page import Page, PageKey, Site
from headway.policy.ordering import make_ordering
from headway.sim.synthetic import SyntheticSpec, site_sizes
from headway.units import Instant

ROUNDS = 200_000
INTERVAL_S = 15.0


def main() -> None:
    pages, strategy = int(sys.argv[1]), sys.argv[2]
    spec = SyntheticSpec(pages=pages, sites=max(1, pages // 100), seed=1)
    chance = np.random.default_rng(1)
    site_of = np.repeat(np.arange(spec.sites), site_sizes(spec, chance))
    chance.shuffle(site_of)
    sites = [Site(f"https://www.site-{number:06}.example") for number in range(spec.sites)]
    keys = chance.integers(-(2**63), 2**63 - 1, pages)
    depths = chance.integers(0, 12, pages)
    before = _resident_mib()
    seen, frontier = SeenSet(), Frontier(make_ordering(strategy))
    begun = time.process_time()
    for first in range(0, pages, 20):
        batch = range(first, min(first + 20, pages))
        seen.add_all([PageKey(int(keys[number])) for number in batch])
        for number in batch:
            site = sites[site_of[number]]
            url = f"{site}/section/{number % 97}/page-{number}.html"
            frontier.put(Page(url, site, PageKey(int(keys[number])), int(depths[number])))
    found_us = (time.process_time() - begun) / pages * 1e6
    memory = _resident_mib() - before
    now = 0.0
    frontier.next_site(Instant(now))
    gc.collect()
    lengths = []
    for _ in range(20):
        begun = time.process_time()
        for _ in range(ROUNDS // 20):
            now += 0.002
            room = frontier.next_site(Instant(now))
            if room is None:
                now = float(frontier.next_ready_at(Instant(now)))
                continue
            frontier.take(room)
            frontier.occupy(room.site)
            frontier.free(room.site, Instant(now + INTERVAL_S))
        lengths.append((time.process_time() - begun) / (ROUNDS // 20) * 1e6)
    told = {
        "pages": pages,
        "handed_out_us": float(np.median(lengths)),
        "found_us": found_us,
        "bytes_per_url": memory * 2**20 / pages,
        "seen_bytes_per_url": 8.0,
    }
    print(json.dumps(told))


def _resident_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
