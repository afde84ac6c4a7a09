"""`make bench NAME=fleet`: how a crawl grows with collectors and processes, and what faults do to it.

python -m benchmarks.fleet [growth|coordination|processes|faults ...] [--faults 200] [--seed 1]
"""

from __future__ import annotations

import argparse

from rich.console import Console

from . import coordination, faults, growth, processes

PARTS = ("growth", "coordination", "processes", "faults")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.fleet", description="collectors and processes")
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--collectors", default="1,2,5,10,25,50")
    parser.add_argument("--seconds", type=float, default=20.4, help="of each point of growth")
    parser.add_argument("--copies", type=int, default=2, help="of the web that processes crawl")
    options = parser.parse_args()
    console = Console(width=118)
    for part in options.parts:
        match part:
            case "growth":
                counts = [int(text) for text in options.collectors.split(",")]
                console.print(growth.measure(counts, options.seconds))
            case "coordination":
                for writers in (1, 2, 4):
                    console.print(coordination.measure(writers))
            case "processes":
                console.print(processes.compare(copies=options.copies))
            case "faults":
                console.print(faults.run(options.faults, options.seed))
            case _:
                parser.error(f"there is no part {part!r}")


if __name__ == "__main__":
    main()
