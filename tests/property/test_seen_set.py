"""Both kinds of the set, the C code and its Python twin, are sets."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.seen import PythonSeenSet, check_bits, next_key, seen_set
from headway.model.page import PageKey

KINDS = [PythonSeenSet]
if importlib.util.find_spec("headway.engine._seen_set") is not None:
    from headway.engine._seen_set import SeenSet as CSeenSet

    KINDS.append(CSeenSet)

keys = st.integers(-(2**63), 2**63 - 1).map(PageKey) | st.integers(0, 20).map(PageKey)


NO_CHECKS = np.zeros(0, dtype=np.uint16)


def made(kind, before=(), limit=1 << 18):
    return kind(np.array(before, dtype=np.int64), NO_CHECKS, limit)


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(keys), st.lists(st.lists(keys)), st.integers(0, 8), st.lists(keys))
def test_it_is_a_set_whatever_is_merged_when(
    kind, before: list[PageKey], batches: list[list[PageKey]], limit: int, others: list[PageKey]
) -> None:
    seen, model = made(kind, before, limit), set(before)
    for batch in batches:
        new = seen.add_all(batch)
        assert [batch[position] for position in new] == list(
            dict.fromkeys(k for k in batch if k not in model)
        )
        model.update(batch)
        assert len(seen) == len(model)
    assert all(key in seen for key in model)
    assert [key in seen for key in others] == [key in model for key in others]


@pytest.mark.parametrize("kind", KINDS)
@given(st.lists(st.tuples(st.booleans(), st.lists(keys))), st.sampled_from([0, 16, 64]))
def test_it_is_a_set_also_where_keys_come_without_being_asked_about(
    kind, batches: list[tuple[bool, list[PageKey]]], limit: int
) -> None:
    seen, model = made(kind, limit=limit), set[PageKey]()
    for is_many, batch in batches:
        if is_many:
            seen.add_many(np.array(batch, dtype=np.int64), NO_CHECKS)
        else:
            assert {batch[place] for place in seen.add_all(batch)} == set(batch) - model
        model.update(batch)
        assert len(seen) == len(model)
    assert all(key in seen for key in model)


few_keys = st.sampled_from([0, 1, -1, 2, 1 << 48, (1 << 48) + 1, -(1 << 48), 5 << 48]).map(PageKey)
pages = st.lists(st.tuples(few_keys, st.integers(0, 3)), max_size=12)


@pytest.mark.parametrize("kind", KINDS)
@given(pages, st.lists(st.tuples(st.booleans(), pages)), st.sampled_from([0, 3, 64]))
def test_a_key_belongs_to_the_first_page_that_had_it(kind, before, batches, limit: int) -> None:
    """Check bits of 0 are not known, and agree with all."""
    model: dict[PageKey, int] = {}

    def wanted(batch: list[tuple[PageKey, int]]) -> list[int]:
        places = []
        for position, (key, check) in enumerate(batch):
            if key not in model:
                model[key] = check
                places.append(position)
            elif check and model[key] and model[key] != check:
                places.append(~position)
        return places

    def columns(batch: list[tuple[PageKey, int]]):
        keys = np.array([key for key, _ in batch], dtype=np.int64)
        return keys, np.array([check for _, check in batch], dtype=np.uint16)

    before = list(dict(before).items())
    wanted(before)
    seen = kind(*columns(before), limit)
    for is_many, given_batch in batches:
        batch = list(dict(given_batch).items()) if is_many else given_batch
        expected = wanted(batch)
        if is_many:
            seen.add_many(*columns(batch))
        else:
            assert seen.add_all([key for key, _ in batch], [check for _, check in batch]) == expected
        assert len(seen) == len(model)
    for key, check in model.items():
        for asked in range(4):
            assert seen.add_all([key], [asked]) == ([-1] if check and asked and check != asked else [])


def test_a_page_whose_key_is_taken_tries_others_and_is_told_by_its_check_bits() -> None:
    tried = PageKey(7)
    keys_tried = set()
    for _ in range(1000):
        keys_tried.add(tried)
        tried = next_key(tried)
        assert -(2**63) <= tried < 2**63
    assert len(keys_tried) == 1000
    bits = {check_bits(f"http://a.example/{number}") for number in range(10_000)}
    assert len(bits) > 9000
    assert 0 not in bits


@pytest.mark.parametrize("kind", KINDS)
@given(keys)
def test_a_key_is_new_once(kind, key: PageKey) -> None:
    seen = made(kind)
    assert seen.add(key)
    assert not seen.add(key)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_grows_keeps_what_is_in_it(kind) -> None:
    seen = made(kind)
    numbers = [PageKey(number * 1_000_003 - 50_000) for number in range(100_000)]
    assert seen.add_all(numbers) == list(range(len(numbers)))
    assert seen.add_all(numbers) == []
    assert len(seen) == len(numbers)


def test_one_is_made_of_whatever_keys_there_are() -> None:
    for keys_before in ((), [PageKey(3), PageKey(1)], np.array([3, 1, 3], dtype=np.int64)):
        seen = seen_set(keys_before)
        assert len(seen) == len(set(keys_before))
        assert not seen.add_all([PageKey(int(key)) for key in keys_before])


@pytest.mark.skipif(len(KINDS) == 1, reason="headway was built without a compiler")
def test_what_is_no_key_is_refused_and_changes_nothing() -> None:
    seen = made(KINDS[-1])
    for wrong in ("a", 1.5, None):
        with pytest.raises(TypeError):
            seen.add(wrong)
        with pytest.raises(TypeError):
            seen.add_all([1, wrong])
    with pytest.raises(OverflowError):
        seen.add(1 << 64)
    assert len(seen) == 1
