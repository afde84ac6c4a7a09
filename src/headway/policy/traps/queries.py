"""Parameters that are combined without end: few values, many addresses."""

from __future__ import annotations

from headway.policy.forgetting import keep_last

FEWEST_ADDRESSES = 512
COMBINED = 8
"""So many addresses for each value: a list of things has one new value or more for each address."""
_MOST_VALUES = 4096
_MOST_PATHS = 64


class _Tally:
    __slots__ = ("addresses", "values")

    def __init__(self) -> None:
        self.addresses = 0
        self.values: set[int] | None = set()
        """None: too many to be anything but a list of things."""


class QueryWatch:
    """One site's paths that are asked with two parameters or more."""

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: dict[str, _Tally] = {}

    def is_combination(self, path: str, pairs: list[str]) -> bool:
        """Count one more address; True if it is only another combination, and there were enough of those."""
        tally = self._paths.get(path)
        if tally is None:
            tally = self._paths[path] = _Tally()
            keep_last(self._paths, _MOST_PATHS)
        if tally.values is None:
            return False
        values = {hash(pair) for pair in pairs}
        if tally.addresses >= FEWEST_ADDRESSES and tally.addresses >= COMBINED * len(tally.values | values):
            return True
        tally.addresses += 1
        tally.values |= values
        if len(tally.values) > _MOST_VALUES:
            tally.values = None
        return False
