"""What goes wrong in a simulated web: pages that are gone, pages that fail at first, sites that are down."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.model.outcome import Kind, Outcome

ERROR_PAGE_BYTES = 400


@dataclass(frozen=True, slots=True)
class Trouble:
    is_missing: NDArray[np.bool_]
    """By page: answered with 404."""
    fails_first: NDArray[np.int8]
    """By page: how many attempts meet a server error before one succeeds."""
    is_down: NDArray[np.bool_]
    """By site: no connection is ever accepted."""

    @classmethod
    def drawn(
        cls, pages: int, sites: int, seed: int, *, missing: float = 0.0, flaky: float = 0.0, down: float = 0.0
    ) -> Trouble:
        """Each page or site meets its trouble with the given probability; so does each further attempt."""
        for name, share in (("missing", missing), ("flaky", flaky), ("down", down)):
            if not 0.0 <= share < 1.0:
                raise HeadwayError(f"a share of {share} {name} is not between 0 and 1")
        chance = np.random.default_rng([seed, 0x7B])
        is_missing = chance.random(pages) < missing
        fails = np.minimum(chance.geometric(1.0 - flaky, pages) - 1, 100).astype(np.int8)
        return cls(is_missing, fails, chance.random(sites) < down)

    @property
    def is_only_missing(self) -> bool:
        """No page is ever tried twice."""
        return not self.fails_first.any() and not self.is_down.any()

    def outcome(self, page: int, site: int, attempt: int, size_bytes: int) -> Outcome:
        """How an attempt (the first is 0) will end, but for the time that it takes."""
        if self.is_down[site]:
            return Outcome(Kind.CONNECT, keep_alive=False)
        if self.is_missing[page]:
            return Outcome(Kind.MISSING, 404, ERROR_PAGE_BYTES)
        if attempt < self.fails_first[page]:
            return Outcome(Kind.SERVER_ERROR, 500, ERROR_PAGE_BYTES)
        return Outcome(Kind.FETCHED, 200, size_bytes, content_bytes=size_bytes)
