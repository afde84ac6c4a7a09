"""`make bench NAME=allocation`: what allocation costs as sites grow, and what headway's rates gain.

Options: --draws N (jobs of fifty sites for each table), --only speed|quality|overload, --search S (seconds of
search for the best known tardiness of each job).
"""

from __future__ import annotations

import argparse

from rich.console import Console

from .quality import gain_table, overload_table, wrong_estimates_table
from .speed import decision_table, growth_table


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.allocation", description=__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--only", choices=("speed", "quality", "overload"))
    parser.add_argument("--search", type=float, default=10.0)
    options = parser.parse_args()
    console = Console(width=120)
    if options.only in {None, "speed"}:
        console.print(growth_table())
        console.print(decision_table())
    if options.only in {None, "quality"}:
        console.print(gain_table(options.draws, capped=False))
        console.print(gain_table(options.draws, capped=True))
        console.print(wrong_estimates_table(options.draws))
    if options.only in {None, "overload"}:
        console.print(overload_table((50, 150, 200, 1000, 10_000), options.search))


if __name__ == "__main__":
    main()
