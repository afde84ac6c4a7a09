"""Traps are cut, ordinary sites are not, and memory stays bounded, whatever the addresses and contents."""

from __future__ import annotations

import random
from unittest.mock import Mock

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model.page import Kind, Outcome, Page, PageKey, Site
from headway.policy import traps
from headway.policy.traps import (
    COMBINED_QUERY,
    CREDIT,
    EVERY_BIT,
    NUMBERING,
    REPEATING_PATH,
    SAME_PAGE,
    SESSION_ID,
    Mirrors,
    TrapWatch,
    distance,
)
from headway.store.reader import RunReader
from headway.units import Instant
from headway.view.summary import count_clusters, noticed

NOW = Instant(1_790_000_000.0)
SITE = Site("https://a.example")
NAMES = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)
DICE = st.integers(0, 2**32).map(random.Random)
FINGERPRINTS = st.integers(-(2**63), 2**63 - 1).filter(bool)


def page(path: str, site: Site = SITE) -> Page:
    return Page(site + path, site, PageKey(hash((site, path))))


def fetched(fingerprint: int, kind: Kind = Kind.FETCHED) -> Outcome:
    return Outcome(kind, 200, fingerprint=fingerprint)


def bits_flipped(fingerprint: int, count: int, dice: random.Random) -> int:
    flipped = fingerprint
    for bit in dice.sample(range(63), count):
        flipped ^= 1 << bit
    return flipped or fingerprint


@given(st.lists(NAMES, min_size=1, max_size=4), st.lists(NAMES, max_size=3), st.lists(NAMES, max_size=3))
def test_what_follows_itself_three_times_repeats_itself(
    run: list[str], before: list[str], after: list[str]
) -> None:
    path = "/" + "/".join([*before, *run, *run, *run, *after])
    assert traps.repeats_itself(path)
    assert TrapWatch().judge(NOW, page(path), None) == REPEATING_PATH


@given(st.lists(NAMES, unique=True, max_size=12), st.integers(0, 9999))
def test_a_path_of_different_names_never_repeats_itself(names: list[str], number: int) -> None:
    assert not traps.repeats_itself("/" + "/".join(names))
    assert not traps.repeats_itself(f"/{number}/{number}/{number}/{number}/x")


@given(st.lists(NAMES, min_size=1, max_size=4), st.lists(st.integers(0, 2**64), min_size=2, unique=True))
def test_one_page_is_fetched_under_one_session_id(names: list[str], tokens: list[int]) -> None:
    watch = TrapWatch()
    path = "/" + "/".join([*dict.fromkeys(names), "page.php"])
    verdicts = [watch.judge(NOW, page(f"{path}?id=7&PHPSESSID={token:016x}"), None) for token in tokens]
    assert verdicts == [None] + [SESSION_ID] * (len(tokens) - 1)


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=200))
def test_numbers_under_any_other_name_are_no_session_ids(numbers: list[int]) -> None:
    watch = TrapWatch()
    assert not any(watch.judge(NOW, page(f"/story?sid={number}&s=1"), None) for number in numbers)


@given(st.integers(2, 6), DICE)
@settings(max_examples=20)
def test_combining_few_values_ends(facets: int, dice: random.Random) -> None:
    watch = TrapWatch()
    verdicts = []
    for _ in range(3000):
        pairs = [f"f{number}={dice.randrange(8)}" for number in range(facets)]
        dice.shuffle(pairs)
        verdicts.append(watch.judge(NOW, page("/shop?" + "&".join(pairs)), None))
    assert set(verdicts) == {None, COMBINED_QUERY}
    assert verdicts.index(COMBINED_QUERY) >= 500


@given(st.lists(st.integers(0, 10**9), unique=True, min_size=100, max_size=2000))
@settings(max_examples=20)
def test_a_list_of_things_is_no_combination(numbers: list[int]) -> None:
    watch = TrapWatch()
    assert not any(watch.judge(NOW, page(f"/thing?lang=en&id={number}"), None) for number in numbers)


@given(FINGERPRINTS, DICE)
def test_pages_that_breed_nothing_but_their_like_are_cut_and_what_others_lead_to_is_not(
    likeness: int, dice: random.Random
) -> None:
    watch = TrapWatch()
    asked = 0
    reason = None
    for number in range(10 * CREDIT):
        lesson = watch.learn(
            NOW, page(f"/thing/{number}"), fetched(bits_flipped(likeness, dice.randint(0, 2), dice))
        )
        asked += 1
        reason = watch.judge(NOW, page(f"/thing/{number + 1}"), lesson)
        if reason is not None:
            break
    assert reason == NUMBERING
    assert CREDIT <= asked <= CREDIT + 2
    assert [notice.what for notice in watch.news()] == [NUMBERING]
    elsewhere = watch.learn(NOW, page("/index.html"), fetched(~likeness or 1))
    assert watch.judge(NOW, page("/thing/999999"), elsewhere) is None


@given(DICE)
@settings(max_examples=20)
def test_pages_that_differ_are_never_cut(dice: random.Random) -> None:
    """Random fingerprints are far from one another, as those of pages with something to say are."""
    watch = TrapWatch()
    for number in range(1000):
        lesson = watch.learn(NOW, page(f"/thing/{number}"), fetched(dice.getrandbits(63) | 1))
        assert watch.judge(NOW, page(f"/thing/{number + 1}"), lesson) is None
    assert watch.news() == []


@given(FINGERPRINTS)
def test_the_same_page_at_any_address_is_noticed_and_forgotten_by_no_restart(likeness: int) -> None:
    watch = TrapWatch()
    names = [
        f"/x{'abcdefghij'[number % 10]}{'klmnopqrst'[number // 10 % 10]}{number // 100 * 'z'}"
        for number in range(400)
    ]
    lesson = None
    reasons = []
    for path in names:
        if lesson is not None:
            reasons.append(watch.judge(NOW, page(path), lesson))
        lesson = watch.learn(NOW, page(path), fetched(likeness))
    assert SAME_PAGE in reasons
    notices = watch.news()
    assert [notice.what for notice in notices] == [SAME_PAGE]
    again = TrapWatch()
    again.restore(notices)
    lesson = again.learn(NOW, page("/other"), fetched(likeness))
    assert again.judge(NOW, page("/another"), lesson) == SAME_PAGE


@given(st.lists(st.tuples(NAMES, FINGERPRINTS), min_size=1, max_size=50))
def test_failures_and_pages_without_words_teach_nothing(visits: list[tuple[str, int]]) -> None:
    watch = TrapWatch()
    for name, fingerprint in visits:
        assert watch.learn(NOW, page(f"/{name}"), fetched(fingerprint, Kind.MISSING)) is None
        assert watch.learn(NOW, page(f"/{name}"), fetched(0)) is None
    assert watch.news() == []


@given(st.integers(0, 40), DICE)
def test_clusters_hold_what_is_near_and_nothing_else(wanted: int, dice: random.Random) -> None:
    centres: list[int] = []
    while len(centres) < wanted:
        drawn = dice.getrandbits(47) << 16 | 1  # alike in the bits by which they are found
        if all(distance(drawn, other) > 9 for other in centres):
            centres.append(drawn)
    near = [bits_flipped(centre, dice.randint(0, 3), dice) for centre in centres]
    counted = count_clusters([*centres, *near])
    assert (counted.clusters, counted.pages) == (wanted, 2 * wanted)


@given(st.lists(FINGERPRINTS, max_size=40))
def test_there_are_never_more_clusters_than_pages_in_them(fingerprints: list[int]) -> None:
    counted = count_clusters(fingerprints)
    assert 0 <= 2 * counted.clusters <= counted.pages <= len(fingerprints)


@given(st.lists(FINGERPRINTS, min_size=1, max_size=10), st.integers(2, 4))
def test_a_page_is_no_near_duplicate_of_its_earlier_visits(newest: list[int], visits: int) -> None:
    answers = [
        ("https://a.example", f"/{number}", newest[number] if visit == visits else 7 << 40)
        for visit in range(1, visits + 1)
        for number in range(len(newest))
    ]
    reader = Mock(spec=RunReader)
    reader.outcomes.return_value, reader.notices.return_value = [], []
    reader.fingerprints.return_value = iter(answers)
    expected = count_clusters(newest)
    assert noticed(reader).nearly_alike == ({"https://a.example": expected} if expected.clusters else {})


@given(FINGERPRINTS, FINGERPRINTS)
def test_distance_is_that_of_the_bits(one: int, other: int) -> None:
    assert distance(one, other) == f"{(one ^ other) & EVERY_BIT:b}".count("1")


@given(st.integers(30, 60), DICE)
def test_a_mirror_is_the_site_that_came_second(pages: int, dice: random.Random) -> None:
    mirrors = Mirrors()
    first, second, third = Site("http://a.example"), Site("http://b.example"), Site("http://c.example")
    contents = [(f"/{number}", dice.getrandbits(63)) for number in range(pages)]
    noticed = []
    for path, fingerprint in contents:
        noticed.append(mirrors.learn(first, path, fingerprint))
        noticed.append(mirrors.learn(second, path, fingerprint))
        noticed.append(mirrors.learn(third, path, dice.getrandbits(63)))
    assert [site for site in noticed if site] == [second]
    assert mirrors.mirrors == {second: first}


@given(DICE)
def test_sites_that_share_some_pages_are_no_mirrors(dice: random.Random) -> None:
    mirrors = Mirrors()
    for number in range(200):
        shared = number % 2 == 0
        content = dice.getrandbits(63)
        for site in (Site("http://a.example"), Site("http://b.example")):
            assert mirrors.learn(site, f"/{number}", content if shared else dice.getrandbits(63)) is None
