"""How much memory a job needs, and how much there is: a job that does not fit is refused before it starts.

A rough estimate, on the high side: `benchmarks/sites` measured 290 MB at 100,000 sites and 2.7 GB at
1,000,000. The bytes of a waiting page and of a connection are estimated from their objects.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from headway.config.job import Job
from headway.errors import JobError
from headway.policy.ordering import LearningOrdering
from headway.runtime.runtime import build_ordering
from headway.units import format_size, parse_size

_PROCESS_BYTES = 110e6
_SITE_BYTES = 3_000
"""A site with its queue, its statistics and its seed."""
_WAITING_PAGE_BYTES = 450
_CONNECTION_BYTES = 60_000
_SEEDS_PER_SITE = 1.5
_PAGES_EACH = 8
"""Waiting pages of a site, where the job does not allow fewer."""
_CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def check_fits(job: Job) -> None:
    """JobError, with the figures, if the job needs more memory than it may have."""
    needed = needed_bytes(job)
    wanted = job.file.crawl.memory
    most, whose = (
        (parse_size(wanted), f"memory = {wanted!r}") if wanted else (machine_bytes(), "this machine")
    )
    if needed <= most:
        return
    have = f"{whose} allows {format_size(most)}" if wanted else f"{whose} has {format_size(most)}"
    raise JobError(
        f"a crawl of {job.site_count:,} sites needs about {format_size(needed)} of memory, and {have}; "
        f"give it more, {_advice(job)}"
    )


def needed_bytes(job: Job) -> int:
    """About how much memory a crawl of this job takes."""
    crawl, sites = job.file.crawl, job.site_count
    waiting = min(crawl.waiting_in_memory, _PAGES_EACH * sites)
    if isinstance(build_ordering(job), LearningOrdering):
        waiting = int(sites * _SEEDS_PER_SITE)
    return int(
        _PROCESS_BYTES
        + sites * _SITE_BYTES
        + waiting * _WAITING_PAGE_BYTES
        + min(crawl.max_connections, sites) * _CONNECTION_BYTES
    )


def machine_bytes() -> int:
    """What the machine, or the container, has in all."""
    most = 1 << 62
    with suppress(OSError, ValueError, IndexError):
        line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line)
        most = int(line.split()[1]) * 1024
    for limit in _CGROUPS:
        with suppress(OSError, ValueError):
            most = min(most, int(limit.read_text()))
    return most


def _advice(job: Job) -> str:
    if job.file.crawl.waiting_in_memory > 20_000:
        return "a smaller waiting_in_memory, or fewer sites"
    return "or fewer sites"
