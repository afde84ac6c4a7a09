"""A simulated crawl of many sites with deadlines, by the engine in virtual time. Prints one line of JSON.

python -m benchmarks.sites.simulating SITES
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from headway.config.job import Job, build_job
from headway.config.reading import Source
from headway.config.schema import CrawlTable, JobFile, SiteTable
from headway.runtime.process import look_for_garbage_seldom
from headway.runtime.simulation import DescribedWeb, simulate_job
from headway.sim.web import Servers, make_sites
from headway.units import Instant

PAGES_EACH = 3
PAGE_BYTES = 20_000.0
PAGES_PER_S = 500


def job_of(sites: int) -> Job:
    whole_s = 1.5 * PAGES_EACH * sites / PAGES_PER_S
    tables = tuple(
        SiteTable(url=f"https://www.site{n}.test/", deadline=f"{60 + whole_s * (n + 1) / sites:.0f} s")
        for n in range(sites)
    )
    crawl = CrawlTable(
        bandwidth=f"{PAGE_BYTES * PAGES_PER_S:.0f} B/s",
        interval="1 s",
        max_connections=1000,
        respect_robots=False,
        timezone="UTC",
    )
    return build_job(JobFile(crawl=crawl, site=tables), Source("the benchmark"))


def measure(sites: int) -> dict[str, float]:
    job = job_of(sites)
    homes = [(wish.seeds[0].url,) for wish in job.sites]
    web = make_sites(homes, np.full(sites, PAGES_EACH), np.full(sites, PAGE_BYTES), seed=1)
    described = DescribedWeb.without_trouble(web, Servers.drawn(sites, 1))
    look_for_garbage_seldom()
    begun_s = time.process_time()
    simulated = simulate_job(job, described, Instant(0.0))
    cpu_s = time.process_time() - begun_s
    pages = len(simulated.record.ended_at)
    return {"sites": sites, "pages": pages, "page_s": cpu_s / pages, "is_over": simulated.is_over}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
