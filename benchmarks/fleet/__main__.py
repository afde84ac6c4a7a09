"""`make bench NAME=fleet`: how a crawl grows with collectors and processes, and what faults do to it.

python -m benchmarks.fleet [growth|coordination|bound|processes|faults ...] [--resume] [--keep]
Figures are kept in build/bench-fleet as they come: --resume measures only those that are not there, --most N
no more than so many of them, and --keep writes all that are there into this folder's README, and what follows
from them into the pages on fleets and on scale.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from . import bound, coordination, faults, growth, processes, sizing, telling
from .telling import FAULTS, Row

BUILD, README = Path("build/bench-fleet"), Path(__file__).parent / "README.md"
MARK = "<!-- written by --keep from here on -->\n"
COLLECTORS = (1, 2, 5, 10, 25, 50)
WRITERS, SHARERS, PROCESSES = (1, 2, 4), (1, 2, 4), (1, 2)
FAULTS_A_PART, MOST_PARTS = 25, 20
Measured = Callable[[], Row]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.fleet", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of: {', '.join(PARTS)}; else all")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    chosen = options.parts or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"there is no part {min(unknown)!r}")
    if not (options.resume or options.keep):
        for name in chosen:
            shutil.rmtree(BUILD / name, ignore_errors=True)
    left = options.most
    for name in chosen:
        wanted, tell = PARTS[name]
        for key, measure in wanted():
            path = BUILD / name / f"{key}.json"
            if not path.exists() and left > 0:
                left -= 1
                row = measure()
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(row))
                print(f"{name} {key}: {json.dumps(row)}", flush=True)
        print(tell(_rows(name)))
    if options.keep:
        head = README.read_text(encoding="utf-8").partition(MARK)[0]
        told = [tell(_rows(name)) for name, (_, tell) in PARTS.items()]
        README.write_text(head + MARK + "\n".join(told), encoding="utf-8")
        coordinated, processed = _rows("coordination"), _rows("processes")
        if coordinated:
            sizing.write(sizing.Units.of(coordinated, processed))


def _rows(name: str) -> list[Row]:
    paths = sorted((BUILD / name).glob("*.json"), key=lambda path: int(path.stem))
    return [json.loads(path.read_text()) for path in paths]


def _growths() -> Iterator[tuple[int, Measured]]:
    for count in COLLECTORS:
        yield count, lambda count=count: growth.measure(count)


def _coordinations() -> Iterator[tuple[int, Measured]]:
    for writers in WRITERS:
        yield writers, lambda writers=writers: coordination.measure(writers)


def _bounds() -> Iterator[tuple[int, Measured]]:
    for collectors in SHARERS:
        yield collectors, lambda collectors=collectors: bound.measure(collectors, 30.0)


def _processes() -> Iterator[tuple[int, Measured]]:
    for count in PROCESSES:
        yield count, lambda count=count: processes.measure(count)


def _fault_parts() -> Iterator[tuple[int, Measured]]:
    for seed in range(1, MOST_PARTS + 1):
        if sum(sum(row["faults"].values()) for row in _rows("faults")) >= FAULTS:
            return
        yield seed, lambda seed=seed: faults.part(seed, FAULTS_A_PART)


PARTS: dict[str, tuple[Callable[[], Iterator[tuple[int, Measured]]], Callable[[list[Row]], str]]] = {
    "growth": (_growths, telling.growth),
    "coordination": (_coordinations, telling.coordination),
    "bound": (_bounds, telling.bound),
    "processes": (_processes, telling.processes),
    "faults": (_fault_parts, telling.faults),
}

if __name__ == "__main__":
    main()
