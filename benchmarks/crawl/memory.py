"""Whether memory stays flat: `python -m benchmarks.crawl.memory [--pages 100000] [--plot memory.png]`

The benchmark's web is served again and again under more addresses, until it has so many pages, and headway
crawls it once, everything on. Its resident memory is read every half second beside the number of pages kept.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.manuals import make_web, serve

from . import readme
from .crawlers import headway

EVERY_S = 0.5
HEADINGS = ("pages", "s", "resident MB")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Sample(NamedTuple):
    at_s: float
    pages: int
    resident_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.crawl.memory", description=__doc__)
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--plot", type=Path, help="a picture of it")
    parser.add_argument("--write", action="store_true", help="put the table into the README here")
    options = parser.parse_args()
    once = sum(site.pages for site in make_web())
    sites = make_web(copies=-(-options.pages // once))
    with serve(sites, core=max(os.sched_getaffinity(0))):
        samples = watch([site.url for site in sites])
    rows, growth = table_of(samples)
    for line in [*readme.table(HEADINGS, rows), "", growth]:
        print(line)
    if options.write:
        readme.put("memory", [*readme.table(HEADINGS, rows), "", growth])
    if options.plot is not None:
        plot(samples, options.plot)


def watch(urls: list[str]) -> list[Sample]:
    with tempfile.TemporaryDirectory() as name:
        began = time.monotonic()
        core = str(min(os.sched_getaffinity(0)))
        process = subprocess.Popen(["taskset", "-c", core, *headway(Path(name), urls)])
        pages, samples = Lines(Path(name, "run", "pages.jsonl")), []
        while process.poll() is None:
            time.sleep(EVERY_S)
            try:
                fields = Path(f"/proc/{process.pid}/statm").read_text().split()
            except OSError:
                break
            if len(fields) > 1 and int(fields[1]):
                samples.append(Sample(time.monotonic() - began, pages.count(), int(fields[1]) * PAGE_BYTES))
        if process.wait() != 0:
            raise SystemExit(f"the crawl ended with exit code {process.returncode}")
    return samples


class Lines:
    """How many lines a growing file has, read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self._lines = 0

    def count(self) -> int:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                new = file.read()
            self._read_bytes += len(new)
            self._lines += new.count(b"\n")
        return self._lines


def table_of(samples: list[Sample]) -> tuple[list[tuple[str, str, str]], str]:
    most = max(sample.pages for sample in samples)
    rows = []
    for tenth in range(1, 11):
        sample = next(each for each in samples if each.pages >= most * tenth / 10)
        rows.append((f"{sample.pages:,}", f"{sample.at_s:.0f}", f"{sample.resident_bytes / 1e6:.0f}"))
    first, last = _mean(samples, 0.2, 0.4, most), _mean(samples, 0.8, 1.0, most)
    grown = (last - first) / (0.6 * most)
    said = f"From the second fifth to the last: {(last - first) / 1e6:+.1f} MB, {grown:+.0f} bytes a page."
    return rows, said


def _mean(samples: list[Sample], begin: float, end: float, most: int) -> float:
    part = [each.resident_bytes for each in samples if begin * most <= each.pages <= end * most]
    return sum(part) / len(part)


def plot(samples: list[Sample], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    axes.plot([each.pages / 1000 for each in samples], [each.resident_bytes / 1e6 for each in samples])
    axes.set(xlabel="thousand pages crawled", ylabel="resident memory, MB", ylim=(0, None))
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
