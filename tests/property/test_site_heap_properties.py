"""Both kinds of places, the C code and its Python twin, keep the order that a sorted list would."""

from __future__ import annotations

import importlib.util
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.site_heap import NO_SITE, UNSURE, PythonSiteHeap, SiteHeap

KINDS = [PythonSiteHeap]
if importlib.util.find_spec("headway.engine._site_heap") is not None:
    from headway.engine._site_heap import SiteHeap as CSiteHeap

    KINDS.append(CSiteHeap)

keys = st.integers(0, 5).map(float) | st.floats(allow_nan=False)
numbers = st.integers(0, 12) | st.integers(0, 300)
putting = st.tuples(st.just("put"), numbers, keys, st.integers(0, 3), keys | st.just(UNSURE))
removing = st.tuples(st.just("remove"), numbers)
moving = st.tuples(st.just("move"), keys)
asking = st.tuples(st.just("few"), st.integers(0, 20))


def in_order(model: dict[int, tuple[float, int, float]]) -> list[int]:
    return sorted(model, key=lambda number: (*model[number][:2], number))


@pytest.mark.parametrize("kind", KINDS)
@given(work=st.lists(putting | removing | moving | asking, max_size=60))
def test_the_order_is_that_of_a_sorted_list(kind, work):
    places, other = kind(), kind()
    model: dict[int, tuple[float, int, float]] = {}
    model_of_other: dict[int, tuple[float, int, float]] = {}
    for what, *details in work:
        if what == "put":
            number, key, serial, then = details
            places.put(number, key, serial, then)
            model[number] = key, serial, then
        elif what == "remove":
            places.remove(details[0])
            model.pop(details[0], None)
        elif what == "few":
            assert places.first_few(details[0]) == in_order(model)[: details[0]]
        else:
            due = [number for number in in_order(model) if model[number][0] <= details[0]]
            unsure = places.move_until(details[0], other)
            assert unsure == [number for number in due if math.isnan(model[number][2])]
            for number in due:
                _, serial, then = model.pop(number)
                if not math.isnan(then):
                    model_of_other[number] = then, serial, then
        for each, known in ((places, model), (other, model_of_other)):
            first = in_order(known)[0] if known else NO_SITE
            assert (len(each), each.first()) == (len(known), first)
            assert each.first_key() == (known[first][0] if known else math.inf)


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_compared_comes_last(kind):
    places = kind()
    places.put(0, math.nan, 0, 0.0)
    places.put(1, 1e300, 1, 0.0)
    assert places.first_few(2) == [1, 0]


@pytest.mark.skipif(len(KINDS) < 2, reason="headway was built without a compiler")
def test_what_is_no_number_of_a_site_is_refused_by_the_c_code():
    places = SiteHeap()
    for wrong in (-1, 2**40, 2**80, "1", None):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            places.put(wrong, 0.0, 0, 0.0)
        with pytest.raises((TypeError, ValueError, OverflowError)):
            places.remove(wrong)
    with pytest.raises(TypeError, match="move_until"):
        places.move_until(0.0, places)
    assert len(places) == 0
