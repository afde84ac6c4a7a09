"""`python -m benchmarks.squid [--short]`: about six minutes."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys

from benchmarks.squid import announcing, freshness, proxying
from tests.support.squid import find_squid

_GOAL = 0.97
"""Of the requests a second of a Squid with nothing."""


def _print_proxying(rounds: int, kinds: set[str]) -> bool:
    """Whether users notice nothing of the helper."""
    is_met = True
    loads = tuple(load for load in proxying.LOADS if load.kind in kinds)
    for load, found in proxying.measure(rounds, loads).items():
        print(
            f"\n{load.name}; {rounds} rounds of {load.seconds:g} s\n\n"
            "| Squid with | requests/s | ratio | quartiles | Squid's CPU, us a request | ms, median | 99% |\n"
            "|---|---|---|---|---|---|---|"
        )
        for name, row in found.items():
            middle, low, high = proxying.ratio(found, name)
            if load.kind == "browsing" and name.startswith("our helper"):
                is_met &= middle >= _GOAL
            each, squid_us, median_ms, p99_ms = (
                statistics.median(values)
                for values in (row.requests_per_s, row.squid_us, row.median_ms, row.p99_ms)
            )
            print(
                f"| {name} | {each:.0f} | {middle:.3f} | {low:.3f}-{high:.3f} | {squid_us:.0f} | "
                f"{median_ms:.2f} | {p99_ms:.2f} |"
            )
    return is_met


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.squid", description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=["proxying", "announcing", "freshness"])
    parser.add_argument("--load", choices=["browsing", "hits"], help="of the requests through Squid")
    options = parser.parse_args()
    is_met = True
    if options.only in {None, "proxying"} and find_squid() is not None:
        is_met &= _print_proxying(
            3 if options.short else 9, {options.load} if options.load else {"browsing", "hits"}
        )
    if options.only in {None, "announcing"}:
        is_met &= _print_announcing(20_000 if options.short else 200_000)
    if options.only in {None, "freshness"}:
        _print_freshness(200 if options.short else 500, (7.0,) if options.short else (2.0, 7.0, 30.0))
    sys.exit(0 if is_met else 1)


def _print_announcing(count: int) -> bool:
    """Whether every one was taken or counted as lost."""
    is_met = True
    print("\n| sent | announced/s | taken | lost and counted | uncounted |\n|---|---|---|---|---|")
    for name, rate in (("10,000 a second", 10_000.0), ("as fast as it goes", 0.0)):
        found = asyncio.run(announcing.measure(count, rate))
        print(
            f"| {count:,} at {name} | {found['announced_per_s']:,.0f} | {found['taken']:,} | "
            f"{found['lost_and_counted']:,} | {found['uncounted']} |",
            flush=True,
        )
        is_met &= not found["uncounted"]
    return is_met


def _print_freshness(pages: int, intervals_days: tuple[float, ...]) -> None:
    print(
        "\n| changes | a visit every | way | freshness | of the fixed interval's | of the optimum's gain | "
        "requests a page and day |\n|---|---|---|---|---|---|---|"
    )
    for web, rates_of in freshness.WEBS.items():
        for every_days in intervals_days:
            result = freshness.compare(rates_of(pages, 8), 40 * every_days, every_days)
            base, best = result["fixed interval"][0], result["optimal for the true rates"][0]
            for name, (fresh, requests) in result.items():
                gain = f"{(fresh - base) / (best - base):.0%}" if fresh > base else ""
                print(
                    f"| {web} | {every_days:g} d | {name} | {fresh:.3f} | {fresh / base:.3f} | {gain} | "
                    f"{requests:.3f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
