"""Live crawls by the product itself, over loopback, and what their run folders say of them."""

from __future__ import annotations

import json
import math
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.foresight.crawls import Crawl, Look, Setting
from benchmarks.foresight.serving import ServedSite
from benchmarks.foresight.webs import SiteGraph

_LONGEST_S = 300.0
_LARGEST_BYTES = 40_000
"""A few pages of hundreds of kilobytes would be most of a crawl of half a minute."""


_FORECASTS_OF_CRAWL = """
    SELECT at, forecast_from_at, forecast_at, forecast_to_at FROM sample WHERE forecast_at > 0 ORDER BY at"""
_FORECASTS_OF_SITES = """
    SELECT site.site, at, course.forecast_from_at, course.forecast_to_at
    FROM course JOIN site ON site.id = course.site_id WHERE course.forecast_to_at > 0 ORDER BY at"""


class LiveSetting(NamedTuple):
    """How a live crawl is made."""

    name: str
    interval_s: float
    bandwidth_bytes_per_s: float
    strategy: str = "length"
    max_connections: int = 256


def served(sites: Sequence[SiteGraph], seed: int, *, slows_after_s: float | None = None) -> list[ServedSite]:
    """The sites on free ports, with servers like those of the simulated crawls."""
    chance = np.random.default_rng([seed, 0x11])
    return [
        ServedSite(
            port,
            [list(links) for links in site.links],
            [min(size, _LARGEST_BYTES) for size in site.sizes],
            float(np.clip(0.06 * math.exp(chance.normal(0.0, 0.6)), 0.005, 0.5)),
            250_000.0 * math.exp(chance.normal(0.0, 0.6)),
            0.35,
            slows_after_s if number <= len(sites) // 2 else None,
        )
        for number, (site, port) in enumerate(zip(sites, _free_ports(len(sites)), strict=True))
    ]


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return ports


@contextmanager
def serving(sites: Sequence[ServedSite], folder: Path) -> Iterator[None]:
    path = folder / "sites.json"
    path.write_text(json.dumps(sites))
    command = [sys.executable, "-m", "benchmarks.foresight.serving", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        if server.stdout.readline() != "ready\n":
            raise RuntimeError("the web server did not start")
        try:
            yield
        finally:
            server.stdin.close()
            server.wait(10)


def job_of(sites: Sequence[ServedSite], setting: LiveSetting) -> str:
    bandwidth = setting.bandwidth_bytes_per_s
    lines = [
        "[crawl]",
        'user_agent = "headway-bench/1.0 (+http://127.0.0.1/bench)"',
        f'interval = "{setting.interval_s:g} s"',
        f'strategy = "{setting.strategy}"',
        f"max_connections = {setting.max_connections}",
        "allow_private = true",
        "respect_robots = false",
    ]
    if math.isfinite(bandwidth):
        lines.append(f'bandwidth = "{bandwidth:.0f} B/s"')
    for site in sites:
        lines += ["", "[[site]]", f'url = "http://127.0.0.1:{site.port}/"']
    return "\n".join(lines) + "\n"


def crawl(sites: Sequence[ServedSite], setting: LiveSetting, out: Path) -> float:
    """Crawl, and return how long it took, from the first request to the last answer."""
    out.parent.mkdir(parents=True, exist_ok=True)
    job = out.with_suffix(".toml")
    job.write_text(job_of(sites, setting))
    command = [sys.executable, "-m", "headway", "crawl", str(job), "--out", str(out), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
    if done.returncode:
        raise RuntimeError(
            f"the crawl {setting.name} ended with {done.returncode}: {done.stderr.strip()[-500:]}"
        )
    return end_of(out)


def end_of(run: Path) -> float:
    with sqlite3.connect(run / "crawl.sqlite") as database:
        ((start, end),) = database.execute(
            "SELECT min(settled_at - duration_s), max(settled_at) FROM page WHERE duration_s > 0"
        ).fetchall()
    return float(end - start)


def simulated_end(run: Path, setting: LiveSetting | None = None, seed: int = 0) -> float:
    """The end by `headway simulate run/`, with other settings if given."""
    command = [sys.executable, "-m", "headway", "simulate", str(run), "--json", "--seed", str(seed)]
    if setting is not None:
        command += ["--interval", f"{setting.interval_s:g} s", "--strategy", setting.strategy]
        if math.isfinite(setting.bandwidth_bytes_per_s):
            command += ["--bandwidth", f"{setting.bandwidth_bytes_per_s:.0f} B/s"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S, check=True)
    (result,) = [json.loads(line) for line in done.stdout.splitlines() if line.strip()] or [{}]
    return float((result[0] if isinstance(result, list) else result)["seconds"])


def as_crawl(run: Path, family: str, setting: Setting) -> Crawl:
    """What a live crawl forecast each second, from its run folder."""
    with sqlite3.connect(run / "crawl.sqlite") as database:
        (began_at,) = database.execute("SELECT started_at FROM crawl").fetchone()
        ends = dict(database.execute("SELECT site, ended_at - ? FROM site WHERE ended_at > 0", (began_at,)))
        rows = database.execute(_FORECASTS_OF_CRAWL).fetchall()
        course = database.execute(_FORECASTS_OF_SITES).fetchall()
    looks = [
        Look(
            at - began_at,
            {},
            max(middle_at - at, 1e-3),
            {},
            (from_at - began_at, to_at - began_at),
            {},
        )
        for at, from_at, middle_at, to_at in rows
    ]
    for site, at, from_at, to_at in course:
        ranges = {site: (from_at - began_at, to_at - began_at)}
        left_s = max((from_at + to_at) / 2 - at, 1e-3)
        looks.append(Look(at - began_at, {site: left_s}, math.nan, ranges, (math.nan, math.nan), {}))
    return Crawl(family, setting, looks, ends, max(ends.values()), (0.8, 0.8))
