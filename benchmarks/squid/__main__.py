"""`python -m benchmarks.squid [--short]`: about three minutes."""

from __future__ import annotations

import argparse
import asyncio

from benchmarks.squid import announcing, freshness, proxying

from headway.testing.squid import find_squid


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.squid", description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=["proxying", "announcing", "freshness"])
    options = parser.parse_args()
    if options.only in {None, "proxying"} and find_squid() is not None:
        print("| Squid with | requests/s | ratio | ms at 300/s, median | 99% |\n|---|---|---|---|---|")
        for name, row in proxying.measure(1.0, 3 if options.short else 9).items():
            print(
                f"| {name} | {row['requests_per_s']:.0f} | {row['ratio']:.3f} | "
                f"{row['median_ms_at_300']:.2f} | {row['p99_ms_at_300']:.2f} |"
            )
    if options.only in {None, "announcing"}:
        print(asyncio.run(announcing.measure(20_000 if options.short else 200_000)))
    if options.only in {None, "freshness"}:
        print(
            "| every | way | freshness | of the fixed interval's | requests a page and day |\n"
            "|---|---|---|---|---|"
        )
        for every_days in (7.0,) if options.short else (2.0, 7.0, 30.0):
            result = freshness.compare(200 if options.short else 500, 40 * every_days, every_days)
            base = result["fixed interval"][0]
            for name, (fresh, requests) in result.items():
                print(f"| {every_days:g} d | {name} | {fresh:.3f} | {fresh / base:.3f} | {requests:.3f} |")


if __name__ == "__main__":
    main()
