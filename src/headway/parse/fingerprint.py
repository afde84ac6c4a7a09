"""A page's likeness in 64 bits: pages that share most of their words differ in few of them.

MinHash over the set of words, one bit of each of 64 hashes: two pages whose sets overlap by the share J
differ in about 32 (1 - J) bits. On a page of few words its pictures count as words too, or all pages of a
gallery would be one.
"""

from __future__ import annotations

import re
import struct
import sys

from rensa import RMinHash  # type: ignore[import-untyped]

from headway.parse import minhash
from headway.parse.compiled import fast

BITS = 64
NO_FINGERPRINT = 0
"""Of what is no page with words: likeness says nothing there."""

FEWEST_WORDS = 4
LONGEST_READ = 32_768
"""Octets: what comes behind them changes little, and a long page would take long."""

_FEW_WORDS = 100
# Two patterns, since the search for one plain beginning is much quicker than that for a choice.
_PICTURES = tuple(
    re.compile(rb"""<%b\b[^<>]*?\b(?:src|SRC)\s*=\s*["']?([^"'\s<>]++)""" % tag) for tag in (b"img", b"IMG")
)
# Finding what stands between tags takes half the time of replacing them.
_VISIBLE = re.compile(rb">[\x00- ]*+([^<\x00- ][^<]*+)")
# All octets up to the blank part words, control characters too: in C that is one comparison.
_BLANKS = bytes(max(ord(" "), octet) for octet in range(256))
_SEED = 1
_SIGN = 1 << (BITS - 1)
_FACTOR = 0x9E3779B97F4A7C15
_ALL_BITS = (1 << 64) - 1
_SLOTS = struct.Struct(f"<{BITS}I")
_NUMBERS = minhash.numbers_of(BITS, _SEED) if RMinHash.ALGORITHM_VERSION == minhash.VERSION else None
_LAST_BIT = bytes(b"01"[octet & 1] for octet in range(256))


def of_page(octets: bytes) -> int:
    """The fingerprint of a page, or of the beginning of a long one."""
    count, hashes = words_of(octets) if fast is None else fast.words(octets, LONGEST_READ)
    if count < _FEW_WORDS:
        beginning = octets[:LONGEST_READ]
        for pictures in _PICTURES:
            found = pictures.findall(beginning)
            hashes += _packed(found)
            count += len(found)
    return _of_hashes(hashes) if count >= FEWEST_WORDS else NO_FINGERPRINT


def words_of(octets: bytes) -> tuple[int, bytes]:
    """How many words there are between the tags, and the hash of each; how often it comes does not matter."""
    words = b" ".join(_VISIBLE.findall(octets[:LONGEST_READ])).translate(_BLANKS).split()
    return len(words), _packed(words)


def _packed(words: list[bytes]) -> bytes:
    return b"".join(hash_of(word).to_bytes(8, sys.byteorder) for word in dict.fromkeys(words))


def hash_of(word: bytes) -> int:
    """64 bits of a word, from eight octets at a time."""
    bits = len(word) * _FACTOR & _ALL_BITS
    for at in range(0, len(word), 8):
        bits = (bits ^ int.from_bytes(word[at : at + 8], "little")) * _FACTOR & _ALL_BITS
        bits ^= bits >> 32
    return bits or 1


def _of_hashes(hashes: bytes) -> int:
    """Signed, since a number in SQLite is."""
    if _NUMBERS is None or fast is None:
        return by_rensa(hashes)
    bits: int = fast.likeness(hashes, _NUMBERS)
    return bits or 1


def by_rensa(hashes: bytes) -> int:
    each = memoryview(hashes).cast("Q")
    sketches = RMinHash.digest_matrix_from_flat_token_hashes(each, (0, len(each)), BITS, _SEED)
    # The last bit of each number, all at once.
    bits = int(_SLOTS.pack(*sketches.to_rows()[0])[::4].translate(_LAST_BIT), 2)
    return bits - (bits & _SIGN) * 2 or 1
