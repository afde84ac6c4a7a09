"""What is crawled: servers of 2004 (10 to 200 KB/s), and a fixed queue of pages in order of score, the
same for every run, as in the paper."""

from __future__ import annotations

import random

import msgspec
from experiments.lab import Link

BOUND_BYTES_PER_S = 140_000.0
SERVERS = 24
QUEUE_LENGTH = 20_000
MEDIAN_PAGE_BYTES = 12_000


class Entry(msgspec.Struct, frozen=True):
    """A page of the queue. `rank` is its place by score: 0 is the best."""

    rank: int
    server: int
    size_bytes: int


def make_links(seed: int = 2004) -> list[Link]:
    """Rates and round trips evenly spread on a logarithmic scale, in no order."""
    chance = random.Random(seed)
    rates = [10_000 * 20 ** (number / (SERVERS - 1)) for number in range(SERVERS)]
    rtts = [0.005 * 30 ** (number / (SERVERS - 1)) for number in range(SERVERS)]
    chance.shuffle(rtts)
    return [Link(round(rate), round(rtt, 4)) for rate, rtt in zip(rates, rtts, strict=True)]


def make_queue(seed: int = 2004) -> list[Entry]:
    chance = random.Random(seed)
    return [
        Entry(
            rank,
            chance.randrange(SERVERS),
            min(150_000, max(500, round(MEDIAN_PAGE_BYTES * chance.lognormvariate(0, 0.8)))),
        )
        for rank in range(QUEUE_LENGTH)
    ]
