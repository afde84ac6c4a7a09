"""The parts of the whole bench: what is run, for how long at most, and in the quick form."""

from __future__ import annotations

from pathlib import Path

import msgspec

KEPT = Path("build/bench")


class Part(msgspec.Struct, frozen=True):
    name: str
    title: str
    whole: tuple[str, ...]
    limit_s: float
    quick: tuple[str, ...]
    quick_limit_s: float
    judges: bool = False
    """Exit code 1 says that a goal was missed, and not that the part broke."""

    def verdict(self, exit_code: int | None) -> str:
        if exit_code is None:
            return "out of time"
        if exit_code == 1 and self.judges:
            return "done, a goal was missed"
        return "failed" if exit_code else "done"


def _kept(name: str) -> tuple[str, str]:
    return "--json", str(KEPT / f"{name}.json")


_A_FEW_SITES = ("--copies", "1", "--every", "8", "--rounds", "1", "--at-most", "40")
_DEADLINES = ("benchmarks.scrapy", "deadlines")
PARTS = (
    Part(
        "peers",
        "pages a second, CPU and memory, coverage",
        ("benchmarks.whole.peers", *_kept("peers")),
        1200.0,
        (
            "benchmarks.whole.peers",
            *_kept("peers"),
            *_A_FEW_SITES,
        ),
        300.0,
    ),
    Part(
        "limits",
        "programs with a bandwidth limit",
        ("benchmarks.whole.limits", *_kept("limits")),
        400.0,
        ("benchmarks.whole.limits", *_kept("limits"), "--seconds", "8"),
        180.0,
    ),
    Part(
        "bandwidth",
        "headway's pacer in the lab, setting by setting",
        ("benchmarks.bandwidth", *_kept("bandwidth")),
        1200.0,
        ("benchmarks.bandwidth", "--short", *_kept("bandwidth"), "--only", "140KB/s", "--only", "1MB/s"),
        120.0,
        judges=True,
    ),
    Part(
        "deadlines",
        "deadlines of zhu2020's six sites as six Scrapy spiders, beside plain Scrapy",
        (*_DEADLINES, "--write"),
        700.0,
        (*_DEADLINES, "--scale", "0.1", "--policy", "headway", "--policy", "plain"),
        200.0,
        judges=True,
    ),
    Part(
        "resume",
        "kill -9, and the same command again",
        ("benchmarks.whole.resume", *_kept("resume")),
        900.0,
        ("benchmarks.whole.resume", *_kept("resume"), "--every", "17"),
        240.0,
    ),
    Part(
        "faults",
        "headway killed again and again",
        ("benchmarks.faults", "--kills", "100"),
        1200.0,
        ("benchmarks.faults", "--kills", "8", "--pages", "600", "--sites", "12", "--outages", "1"),
        180.0,
    ),
    Part(
        "memory",
        "memory with millions of known URLs",
        ("benchmarks.memory",),
        1500.0,
        ("benchmarks.memory", "--pages", "300000"),
        120.0,
    ),
    Part(
        "addon",
        "what the Scrapy add-on costs",
        ("benchmarks.scrapy", "overhead", "--write"),
        300.0,
        ("benchmarks.scrapy", "overhead", "--pages", "400", "--rounds", "3"),
        120.0,
        judges=True,
    ),
    Part(
        "fetch",
        "headway's fetcher beside other HTTP clients",
        ("benchmarks.fetch",),
        120.0,
        ("benchmarks.fetch", "--seconds", "1"),
        60.0,
    ),
    Part(
        "store",
        "WARC records beside warcio, commits beside memory",
        ("benchmarks.store",),
        300.0,
        ("benchmarks.store", "--urls", "50000", "--batches", "10", "--rounds", "5"),
        90.0,
    ),
    Part(
        "squid",
        "what a listening crawler costs a Squid proxy",
        ("benchmarks.squid",),
        900.0,
        ("benchmarks.squid", "--short", "--only", "announcing"),
        120.0,
        judges=True,
    ),
    Part(
        "simulator",
        "simulated pages a second",
        ("benchmarks.simulator",),
        1500.0,
        ("benchmarks.simulator", "--only", "growth", "--most", "100000"),
        180.0,
    ),
    Part(
        "allocation",
        "what an allocation takes, and what headway's gains",
        ("benchmarks.allocation",),
        900.0,
        ("benchmarks.allocation", "--only", "speed"),
        120.0,
    ),
)
