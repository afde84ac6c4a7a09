"""The rows of the table: which lab, which crawler, which bound, and what has to be reached."""

from __future__ import annotations

import msgspec
from benchmarks.bandwidth.drive import Drive, Phase
from experiments.lab import Link

KB, MB = 1e3, 1e6
RTTS_S = (0.150, 0.100, 0.075, 0.050, 0.030, 0.020, 0.010, 0.005)
MIXED = [
    Link(rate * KB, rtt) for rate, rtt in zip((50, 100, 200, 400, 600, 1000, 1500, 2000), RTTS_S, strict=True)
]
FAST = [Link(rate * MB, rtt) for rate, rtt in zip((3, 4, 5, 6, 8, 10, 12, 12), RTTS_S, strict=True)]
EVEN = [Link(2 * MB, rtt) for rtt in RTTS_S]
PAPER = [Link(rate * KB, rtt) for rate, rtt in zip((10, 15, 20, 25, 30, 40, 50, 60), RTTS_S, strict=True)]
NEAR = [Link(200 * MB, 0.0)] * 8
SLOWER_THAN_ALLOTTED = [Link(20 * KB, 0.150), Link(40 * KB, 0.100), *EVEN[2:]]


class Setting(msgspec.Struct, frozen=True):
    name: str
    explained: str
    target: str
    links: list[Link]
    drive: Drive
    least_use: float | None = None
    most_over: float | None = None
    check_sites: bool = False
    compared: bool = False
    """Whether `use` is relative to what the same crawler reaches without a bound, where that is less."""


def settings(seconds: float) -> list[Setting]:
    return [
        *_sizes(seconds),
        *_few_sites(seconds),
        *_https(seconds),
        _paced("140KB/s", "eight servers of 50 KB/s to 2 MB/s", MIXED, 140 * KB, 12 * KB, seconds),
        _paced(
            "140KB/s-slow",
            "eight servers of 10 to 60 KB/s, as in the paper",
            PAPER,
            140 * KB,
            12 * KB,
            seconds,
        ),
        _paced("1MB/s", "the same lab", MIXED, 1 * MB, 60 * KB, seconds),
        _paced("20MB/s", "eight servers of 3 to 12 MB/s", FAST, 20 * MB, 2 * MB, seconds),
        _weights("weights", "weights 1 to 8, reversed in mid-run", EVEN, seconds, check_sites=True),
        _weights("lending", "the same, two sites slower than their share", SLOWER_THAN_ALLOTTED, seconds),
        _bounds("bounds", "the bound changed in mid-run: 400, 100, 800 KB/s", seconds),
        _faults("faults", "one server stalls and one trickles a byte a second", seconds),
        _other("admission-6", "prediction and admission, maxd 6, no pacing", "admitted", MIXED, seconds, 6),
        _other("admission-6-slow", "the same, servers of 10 to 60 KB/s", "admitted", PAPER, seconds, 6),
        _other("admission-2-slow", "the same, maxd 2", "admitted", PAPER, seconds, 2),
        _other("naive", "start a fetcher below the bound, stop one above", "naive", MIXED, seconds, 6),
    ]


def _sizes(seconds: float) -> list[Setting]:
    """From 64 kbit/s to 1 Gbit/s, the page sizes of a crawler that is not too small for each."""
    rows = [
        # A packet is 19% of a second, and then 4.7%; where a second begins, it may have one or two more.
        ("64kbit/s", 8 * KB, MIXED, 4 * KB, 0.38),
        ("256kbit/s", 32 * KB, MIXED, 8 * KB, 0.095),
        ("500kbit/s", 62.5 * KB, MIXED, 12 * KB, 0.05),
        ("1Mbit/s", 125 * KB, MIXED, 12 * KB, 0.03),
        ("10Mbit/s", 1.25 * MB, MIXED, 60 * KB, 0.03),
        ("100Mbit/s", 12.5 * MB, FAST, 500 * KB, 0.03),
        ("1Gbit/s", 125 * MB, NEAR, 3 * MB, 0.03),
    ]
    return [
        _paced(name, "eight servers", links, bound, page, seconds, over)
        for name, bound, links, page, over in rows
    ]


def _https(seconds: float) -> list[Setting]:
    """Handshakes and records count, too. An interval that outlasts the server's keep-alive means a new
    connection for each page, whose TLS session is resumed."""
    rows = [
        ("https-140KB/s", "eight servers, TLS", 140 * KB, 15 * KB, True),
        ("https-1MB/s", "eight servers, TLS", 1 * MB, 60 * KB, True),
        ("https-new-140KB/s", "a new connection for each page, resumed", 140 * KB, 15 * KB, False),
        ("https-new-1MB/s", "a new connection for each page, resumed", 1 * MB, 60 * KB, False),
    ]
    return [
        Setting(
            name,
            explained,
            "paced",
            MIXED,
            Drive(seconds, [Phase(0.0, bound)], page, secure=True, kept=kept),
            0.97 if kept else 0.95,
            0.05,
        )
        for name, explained, bound, page, kept in rows
    ]


def _few_sites(seconds: float) -> list[Setting]:
    """Sites that could fill the bound, but for the time in which their servers are asked."""
    found = []
    for sites, word in ((1, "one"), (2, "two"), (5, "five")):
        for bound, page, round_trip_s in (
            (200 * KB, 60 * KB, 0.05),
            (400 * KB, 15 * KB, 0.02),
            (MB, 60 * KB, 0.05),
        ):
            links = [Link(10 * MB, round_trip_s)] * sites
            drive = Drive(seconds, [Phase(0.0, bound)], page)
            explained = f"{word}, pages of {page / KB:.0f} KB, {1000 * round_trip_s:.0f} ms"
            name = f"{word}-{bound / KB:.0f}KB/s"
            found.append(Setting(name, explained, "paced", links, drive, 0.95, 0.05, compared=True))
    return found


def _paced(
    name: str,
    explained: str,
    links: list[Link],
    bound: float,
    page: float,
    seconds: float,
    over: float = 0.03,
) -> Setting:
    drive = Drive(seconds, [Phase(0.0, bound)], page)
    return Setting(name, explained, "paced", links, drive, 0.97, over)


def _weights(
    name: str, explained: str, links: list[Link], seconds: float, *, check_sites: bool = False
) -> Setting:
    bound, weights = 1 * MB, [float(weight) for weight in range(1, 9)]
    rates = [bound * weight / sum(weights) for weight in weights]
    middle = round(seconds / 2)
    drive = Drive(seconds, [Phase(0.0, bound, rates), Phase(middle, bound, rates[::-1])], 400 * KB)
    return Setting(name, explained, "paced", links, drive, 0.97, 0.05, check_sites)


def _bounds(name: str, explained: str, seconds: float) -> Setting:
    third = round(seconds / 3)
    phases = [Phase(0.0, 400 * KB), Phase(third, 100 * KB), Phase(2 * third, 800 * KB)]
    return Setting(name, explained, "paced", MIXED, Drive(seconds, phases, 30 * KB), 0.97, 0.05)


def _faults(name: str, explained: str, seconds: float) -> Setting:
    manners = ["", "stall", "", "", "trickle", "", "", ""]
    drive = Drive(seconds, [Phase(0.0, 300 * KB)], 30 * KB, manners=manners)
    return Setting(name, explained, "paced", EVEN, drive, 0.97, 0.05)


def _other(name: str, explained: str, target: str, links: list[Link], seconds: float, depth: int) -> Setting:
    drive = Drive(seconds, [Phase(0.0, 140 * KB)], 12 * KB, max_depth=depth)
    return Setting(name, explained, target, links, drive)
