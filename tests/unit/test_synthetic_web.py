"""Made-up webs have the traits that they promise, and repeat."""

from __future__ import annotations

import numpy as np
import pytest

from headway.errors import JobError
from headway.sim.web import Servers, SyntheticSpec, Web, make_web

SPEC = SyntheticSpec(pages=20_000, sites=300, seed=4)


@pytest.fixture(scope="module")
def web() -> Web:
    return make_web(SPEC)


def test_it_has_the_pages_and_sites_that_were_asked_for(web: Web) -> None:
    assert web.pages == 20_000
    assert len(web.sites) == 300
    assert web.site_sizes().min() >= 1
    assert len(web.starts) == web.pages + 1
    assert web.targets.min() >= 0
    assert web.targets.max() < web.pages


def test_rows_are_ascending_without_a_page_linking_to_itself(web: Web) -> None:
    sources = np.repeat(np.arange(web.pages), np.diff(web.starts))
    assert not (sources == web.targets).any()
    same_row = sources[1:] == sources[:-1]
    assert (np.diff(web.targets)[same_row] > 0).all()


def test_every_page_can_be_reached_from_the_home_page_of_its_site(web: Web) -> None:
    sources = np.repeat(np.arange(web.pages), np.diff(web.starts))
    within = web.site_of[sources] == web.site_of[web.targets]
    reached = np.zeros(web.pages, dtype=bool)
    reached[web.seeds] = True
    while True:
        more = web.targets[within & reached[sources]]
        if reached[more].all():
            break
        reached[more] = True
    assert reached.all()


def test_few_sites_have_most_pages_and_most_links_stay_at_home(web: Web) -> None:
    sizes = np.sort(web.site_sizes())[::-1]
    assert sizes[:30].sum() > 0.7 * web.pages
    assert np.median(sizes) < 10
    sources = np.repeat(np.arange(web.pages), np.diff(web.starts))
    assert 0.75 < (web.site_of[sources] == web.site_of[web.targets]).mean() < 0.95


def test_the_same_seed_makes_the_same_web_and_another_does_not(web: Web) -> None:
    again, other = make_web(SPEC), make_web(SyntheticSpec(pages=20_000, sites=300, seed=5))
    np.testing.assert_array_equal(again.targets, web.targets)
    np.testing.assert_array_equal(again.size_bytes, web.size_bytes)
    assert not np.array_equal(other.site_sizes(), web.site_sizes())


@pytest.mark.parametrize("spec", [(1, 1), (5, 5), (1000, 1), (30_000, 2)])
def test_odd_shapes_are_made_as_well(spec: tuple[int, int]) -> None:
    pages, sites = spec
    web = make_web(SyntheticSpec(pages=pages, sites=sites))
    assert web.pages == pages
    assert web.site_sizes().max() <= 25_000


def test_a_spec_is_read_as_people_write_it() -> None:
    spec = SyntheticSpec.parse("synthetic:pages=7000, seed=3,locality=0.9,max-site-pages=500")
    assert (spec.pages, spec.sites, spec.seed, spec.locality, spec.max_site_pages) == (7000, 100, 3, 0.9, 500)
    assert SyntheticSpec.parse("synthetic") == SyntheticSpec()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("synthetic:pages=10,sites=20", "10 pages are too few for 20 sites"),
        ("synthetic:pages=100,sites=1,max-site-pages=50", "hold 100 pages"),
        ("synthetic:pages=many", "must be a number"),
        ("synthetic:colour=1", "'colour' is none of"),
        ("synthetic:pages=100,sites=5,locality=3", "locality"),
        ("synthetic:pages=-5", "must be a number"),
    ],
)
def test_a_web_that_is_not_possible_is_refused(text: str, words: str) -> None:
    with pytest.raises(JobError) as caught:
        make_web(SyntheticSpec.parse(text))
    assert words in str(caught.value)


def test_servers_differ_and_all_are_valid() -> None:
    servers = Servers.drawn(5000, 1)
    for column in (servers.connect_s, servers.answer_s, servers.rate_bytes_per_s):
        assert np.isfinite(column).all()
        assert (column > 0).all()
        assert column.std() > 0
