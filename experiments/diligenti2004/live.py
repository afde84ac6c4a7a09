"""headway's own admission in the lab: `headway crawl` with `admission_depth`, and without it (the pacer
alone). CB is what the crawl itself noted each second; what arrived is read at the crawler's interface."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from experiments.diligenti2004.queue import BOUND_BYTES_PER_S, MEDIAN_PAGE_BYTES, make_links
from experiments.lab import Lab, Link, run

from headway.errors import HeadwayError
from headway.runtime.process import INTERRUPTS_CODE
from headway.store.reader import DATABASE, RunReader

SLOW_BOUND_BYTES_PER_S = 12_500.0
"""100 kbit/s."""


class LiveOutcome(msgspec.Struct, frozen=True):
    """One crawl: seconds from `warm_up_s` on."""

    depth: int | None
    """None: the pacer alone."""
    bound_bytes_per_s: float
    measured: list[float]
    predicted: list[float]
    in_progress: list[int]
    longest_wait_s: list[float]
    """Of each site, the longest time without an answer of its own."""
    pages: list[int]
    """Of each site."""

    @property
    def name(self) -> str:
        return "the pacer alone" if self.depth is None else f"maxd {self.depth}"

    def use(self) -> float:
        return float(np.mean(self.measured)) / self.bound_bytes_per_s


def in_the_lab(depth: int | None, bound_bytes_per_s: float, warm_up_s: int, seconds: int) -> LiveOutcome:
    argument = {"depth": depth, "bound": bound_bytes_per_s, "warm_up_s": warm_up_s, "seconds": seconds}
    links = make_links() if bound_bytes_per_s == BOUND_BYTES_PER_S else _eight()
    return msgspec.convert(run("experiments.diligenti2004.live:crawl", links, argument), LiveOutcome)


def _eight() -> list[Link]:
    """Each faster than the bound of 100 kbit/s: none would ever fit beside another by what it can give."""
    return [Link(20_000.0 * 2**number, 0.02 * (1 + number)) for number in range(8)]


async def crawl(lab: Lab, argument: dict[str, Any]) -> LiveOutcome:
    """Called inside the lab."""
    bound, depth = float(argument["bound"]), argument["depth"]
    whole_s = argument["warm_up_s"] + argument["seconds"]
    with tempfile.TemporaryDirectory(prefix="headway-diligenti-") as name:
        folder = Path(name)
        (folder / "job.toml").write_text(_job_file(lab, bound, depth), encoding="utf-8")
        run_folder = folder / "run"
        with lab.recording() as wire:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headway", "crawl", str(folder / "job.toml"), "-o", str(run_folder)),
                "-q",
                env={**os.environ, "HEADWAY_LEARNT": ""},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            began_at = await _began(run_folder)
            await asyncio.sleep(max(0.0, began_at + whole_s + 0.2 - time.time()))
            process.send_signal(signal.SIGINT)
            _, complaint = await process.communicate()
            if process.returncode not in {0, 3, INTERRUPTS_CODE}:
                raise RuntimeError(f"ended with {process.returncode}: {complaint.decode()[-800:]}")
        begin_s = began_at + argument["warm_up_s"] - (time.time() - time.monotonic())
        measured = wire.received.rates(begin_s, begin_s + argument["seconds"])
        with RunReader(run_folder) as reader:
            samples = [each for each in reader.samples() if each.predicted_bytes_per_s is not None]
            answers: dict[str, list[float]] = {server.site: [began_at] for server in lab.servers}
            for page in reader.pages():
                if page.site in answers:
                    answers[page.site].append(page.fetched_at)
    at = np.array([each.at for each in samples]) - began_at
    marks = argument["warm_up_s"] + np.arange(argument["seconds"]) + 0.5
    places = np.clip(np.searchsorted(at, marks), 0, len(at) - 1)
    waits = [max(np.diff([*sorted(times), max(began_at + whole_s, times[-1])])) for times in answers.values()]
    return LiveOutcome(
        depth,
        bound,
        measured.tolist(),
        [float(samples[place].predicted_bytes_per_s or 0.0) for place in places.tolist()],
        [int(samples[place].in_flight or 0) for place in places.tolist()],
        [float(wait) for wait in waits],
        [len(times) - 1 for times in answers.values()],
    )


async def _began(folder: Path) -> float:
    for _ in range(600):
        await asyncio.sleep(0.05)
        if (folder / DATABASE).exists():
            try:
                with RunReader(folder) as reader:
                    return float(reader.started_at)
            except (HeadwayError, sqlite3.Error):
                continue  # it is being made
    raise RuntimeError("the crawl did not begin within 30 s")


def _job_file(lab: Lab, bound: float, depth: int | None) -> str:
    lines = [
        "[crawl]",
        f'bandwidth = "{8 * bound:.0f} bit/s"',
        'interval = "0 s"',
        "allow_private = true",
        # Numbered pages that look alike are what the lab has, and what a trap looks like.
        "traps = false",
    ]
    if depth is not None:
        lines.append(f"admission_depth = {depth}")
    for server in lab.servers:
        lines += ["[[site]]", f'url = "{server.site}/web/{MEDIAN_PAGE_BYTES}/0"']
    return "\n".join(lines) + "\n"
