"""A page's likeness in 64 bits: pages that share most of their words differ in few of them.

MinHash over the set of words, one bit of each of 64 hashes: two pages whose sets overlap by the share J
differ in about 32 (1 - J) bits. On a page of few words its pictures count as words too, or all pages of a
gallery would be one.
"""

from __future__ import annotations

import re
import struct

from rensa import RMinHash  # type: ignore[import-untyped]

from headway.parse.compiled import fast

BITS = 64
NO_FINGERPRINT = 0
"""Of what is no page with words: likeness says nothing there."""

FEWEST_WORDS = 4
LONGEST_READ = 32_768
"""Characters: what comes behind them changes little, and a long page would take long."""

_FEW_WORDS = 100
# Two patterns, since the search for one plain beginning is much quicker than that for a choice.
_PICTURES = tuple(
    re.compile(rf"""<{tag}\b[^<>]*?\b(?:src|SRC)\s*=\s*["']?([^"'\s<>]++)""") for tag in ("img", "IMG")
)
# Finding what stands between tags takes half the time of replacing them.
_VISIBLE = re.compile(r">\s*+([^<\s][^<]*+)")
_SEED = 1
_SIGN = 1 << (BITS - 1)
_NUMBERS = struct.Struct(f"<{BITS}I")
_LAST_BIT = bytes(b"01"[octet & 1] for octet in range(256))


def of_text(text: str) -> int:
    """The fingerprint of a page, or of the beginning of a long one."""
    count, words = words_of(text) if fast is None else fast.words(text, LONGEST_READ)
    if count < _FEW_WORDS:
        beginning = text[:LONGEST_READ]
        for pictures in _PICTURES:
            found = pictures.findall(beginning)
            words += found
            count += len(found)
    return of_words(words) if count >= FEWEST_WORDS else NO_FINGERPRINT


def words_of(text: str) -> tuple[int, list[str]]:
    """How many words there are between the tags, and which; how often each comes does not matter."""
    words = " ".join(_VISIBLE.findall(text[:LONGEST_READ])).split()
    return len(words), words


def of_words(words: list[str]) -> int:
    """Signed, since a number in SQLite is."""
    sketch = RMinHash(num_perm=BITS, seed=_SEED)
    try:
        sketch.update(words)
    except UnicodeEncodeError:  # half a surrogate pair
        sketch.update([word.encode("utf-8", "replace").decode() for word in words])
    # The last bit of each number, all at once.
    bits = int(_NUMBERS.pack(*sketch.digest())[::4].translate(_LAST_BIT), 2)
    return bits - (bits & _SIGN) * 2 or 1
