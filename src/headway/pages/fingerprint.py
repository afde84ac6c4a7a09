"""Recognise content: a digest for identical pages, a 64-bit fingerprint for similar ones.

The fingerprint is MinHash over the set of words, with one bit of each of 64 hashes: two pages whose sets have
the Jaccard similarity J differ in about 32 (1 - J) bits. On a page of few words, its images count as words
too; otherwise all pages of a gallery would be equal.

The hashes are those of R-MinHash in the package rensa (MIT licence). `_fast.c` computes them with the random
numbers that rensa draws; tests compare the two. If rensa changes the algorithm, it increases its version, and
then rensa itself is called.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import sys
from collections.abc import Iterator, Sequence

from rensa import RMinHash  # type: ignore[import-untyped]

from headway.pages import fast, sha1

SHA256 = "sha256"
_FEWEST_IN_LANES = 1 if sha1 is not None and 1 in sha1.ways() else 3
"""Messages for which `_sha1.c` is faster than OpenSSL: one with SHA instructions, otherwise several."""


def content_digests(contents: Sequence[bytes], kind: str = "sha1") -> list[str]:
    """The digest of each content: `sha1:` and base32 as in archives, or `sha256:` and hexadecimal digits.

    It is computed without the content coding, because a server may compress the same page differently for
    every request. For a page without one it is the payload digest of its WARC record, computed once for both.
    """
    if kind == SHA256:
        return ["sha256:" + hashlib.sha256(content).hexdigest() for content in contents]
    return sha1_digests(contents)


def digest_like(known: str, content: bytes) -> str:
    """The digest of a content in the form of a known one, for comparison with it."""
    return content_digests([content], known.partition(":")[0])[0]


def sha1_digests(messages: Sequence[bytes | tuple[bytes, bytes]]) -> list[str]:
    """`sha1:` and base32, the form that archives and their indexes are used to. Several messages take
    half the time of one after the other; two parts of one need not be joined."""
    if sha1 is not None and len(messages) >= _FEWEST_IN_LANES:
        digests: list[str] = sha1.digests(list(messages))
        return digests
    return [_one_sha1(message) for message in messages]


def _one_sha1(message: bytes | tuple[bytes, bytes]) -> str:
    state = hashlib.sha1(usedforsecurity=False)
    for part in (message,) if isinstance(message, bytes) else message:
        state.update(part)
    return "sha1:" + base64.b32encode(state.digest()).decode()


VERSION = 2
"""The `ALGORITHM_VERSION` of rensa that this module reproduces."""

_BITS = (1 << 64) - 1
_ROUNDS = 3
_OF_A_ROUND = 0x3C6EF372FE94F82B
_OF_BUCKETS = 0x6A09E667F3BCC909
_OF_THE_REST = 0xBB67AE8584CAA73B


def numbers_of(slots: int, seed: int) -> bytes:
    """The packed numbers of R-MinHash: a seed per round, one for the rest, a factor and an offset per
    slot."""
    drawn = _drawn(seed)
    pairs = [(next(drawn) | 1, next(drawn)) for _ in range(slots)]
    factor, offset = pairs[0]
    seeds = [offset ^ _OF_BUCKETS ^ (number * _OF_A_ROUND & _BITS) for number in range(_ROUNDS)]
    numbers = [*seeds, factor ^ _OF_THE_REST, *(pair[0] for pair in pairs), *(pair[1] for pair in pairs)]
    return struct.pack(f"={len(numbers)}Q", *numbers)


def _drawn(seed: int) -> Iterator[int]:
    """Random numbers by xoshiro256++, seeded with SplitMix64."""
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


BITS = 64
NO_FINGERPRINT = 0
"""For content with too few words to compare."""

FEWEST_WORDS = 4
LONGEST_READ = 32_768
"""Bytes that are read: the rest changes the fingerprint little, and a long page would take long."""

_FEW_WORDS = 100
# Two patterns, because searching for a fixed prefix is much faster than for alternatives.
_PICTURES = tuple(
    re.compile(rb"""<%b\b[^<>]*?\b(?:src|SRC)\s*=\s*["']?([^"'\s<>]++)""" % tag) for tag in (b"img", b"IMG")
)
# Finding the text between tags takes half the time of replacing the tags.
_VISIBLE = re.compile(rb">[\x00- ]*+([^<\x00- ][^<]*+)")
# All bytes up to the space separate words, including control characters: in C this is one comparison.
_BLANKS = bytes(max(ord(" "), octet) for octet in range(256))
_SEED = 1
_SIGN = 1 << (BITS - 1)
_FACTOR = 0x9E3779B97F4A7C15
_ALL_BITS = (1 << 64) - 1
_SLOTS = struct.Struct(f"<{BITS}I")
_NUMBERS = numbers_of(BITS, _SEED) if RMinHash.ALGORITHM_VERSION == VERSION else None
_LAST_BIT = bytes(b"01"[octet & 1] for octet in range(256))


def of_page(octets: bytes) -> int:
    """The fingerprint of a page, or of the start of a long page."""
    count, hashes = words_of(octets) if fast is None else fast.words(octets, LONGEST_READ)
    if count < _FEW_WORDS:
        beginning = octets[:LONGEST_READ]
        for pictures in _PICTURES:
            found = pictures.findall(beginning)
            hashes += _packed(found)
            count += len(found)
    return _of_hashes(hashes) if count >= FEWEST_WORDS else NO_FINGERPRINT


def words_of(octets: bytes) -> tuple[int, bytes]:
    """The number of words between the tags, and the hashes of the distinct words."""
    words = b" ".join(_VISIBLE.findall(octets[:LONGEST_READ])).translate(_BLANKS).split()
    return len(words), _packed(words)


def _packed(words: list[bytes]) -> bytes:
    return b"".join(hash_of(word).to_bytes(8, sys.byteorder) for word in dict.fromkeys(words))


def hash_of(word: bytes) -> int:
    """A 64-bit hash of a word, eight bytes at a time."""
    bits = len(word) * _FACTOR & _ALL_BITS
    for at in range(0, len(word), 8):
        bits = (bits ^ int.from_bytes(word[at : at + 8], "little")) * _FACTOR & _ALL_BITS
        bits ^= bits >> 32
    return bits or 1


def _of_hashes(hashes: bytes) -> int:
    """Signed, like integers in SQLite."""
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
