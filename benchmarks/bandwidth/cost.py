"""What pacing costs, side by side with the pacer off: `python -m benchmarks.bandwidth.cost [--short]`.

On loopback, servers in another process. Compared are the CPU time of the crawler's process, which means the
same on a busy machine, and pages a second. Runs alternate, and the best of each kind counts.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import Any

import msgspec
from benchmarks.bandwidth.drive import WallClock
from experiments.lab import Lab, Link, run

from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions
from headway.model.page import Kind, Site
from headway.ports import Request
from headway.units import UNBOUNDED, BytesPerSecond

UNHINDERED = Link(1e12, 0.0)
MB = 1e6


class Cost(msgspec.Struct, frozen=True):
    seconds: float
    cpu_s: float
    pages: int
    megabytes: float


async def fetch_for(lab: Lab, argument: dict[str, Any]) -> Cost:
    """Fetch pages of one size from all servers for a while, under a bound or (0) under none."""
    capacity = BytesPerSecond(argument["capacity"]) if argument["capacity"] else UNBOUNDED
    options = ClientOptions(user_agent="headway-benchmark/1.0", allow_private=True)
    fetcher = HttpFetcher(WallClock(), options, capacity_bytes_per_s=capacity)
    pages = received = 0
    until = time.monotonic() + argument["seconds"]

    async def work(site: Site) -> None:
        nonlocal pages, received
        while time.monotonic() < until:
            response = await fetcher.fetch(Request(f"{site}/{argument['size']}/{pages}", site))
            if response.kind is not Kind.FETCHED:
                raise RuntimeError(f"{response.kind}: {response.detail}")
            pages += 1
            received += len(response.payload)

    begun, cpu = time.monotonic(), time.process_time()
    await asyncio.gather(*(work(Site(server.site)) for server in lab.servers))
    took, used = time.monotonic() - begun, time.process_time() - cpu
    await fetcher.aclose()
    return Cost(took, used, pages, received / MB)


def measure(*, sites: int, size: int, capacity: float, seconds: float) -> Cost:
    argument = {"size": size, "capacity": capacity, "seconds": seconds}
    result = run("benchmarks.bandwidth.cost:fetch_for", [UNHINDERED] * sites, argument, loopback=True)
    return msgspec.convert(result, Cost)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bandwidth.cost", description=__doc__)
    parser.add_argument("--short", action="store_true", help="2 s a run instead of 5 s")
    seconds = 2.0 if parser.parse_args().short else 5.0
    off, on = [], []
    for _ in range(5):
        off.append(measure(sites=32, size=12_000, capacity=0, seconds=seconds))
        # Far above what the machine can do: the pacer works and never has to wait.
        on.append(measure(sites=32, size=12_000, capacity=5_000 * MB, seconds=seconds))
    off_ms, on_ms = (min(1000 * cost.cpu_s / cost.pages for cost in costs) for costs in (off, on))
    print("Small pages (12 KB, 32 sites), CPU of the crawler:")
    print(
        f"  pacer off {off_ms:.4f} ms/page, on {on_ms:.4f} ms/page: {on_ms / off_ms - 1:+.1%} (at most +10%)"
    )
    off_rate, on_rate = (max(cost.pages / cost.seconds for cost in costs) for costs in (off, on))
    difference = f"{on_rate / off_rate - 1:+.1%} (at least -10%)"
    print(f"  pacer off {off_rate:,.0f} pages/s, on {on_rate:,.0f} pages/s: {difference}")
    print("Large pages (8 MB, 4 sites):")
    reached = 0.0
    for capacity in (0, 50 * MB, 100 * MB, 200 * MB, 400 * MB):
        cost = measure(sites=4, size=8_000_000, capacity=capacity, seconds=seconds)
        rate, core = cost.megabytes / cost.seconds, cost.cpu_s / cost.seconds
        if capacity:
            reached = max(reached, cost.megabytes / cost.cpu_s)
        name = f"{capacity / MB:.0f} MB/s" if capacity else "no bound"
        print(f"  {name:>8}: {rate:6.1f} MB/s at {core:.2f} of a core; a whole one: {rate / core:.0f} MB/s")
    good = on_ms / off_ms <= 1.10 and on_rate / off_rate >= 0.90 and reached >= 200
    print("met" if good else "MISSED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
