from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headway.frontier.seen import SeenSet
from headway.model.page import PageKey

keys = st.integers(-(2**63), 2**63 - 1).map(PageKey) | st.integers(0, 20).map(PageKey)


@given(st.lists(keys), st.lists(st.lists(keys)), st.integers(0, 8), st.lists(keys))
def test_it_is_a_set_whatever_is_merged_when(
    before: list[PageKey], batches: list[list[PageKey]], limit: int, others: list[PageKey]
) -> None:
    seen, model = SeenSet(before, recent_limit=limit), set(before)
    for batch in batches:
        new = seen.add_all(batch)
        assert [batch[position] for position in new] == list(
            dict.fromkeys(k for k in batch if k not in model)
        )
        model.update(batch)
        assert len(seen) == len(model)
    assert all(key in seen for key in model)
    assert [key in seen for key in others] == [key in model for key in others]


@given(st.lists(st.tuples(st.booleans(), st.lists(keys))), st.sampled_from([0, 16, 64]))
def test_it_is_a_set_also_where_keys_come_without_being_asked_about(
    batches: list[tuple[bool, list[PageKey]]], limit: int
) -> None:
    seen, model = SeenSet(recent_limit=limit), set[PageKey]()
    for is_many, batch in batches:
        if is_many:
            seen.add_many(np.array(batch, dtype=np.int64))
        else:
            assert {batch[place] for place in seen.add_all(batch)} == set(batch) - model
        model.update(batch)
        assert len(seen) == len(model)
    assert all(key in seen for key in model)


@given(keys)
def test_a_key_is_new_once(key: PageKey) -> None:
    seen = SeenSet()
    assert seen.add(key)
    assert not seen.add(key)
