"""How many pages of a crawl hardly differ from others."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headway.policy.duplicates import EVERY_BIT, NEAR_BITS, distance

_BANDS = (0, 16, 32, 48)


class Clusters(msgspec.Struct, frozen=True):
    """Pages that hardly differ, put together."""

    pages: int = 0
    """Those that have another page nearly like them."""
    clusters: int = 0
    largest: int = 0


def count_clusters(fingerprints: Iterable[int]) -> Clusters:
    """Each page goes to the first cluster it is near to, in the order given; time grows with their number.

    Of four bands of bits at least one is the same in two fingerprints that differ in three bits, so that
    only those that share a band are compared.
    """
    sizes: list[int] = []
    centres: list[int] = []
    exact: dict[int, int] = {}
    banded: dict[tuple[int, int], list[int]] = {}
    for signed in fingerprints:
        fingerprint = signed & EVERY_BIT
        number = exact.get(fingerprint)
        if number is None:
            number = _nearest(fingerprint, banded, centres)
            if number is None:
                number = len(centres)
                centres.append(fingerprint)
                sizes.append(0)
                for band in _BANDS:
                    banded.setdefault((band, fingerprint >> band & 0xFFFF), []).append(number)
            exact[fingerprint] = number
        sizes[number] += 1
    shared = [size for size in sizes if size > 1]
    return Clusters(sum(shared), len(shared), max(shared, default=0))


def _nearest(fingerprint: int, banded: dict[tuple[int, int], list[int]], centres: list[int]) -> int | None:
    for band in _BANDS:
        for number in banded.get((band, fingerprint >> band & 0xFFFF), ()):
            if distance(centres[number], fingerprint) <= NEAR_BITS:
                return number
    return None
