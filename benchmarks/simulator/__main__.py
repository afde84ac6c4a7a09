"""`make bench NAME=simulator`: from ten thousand pages to the paper's size, and the live frontier.

Options: --only growth|paths|frontier (repeatable), --most PAGES (3,500,000), --known PAGES (5,000,000).
Figures are kept in build/bench-simulator as they come: --resume measures only those that are not there,
--keep writes all of them into this folder's README.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

SIZES = (10_000, 35_000, 100_000, 350_000, 1_000_000, 3_500_000)
TARGET_S, TARGET_MIB, TARGET_US = 60.0, 4096.0, 10.0
HELD = 200_000
"""What a crawl holds in memory where nothing else is said."""
BUILD, README = Path("build/bench-simulator"), Path(__file__).parent / "README.md"
MARK = "<!-- written by --keep from here on -->\n"
Rows = list[dict[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.simulator", description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument("--known", type=int, default=5_000_000)
    parser.add_argument("--only", action="append", choices=tuple(PARTS))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    if not (options.resume or options.keep):
        for name in options.only or PARTS:
            shutil.rmtree(BUILD / name, ignore_errors=True)
    told = []
    for name in options.only or PARTS:
        measure, tell = PARTS[name]
        told.append(tell(measure(options, BUILD / name)))
        print(told[-1], flush=True)
    if options.keep:
        missing = [name for name in PARTS if name not in (options.only or PARTS)]
        if missing:
            told.append(f"\nNot measured yet: {', '.join(missing)} (`--resume --keep`).\n")
        head = README.read_text(encoding="utf-8").partition(MARK)[0]
        README.write_text(head + MARK + "\n".join(told), encoding="utf-8")


def measure_growth(options: argparse.Namespace, kept: Path) -> Rows:
    return [
        {"size": pages, "strategy": strategy, **run(kept, "crawls", str(pages), strategy)}  # type: ignore[dict-item]
        for pages in SIZES
        if pages <= options.most
        for strategy in ("length", "depth")
    ]


def tell_growth(rows: Rows) -> str:
    lines = [
        f"| {row['size']:,} | {row['strategy']} | {row['cpu_s']:.2f} "
        f"| {row['cpu_s'] / row['pages'] * 1e6:.2f} | {row['peak_mib']:.0f} | {row['web_s']:.1f} "
        f"| {row['days']:.2f} |"
        for row in rows
    ]
    verdicts = [
        f"The paper's size, {row['strategy']}: {row['cpu_s']:.1f} s of {TARGET_S:.0f} and "
        f"{row['peak_mib']:.0f} MiB of {TARGET_MIB:.0f}, "
        + ("met." if row["cpu_s"] < TARGET_S and row["peak_mib"] < TARGET_MIB else "NOT MET.")
        for row in rows
        if row["size"] == SIZES[-1]
    ]
    first, last = rows[0], rows[-2]
    pages, longer = last["pages"] / first["pages"], last["cpu_s"] / first["cpu_s"]
    verdicts.append(
        f"Length with {pages:.0f} times the pages takes {longer:.0f} times as long, "
        f"{longer / pages:.1f} times for each page (caches; the logarithm of a heap)."
    )
    return _section(
        "Crawls of synthetic webs, r = 256, w = 15 s, unbounded link",
        ("pages", "strategy", "CPU s", "us a page", "peak MiB", "making the web, s", "virtual days"),
        lines,
        verdicts,
    )


def measure_paths(_: argparse.Namespace, kept: Path) -> Rows:
    tried = ((10_000, "length"), (10_000, "depth"), (10_000, "batch"), (50_000, "length"))
    rows: Rows = []
    for pages, strategy in tried:
        slow, fast = (run(kept, "crawls", str(pages), strategy, way) for way in ("machine", "arrays"))
        costs = [told["cpu_s"] / told["pages"] * 1e6 for told in (slow, fast)]
        rows.append({"size": pages, "strategy": strategy, "machine": costs[0], "arrays": costs[1]})  # type: ignore[dict-item]
    return rows


def tell_paths(rows: Rows) -> str:
    """The machine itself against the loop on arrays, which decides the same (a property test says so)."""
    lines = [
        f"| {row['size']:,} | {row['strategy']} | {row['machine']:.0f} | {row['arrays']:.2f} "
        f"| {row['machine'] / row['arrays']:.0f} |"
        for row in rows
    ]
    return _section(
        "The machine, and the compiled loop that takes the same decisions: us a page",
        ("pages", "strategy", "machine", "arrays", "times faster"),
        lines,
        [],
    )


def measure_frontier(options: argparse.Namespace, kept: Path) -> Rows:
    rows: Rows = []
    for pages, held in ((100_000, None), (options.known, None), (options.known, HELD)):
        for strategy in ("length", "depth"):
            told = run(kept, "frontier", str(pages), strategy, *([] if held is None else [str(held)]))
            rows.append({"strategy": strategy, "held": held or pages, **told})  # type: ignore[dict-item]
    return rows


def tell_frontier(rows: Rows) -> str:
    lines = [
        f"| {row['pages']:,} | {row['held']:,} | {row['strategy']} | {row['handed_out_us']:.1f} "
        f"| {row['found_us']:.1f} | {row['bytes_per_url']:.0f} |"
        for row in rows
    ]
    most = max(row["pages"] for row in rows)
    worst = max(row["handed_out_us"] for row in rows if row["pages"] == most)
    verdict = "met" if worst < TARGET_US else "NOT MET"
    return _section(
        "The live frontier, all known pages waiting",
        (
            "known pages",
            "in memory",
            "strategy",
            "us to hand one out",
            "us to take one in",
            "bytes a known URL",
        ),
        lines,
        [f"A page in under {TARGET_US:.0f} us at {most:,} known: at most {worst:.1f} us, {verdict}."],
    )


def run(kept: Path, module: str, *args: str) -> dict[str, float]:
    path = kept / f"{'-'.join((module, *args))}.json"
    if not path.exists():
        command = [sys.executable, "-m", f"benchmarks.simulator.{module}", *args]
        text = subprocess.run(command, check=True, capture_output=True).stdout
        kept.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    told: dict[str, float] = json.loads(path.read_bytes())
    return told


def _section(title: str, columns: tuple[str, ...], rows: Iterable[str], verdicts: Iterable[str]) -> str:
    head = ["", f"## {title}", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*head, *rows, "", *verdicts, ""])


PARTS: dict[str, tuple[Callable[[argparse.Namespace, Path], Rows], Callable[[Rows], str]]] = {
    "growth": (measure_growth, tell_growth),
    "paths": (measure_paths, tell_paths),
    "frontier": (measure_frontier, tell_frontier),
}

if __name__ == "__main__":
    main()
