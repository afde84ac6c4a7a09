"""`make bench NAME=allocation`: what allocation costs as sites grow, and what headway's rates gain.

Options: --draws N (jobs of fifty sites for each table), --only speed|quality.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from .quality import gain_table, wrong_estimates_table
from .speed import decision_table, growth_table


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.allocation", description=__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--only", choices=("speed", "quality"))
    options = parser.parse_args()
    console = Console(width=120)
    if options.only != "quality":
        console.print(growth_table())
        console.print(decision_table())
    if options.only != "speed":
        console.print(gain_table(options.draws, capped=False))
        console.print(gain_table(options.draws, capped=True))
        console.print(wrong_estimates_table(options.draws))


if __name__ == "__main__":
    main()
