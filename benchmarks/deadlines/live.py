"""A case as a live crawl: `headway crawl` in a process over loopback, and `headway limit` beside it."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import msgspec
from benchmarks.deadlines.cases import Case
from benchmarks.deadlines.serving import served
from benchmarks.deadlines.simulated import Crawled, is_met

from headway.model.command import Decision
from headway.store.reader import RunReader
from headway.store.run_folder import DECISIONS
from headway.units import Instant


async def crawl(case: Case) -> Crawled:
    async with served(case) as sites:
        with tempfile.TemporaryDirectory(prefix="headway-deadlines-") as folder:
            run = Path(folder, "run")
            job = Path(folder, "job.toml")
            job.write_text(_toml(case, sites.origins), encoding="utf-8")
            process = await _headway("crawl", str(job), "-o", str(run), "-q")
            began_at = await _began(run)
            sites.begin()
            halving = None
            if case.bound_halved_at_s is not None:
                halving = asyncio.create_task(_halve(case, run, case.bound_halved_at_s))
            _, problem = await process.communicate()
            if halving is not None:
                await halving
            if process.returncode not in {0, 3}:
                raise RuntimeError(
                    f"headway crawl ended with {process.returncode}: {problem.decode()[-500:]}"
                )
            return _judge(case, sites.origins, run, began_at)


async def _headway(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headway", *arguments),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )


async def _began(run: Path) -> Instant:
    """When the crawl began: deadlines count from there."""
    for _ in range(400):
        await asyncio.sleep(0.05)
        if (run / DECISIONS).exists():
            with RunReader(run) as reader:
                return reader.started_at
    raise RuntimeError("the crawl did not begin within 20 s")


async def _halve(case: Case, run: Path, at_s: float) -> None:
    await asyncio.sleep(at_s)
    process = await _headway("limit", str(run), f"{4 * case.link_bytes_per_s:.0f} bit/s")
    await process.communicate()


def _judge(case: Case, origins: list[str], run: Path, began_at: Instant) -> Crawled:
    number = {origin: place for place, origin in enumerate(origins)}
    ends: list[float | None] = [None] * len(origins)
    with RunReader(run) as reader:
        for record in reader.sites():
            if record.site in number and record.ended_at is not None:
                ends[number[record.site]] = record.ended_at - began_at
    decoder, messages = msgspec.json.Decoder(Decision), []
    for line in (run / DECISIONS).read_bytes().splitlines():
        if b'"foresee-' in line[:80]:
            decision = decoder.decode(line)
            messages.append((decision.at - began_at, number[str(decision.site)], decision))
    return Crawled(ends, [is_met(case, site, end) for site, end in enumerate(ends)], messages)


def _toml(case: Case, origins: list[str]) -> str:
    tables = case.tables(origins)
    lines = ["[crawl]", *(f"{key} = {_value(value)}" for key, value in tables["crawl"].items())]
    for site in tables["site"]:
        lines += ["[[site]]", *(f"{key} = {_value(value)}" for key, value in site.items())]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode()
