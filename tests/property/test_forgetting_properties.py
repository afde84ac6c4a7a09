"""What stays in a bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.policy.traps import keep_last


@given(st.integers(0, 60), st.lists(st.integers(0, 200), unique=True))
def test_never_keeps_more_than_it_may_and_always_the_latest(most: int, keys: list[int]) -> None:
    entries: dict[int, None] = {}
    for count, key in enumerate(keys, 1):
        entries[key] = None
        keep_last(entries, most)
        assert len(entries) <= most
        assert len(entries) >= min(count, most - most // 8)
        assert list(entries) == keys[count - len(entries) : count]
