"""`python -m benchmarks.simulator.crawls PAGES STRATEGY [machine]`: one crawl in a process of its own."""

from __future__ import annotations

import json
import resource
import sys
import time

from headway.policy.ordering.ranked import Ranks, pagerank
from headway.runtime.simulation import run_crawl, run_machine
from headway.sim.study import Setup
from headway.sim.web import Servers, SyntheticSpec, Web, make_web

ROBOTS = 256


def main() -> None:
    pages, strategy, way = int(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "arrays"
    run = run_machine if way == "machine" else run_crawl
    small = make_web(SyntheticSpec(pages=200, sites=10))
    run(small, Servers.drawn(10, 0), setup_of(small, strategy), ranks=ranks_of(small, strategy))
    begun = time.process_time()
    web = make_web(SyntheticSpec(pages=pages, sites=max(1, round(pages / 70)), seed=1))
    web_s = time.process_time() - begun
    ranks = ranks_of(web, strategy)
    servers = Servers.drawn(len(web.sites), 1)
    wall, cpu = time.perf_counter(), time.process_time()
    record = run(web, servers, setup_of(web, strategy), ranks=ranks)
    told = {
        "pages": record.fetched,
        "web_s": web_s,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "days": record.seconds / 86_400,
    }
    print(json.dumps(told))


def setup_of(web: Web, strategy: str) -> Setup:
    if strategy in {"batch", "partial", "flow"}:
        strategy = f"{strategy}({max(1, web.pages // 35)})"
    return Setup(strategy=strategy, robots=ROBOTS)


def ranks_of(web: Web, strategy: str) -> Ranks | None:
    return pagerank(web.starts, web.targets, tolerance=1e-6) if strategy == "optimal" else None


if __name__ == "__main__":
    main()
