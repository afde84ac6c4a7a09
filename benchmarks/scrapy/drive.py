"""Spiders run inside the lab, in a process of their own, while the wire is counted."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from experiments.lab import Lab, Recording


class Spidering(msgspec.Struct, frozen=True):
    seconds: float
    page_bytes: float
    settings: dict[str, Any]


class Wired(msgspec.Struct, frozen=True):
    samples: list[float]
    """Bytes per second of each whole second, from the first byte that came on."""
    worst_window_bytes_per_s: float
    mean_bytes_per_s: float
    stats: dict[str, Any]
    in_namespaces: bool


async def endless(lab: Lab, argument: Any) -> Wired:
    """A spider that always wants more, for some seconds."""
    spidering = msgspec.convert(argument, Spidering)
    with tempfile.TemporaryDirectory() as folder, lab.recording() as wire:
        stats = Path(folder) / "stats.json"
        servers = ",".join(server.site for server in lab.servers)
        await run_spider(
            "benchmarks.scrapy.spiders.EndlessSpider",
            {"servers": servers, "page_bytes": spidering.page_bytes},
            {**spidering.settings, "CLOSESPIDER_TIMEOUT": spidering.seconds, "HEADWAY_DIR": folder},
            stats,
        )
        found = json.loads(stats.read_text())
    received = wire.received
    begin = first_byte_s(received, 500)
    end = begin + spidering.seconds
    return Wired(
        samples=received.rates(begin, end).tolist(),
        worst_window_bytes_per_s=received.worst_window(begin - 0.5, end),
        mean_bytes_per_s=received.mean_rate(begin + 1.0, end),
        stats=found,
        in_namespaces=lab.in_namespaces,
    )


async def run_spider(spider: str, arguments: dict[str, Any], settings: dict[str, Any], stats: Path) -> float:
    """Seconds that it took, without the start of the process."""
    job = json.dumps({"spider": spider, "arguments": arguments, "settings": settings, "stats": str(stats)})
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.scrapy.process", job, env={**os.environ}, stdout=sys.stderr
    )
    began = time.monotonic()
    code = await process.wait()
    if code:
        raise RuntimeError(f"the spider's process ended with {code}")
    return time.monotonic() - began


def first_byte_s(received: Recording, beyond_bytes: float) -> float:
    """When the spider's first answer began to come: what the process does before that is no concern here."""
    moved = received.total_bytes > received.total_bytes[0] + beyond_bytes
    return float(received.at_s[moved.argmax()])
