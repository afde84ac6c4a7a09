"""The numbers that rensa draws for its R-MinHash, by which `_fast.c` does the same.

The algorithm and its constants are rensa's (MIT licence). Tests compare the two. Where rensa changes its ways
it counts up its version, and is asked itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VERSION = 2
"""Rensa's `ALGORITHM_VERSION` for which this holds."""

_BITS = (1 << 64) - 1
_ROUNDS = 3
_OF_A_ROUND = 0x3C6EF372FE94F82B
_OF_BUCKETS = 0x6A09E667F3BCC909
_OF_THE_REST = 0xBB67AE8584CAA73B


def numbers_of(slots: int, seed: int) -> bytes:
    """The seed of each round and of what is left over; a factor and an offset for each slot."""
    drawn = _drawn(seed)
    pairs = [(next(drawn) | 1, next(drawn)) for _ in range(slots)]
    factor, offset = pairs[0]
    seeds = [offset ^ _OF_BUCKETS ^ (number * _OF_A_ROUND & _BITS) for number in range(_ROUNDS)]
    numbers = [*seeds, factor ^ _OF_THE_REST, *(pair[0] for pair in pairs), *(pair[1] for pair in pairs)]
    return struct.pack(f"={len(numbers)}Q", *numbers)


def _drawn(seed: int) -> Iterator[int]:
    """Random numbers by xoshiro256++, which SplitMix64 gives its first state."""
    a, b, c, d = (_mixed(seed + count * 0x9E3779B97F4A7C15 & _BITS) for count in range(1, 5))
    while True:
        yield _rotated(a + d & _BITS, 23) + a & _BITS
        shifted = b << 17 & _BITS
        c ^= a
        d ^= b
        b ^= c
        a ^= d
        c ^= shifted
        d = _rotated(d, 45)


def _mixed(bits: int) -> int:
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & _BITS
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & _BITS
    return bits ^ bits >> 31


def _rotated(bits: int, by: int) -> int:
    return (bits << by | bits >> (64 - by)) & _BITS
