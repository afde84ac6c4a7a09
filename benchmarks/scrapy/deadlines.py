"""zhu2020's six sites as six Scrapy spiders under one bandwidth: planned against measured, and the wire."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.scrapy.drive import first_byte_s, run_spider
from experiments.lab import Bottleneck, Lab, Link, run

from headway.pacing.wire import estimated_wire_bytes

BOUND_BYTES_PER_S = 125_000.0
"""The paper's U = 1000 kbit/s."""
PAGE_BYTES = 12_000
HEAD_BYTES = 75
SITES = Path(__file__).parents[2] / "examples" / "zhu2020-six.csv"
POLICIES = ("m-maxt", "m-sumt", "headway")
LINKS = [Link(2e6, rtt) for rtt in (0.005, 0.010, 0.015, 0.020, 0.025, 0.030)]


class SiteMeasured(msgspec.Struct, frozen=True):
    name: str
    deadline_s: float
    planned_s: float | None
    took_s: float | None
    data_off: float | None = None
    """How much more crossed the wire than was planned."""


class Measured(msgspec.Struct, frozen=True):
    policy: str
    sites: list[SiteMeasured]
    samples: list[float]
    in_namespaces: bool


class Site(msgspec.Struct, frozen=True):
    name: str
    pages: int
    deadline_s: float

    @property
    def data_bytes(self) -> int:
        return self.pages * estimated_wire_bytes(PAGE_BYTES + HEAD_BYTES)


def sites(scale: float) -> list[Site]:
    with SITES.open() as file:
        return [
            Site(
                row["name"],
                round(scale * float(row["data_bytes"]) / estimated_wire_bytes(PAGE_BYTES + HEAD_BYTES)),
                scale * float(row["deadline_s"]),
            )
            for row in csv.DictReader(file)
        ]


def learn_xi() -> float:
    """The paper's xi, from a short crawl of the same sites: what crosses the wire for what is planned."""
    offs = [site.data_off or 0.0 for site in measure("m-maxt", 0.06).sites]
    return 1 + sum(offs) / len(offs)


def measure(policy: str, scale: float, xi: float = 1.0) -> Measured:
    """With `plain` the link itself is as narrow as the bound: Scrapy could not keep to it by itself."""
    narrow = BOUND_BYTES_PER_S if policy == "plain" else None
    result = run(
        f"benchmarks.scrapy.deadlines:{'plain' if policy == 'plain' else 'with_headway'}",
        LINKS,
        {"policy": policy, "scale": scale, "xi": xi},
        bottleneck=None if narrow is None else Bottleneck(narrow, 1.0),
        timeout_s=165,
    )
    return msgspec.convert(result, Measured)


async def with_headway(lab: Lab, argument: dict[str, Any]) -> Measured:
    wanted = sites(argument["scale"])
    with tempfile.TemporaryDirectory() as folder, lab.recording() as wire:
        job = Path(folder) / "job.toml"
        job.write_text(_job_file(lab, wanted, argument.get("xi", 1.0)))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headway", "run-scrapy", str(job), "-o", f"{folder}/run", "--json", "-q"),
            *("--policy", argument["policy"]),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ},
        )
        out, _ = await process.communicate()
        if process.returncode not in {0, 3}:
            logs = "".join(path.read_text()[-500:] for path in Path(folder, "run", "logs").glob("*"))
            raise RuntimeError(f"run-scrapy ended with {process.returncode}\n{logs}")
        found = json.loads(out)["sites"]
    measured = [
        SiteMeasured(
            site.name,
            site.deadline_s,
            one["planned_end_s"],
            one["end_s"],
            one["wire_bytes"] / one["planned_bytes"] - 1,
        )
        for site, one in zip(wanted, found, strict=True)
    ]
    received = wire.received
    begin = first_byte_s(received, 60_000)
    end = begin + max(site.took_s or 0.0 for site in measured)
    return Measured(argument["policy"], measured, received.rates(begin, end).tolist(), lab.in_namespaces)


async def plain(lab: Lab, argument: dict[str, Any]) -> Measured:
    """Six processes, all at once, with AutoThrottle, as Scrapy's manual advises."""
    wanted = sites(argument["scale"])
    with tempfile.TemporaryDirectory() as folder, lab.recording() as wire:
        # Deadlines count from the same moment as with headway: when the processes are up.
        began = time.time()
        ends = await asyncio.gather(
            *(
                _plain_spider(site, server.site, Path(folder), began)
                for site, server in zip(wanted, lab.servers, strict=True)
            )
        )
    measured = [
        SiteMeasured(site.name, site.deadline_s, None, end) for site, end in zip(wanted, ends, strict=True)
    ]
    received = wire.received
    begin = first_byte_s(received, 1_000)
    samples = received.rates(begin, begin + max(ends)).tolist()
    return Measured("Scrapy, AutoThrottle", measured, samples, lab.in_namespaces)


async def _plain_spider(site: Site, server: str, folder: Path, began: float) -> float:
    stats = folder / f"{site.name}.json"
    settings = {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 0.1, "DOWNLOAD_TIMEOUT": 600}
    arguments = {"server": server, "pages": site.pages, "page_bytes": PAGE_BYTES}
    await run_spider("benchmarks.scrapy.spiders.ListSpider", arguments, settings, stats)
    return float(json.loads(stats.read_text())["elapsed_time_seconds"])


def _job_file(lab: Lab, wanted: list[Site], xi: float) -> str:
    lines = [
        "[crawl]",
        f'bandwidth = "{BOUND_BYTES_PER_S:.0f} B/s"',
        'interval = "0 s"',
        "allow_private = true",
        "respect_robots = false",
        "sitemaps = false",
        "[scrapy.settings]",
        "CONCURRENT_REQUESTS_PER_DOMAIN = 4",
    ]
    for site, server in zip(wanted, lab.servers, strict=True):
        lines += [
            "[[site]]",
            f'url = "{server.site}/"',
            f'deadline = "{site.deadline_s} s"',
            f'data = "{xi * site.data_bytes:.0f} B"',
            'spider = "benchmarks.scrapy.spiders.ListSpider"',
            "[site.arguments]",
            f'server = "{server.site}"',
            f'pages = "{site.pages}"',
            f'page_bytes = "{PAGE_BYTES}"',
        ]
    return "\n".join(lines)
