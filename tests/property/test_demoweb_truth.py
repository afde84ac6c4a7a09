"""The answer key of the demo web holds for every seed and every order of crawling."""

from __future__ import annotations

from random import Random

import can_ada
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protego import Protego
from selectolax.lexbor import LexborHTMLParser

from headway.demoweb import QUICK, Layout, LinkKind, PageDesign, Place, Scope, WebDesign, design_web
from headway.demoweb.content import content_of
from headway.demoweb.model import FOLLOWED_KINDS, HTML_LAYOUTS, LINKING_LAYOUTS, SiteDesign

seeds = st.integers(0, 10_000)
scales = st.sampled_from([0.05, 0.2, 0.7])
slow = settings(max_examples=50, deadline=None)


def origins_of(design: WebDesign, port_base: int = 8100) -> dict[str, str]:
    return {name: f"http://127.0.0.1:{port_base + number}" for number, name in enumerate(design.sites)}


@slow
@given(seed=seeds, scale=scales, order_seed=st.integers(), skipped=st.floats(0, 0.3))
def test_every_order_finds_a_page_first_at_its_designed_depth(
    seed: int, scale: float, order_seed: int, skipped: float
) -> None:
    """Whatever share of pages a crawl passes over, and however it picks the next one."""
    design, order = design_web(seed, scale), Random(order_seed)
    depth_of = {site.home: 0 for site in design.sites.values()}
    waiting = list(depth_of)
    while waiting:
        place = waiting.pop(order.randrange(len(waiting)))
        page = design.page(place)
        if page is None or page.layout not in LINKING_LAYOUTS:
            continue
        if page.depth > 15 or (page.depth and order.random() < skipped):
            continue
        assert depth_of[place] == page.depth
        for link in page.links:
            if link.to is not None and link.to not in depth_of:
                depth_of[link.to] = depth_of[place] + 1
                waiting.append(link.to)


@slow
@given(seed=seeds, scale=scales, max_depth=st.integers(0, 9), queries=st.booleans(), robots=st.booleans())
def test_the_key_is_what_a_plain_breadth_first_crawl_finds(
    seed: int, scale: float, max_depth: int, queries: bool, robots: bool
) -> None:
    design = design_web(seed, scale, roster=("gazette", "almanac", "library"))
    scope = Scope(max_depth=max_depth, follow_queries=queries, respect_robots=robots)

    def is_asked_for(place: Place) -> bool:
        if robots and place.site == "gazette" and place.path.startswith("/drafts/"):
            return False
        return (queries or "?" not in place.path) and not place.path.endswith(".xml")

    found: set[Place] = set()
    level = {site.home for site in design.sites.values()}
    for _ in range(max_depth + 1):
        level = {place for place in level if place not in found and is_asked_for(place)}
        found |= level
        pages = [page for place in level if (page := design.page(place)) is not None]
        level = {link.to for page in pages for link in page.links if link.to is not None}
    assert design.reachable(scope) == found


@slow
@given(seed=seeds, scale=scales, port_base=st.integers(1, 65_000))
def test_every_page_has_exactly_its_designed_size_whatever_the_ports(
    seed: int, scale: float, port_base: int
) -> None:
    design = design_web(seed, scale)
    origins = origins_of(design, port_base)
    for site in design.sites.values():
        for page in site.pages.values():
            if page.size_bytes and page.layout is not Layout.REDIRECT:
                assert len(content_of(site, page, origins)) == page.size_bytes, page.path


def html_pages(design: WebDesign) -> list[tuple[SiteDesign, PageDesign]]:
    return [(s, p) for s in design.sites.values() for p in s.pages.values() if p.layout in HTML_LAYOUTS]


def links_as_a_browser_reads_them(url: str, page: PageDesign, content: bytes) -> set[str]:
    codec = {"utf-16": "utf-16", "utf-8": "utf-8-sig"}.get(page.charset, page.charset)
    tree = LexborHTMLParser(content.decode(codec))
    base_node = tree.css_first("base[href]")
    base = can_ada.parse(url)
    if base_node is not None:
        base = base + base_node.attributes["href"]
    written = [
        str(node.attributes[name])
        for selector, name in (("a, area, link", "href"), ("frame, iframe", "src"))
        for node in tree.css(selector)
    ]
    written += [
        str(node.attributes["content"]).partition("url=")[2] for node in tree.css("meta[http-equiv=refresh]")
    ]
    resolved = (str((base + href).href) for href in written)
    return {href.partition("#")[0] for href in resolved if href.startswith("http")}


@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_the_html_has_exactly_the_designed_links(seed: int) -> None:
    design = design_web(seed, 0.2)
    origins = origins_of(design)
    for site, page in html_pages(design):
        url = Place(site.name, page.path).url(origins)
        found = links_as_a_browser_reads_them(url, page, content_of(site, page, origins))
        designed = {link.to.url(origins) for link in page.links if link.to and link.kind in FOLLOWED_KINDS}
        outside = {href for href in found if ".invalid/" in href}
        assert found - outside == designed, page.path
        assert outside <= {"http://www.elsewhere.invalid/"}


@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_every_place_is_spelled_as_the_canonical_url_is(seed: int) -> None:
    design = design_web(seed, 0.2)
    origins = origins_of(design)
    for place in design.reachable():
        assert can_ada.parse(place.url(origins)).href == place.url(origins)


@pytest.mark.parametrize("agent", ["headway", "otherbot", "greedybot", "somebody"])
def test_the_rules_mean_what_the_robots_txt_says(agent: str) -> None:
    design = design_web(3, 0.2)
    origins = origins_of(design)
    denied = 0
    for site in design.sites.values():
        for page in [p for p in site.pages.values() if p.layout is Layout.ROBOTS]:
            rules = Protego.parse(content_of(site, page, origins).decode())
            for path in site.pages:
                url = Place(site.name, path).url(origins)
                assert rules.can_fetch(url, agent) == site.allows(agent, path)
                denied += not site.allows(agent, path)
    assert denied > 0


def test_robots_rules_and_tags_make_a_difference_to_the_key() -> None:
    design = design_web(7, 0.2)
    everything = design.reachable(Scope(respect_robots=False, respect_tags=False, types=None))
    polite = design.reachable(Scope())
    assert Place("registry", "/private/letter.html") in everything - polite
    assert Place("registry", "/private/open/notice.html") in polite
    assert Place("registry", "/forms/apply.cgi") in everything - polite
    assert Place("registry", "/forms/apply.cgi.html") in polite
    assert Place("gazette", "/members/one.html") in polite
    assert Place("gazette", "/drafts/one.html") in everything - polite
    assert Place("museum", "/tags/below-nofollow.html") in everything - polite
    assert Place("museum", "/tags/below-noindex.html") in polite
    assert Place("museum", "/tags/below-header-other-bot.html") in polite
    assert Place("museum", "/files/photo.png") in everything - polite
    assert Place("museum", "/files/picture") in polite
    assert Place("library", "/attic/box-1.html") not in everything
    assert Place("library", "/attic/box-1.html") in design.reachable(Scope(follow_sitemaps=True))
    assert Place("museum", "/links/sponsored.html") not in design.reachable(Scope(follow_rel_nofollow=False))
    assert not any("?" in place.path for place in design.reachable(Scope(follow_queries=False)))
    assert not any(len(p.path) > 2_000 for p in design.reachable(Scope(max_url_chars=2_000)))
    assert all(p.site == "museum" for p in design.reachable(Scope(sites=frozenset({"museum"}))))


def test_permanent_failures_are_requested_and_fail() -> None:
    expected = design_web(7, 0.2).expected(Scope(max_attempts=3))
    assert expected[Place("workshop", "/failures/500-always.html")].status == 500
    assert expected[Place("workshop", "/failures/reset-always.html")].status == 0
    assert expected[Place("workshop", "/failures/500-twice.html")].status == 200
    assert Place("workshop", "/failures/after-500-twice.html") in expected
    impatient = design_web(7, 0.2).expected(Scope(max_attempts=2))
    assert impatient[Place("workshop", "/failures/500-twice.html")].status == 500
    assert Place("workshop", "/failures/after-500-twice.html") not in impatient


def test_the_calendar_is_cut_by_depth_alone() -> None:
    design = design_web(7, 0.2, roster=("almanac",))

    def months(max_depth: int) -> int:
        reached = design.reachable(Scope(max_depth=max_depth))
        return sum(p.path.startswith("/calendar/") and p.path.endswith("/") for p in reached)

    assert [months(depth) for depth in (0, 1, 2, 50, 400)] == [0, 1, 2, 50, 400]


def test_a_closed_site_is_not_asked_for_anything() -> None:
    design = design_web(7, roster=("closed",), tempo=QUICK)
    assert design.reachable() == set()
    assert len(design.reachable(Scope(respect_robots=False))) >= 6


def test_redirects_may_cost_no_depth() -> None:
    design = design_web(7, 0.2, roster=("registry",))
    end = Place("registry", "/moved/end-of-chain.html")
    assert design.expected()[end].depth == 6
    assert design.expected(Scope(redirects_cost_depth=False))[end].depth == 2
    assert design.expected()[Place("registry", "/moved/by-308")].location == Place("registry", "/about.html")


def test_images_are_linked_only_as_images() -> None:
    design = design_web(7, 0.2)
    hall = Place("museum", "/files/hall.png")
    kinds = {link.kind for _, page in html_pages(design) for link in page.links if link.to == hall}
    assert kinds == {LinkKind.IMAGE}
