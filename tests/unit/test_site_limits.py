"""Links can name any number of sites; the crawl takes in as many as its limits allow, and says so."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headway.config.reading import know_public_suffixes
from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.model.command import Command, FetchPage, SaveFound, SaveLeftOut, SaveNotice, SiteRecord, Snapshot
from headway.model.event import CollectorsCounted, PageSettled, Restored, Seeded, Tick
from headway.model.page import Kind, Outcome, Page, Site, Task
from headway.pages.url import page_of
from headway.policy.ordering.simple import Depth
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.scope import (
    BYTES_OF_DOMAIN,
    IN_ALL,
    OF_DOMAIN,
    OF_PAGE,
    PAGES_OF_DOMAIN,
    Scope,
    SiteBudget,
    host_of,
    registered_domain,
)
from headway.units import Instant, Seconds

HOME = Site("http://a.example")
NOW = Instant(1000.0)


def engine(scope: Scope, *, is_part: bool = False) -> Engine:
    return Engine(
        Policies(
            ordering=Depth(),
            scope=scope,
            politeness=Politeness(interval_s=Seconds(10.0)),
            retry=RetryPolicy(),
        ),
        EngineSettings(
            max_connections=1000, lease_s=Seconds(600.0), asks_robots=False, is_part=is_part, links_at_once=7
        ),
    )


def page(url: str) -> Page:
    made = page_of(url)
    assert made is not None
    return made


def answer(crawl: Engine, fetch: FetchPage, links: list[str]) -> list[Command]:
    outcome = Outcome(Kind.FETCHED, 200, 100)
    commands = list(crawl.step(NOW, PageSettled(fetch.lease, outcome, tuple(map(page, links)))))
    while crawl.has_pending_links:
        commands += crawl.step(NOW, Tick())
    return commands


def begun(crawl: Engine, *sites: Site) -> list[FetchPage]:
    tasks = tuple(map(Task, sites))
    commands = crawl.step(NOW, Seeded(tasks, tuple(page(f"{site}/") for site in sites)))
    return [command for command in commands if isinstance(command, FetchPage)]


def sites_found(commands: list[Command]) -> set[Site]:
    return {each.site for command in commands if isinstance(command, SaveFound) for each in command.pages}


def left_out(commands: list[Command]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for command in commands:
        if isinstance(command, SaveLeftOut):
            counts[command.reason] += command.pages
    return counts


def test_a_page_adds_no_more_sites_than_its_limit_and_the_rest_is_counted_and_reported_once() -> None:
    crawl = engine(Scope(max_sites_per_page=50))
    (fetch,) = begun(crawl, HOME)
    links = [f"http://h{n}.d{n}.example/{path}" for n in range(500) for path in "ab"]
    commands = answer(crawl, fetch, links)
    assert len(sites_found(commands)) == 50
    assert left_out(commands) == {OF_PAGE: 900}
    notices = [command for command in commands if isinstance(command, SaveNotice)]
    assert [(each.site, each.what, each.subject) for each in notices] == [(HOME, OF_PAGE, "at most 50")]
    assert len(crawl.stats.by_site) <= 51, "a site that is left out costs no memory"


def test_a_domain_with_endless_hosts_gets_its_share_and_others_theirs() -> None:
    crawl = engine(Scope(max_sites_per_domain=10))
    (fetch,) = begun(crawl, HOME)
    endless = [f"http://{n}.trap.co.uk/" for n in range(1000)]
    commands = answer(crawl, fetch, [*endless, "http://www.good.co.uk/", "http://trap.example:81/"])
    found = sites_found(commands)
    assert len([site for site in found if "trap.co.uk" in site]) == 10
    assert {"http://www.good.co.uk", "http://trap.example:81"} <= found
    assert left_out(commands) == {OF_DOMAIN: 990}


def test_the_limit_in_all_survives_a_restart_and_sites_of_the_job_are_free() -> None:
    scope = Scope(max_sites=3)
    crawl = engine(scope)
    records = [SiteRecord(Site(f"http://old{n}.example"), NOW) for n in range(2)]
    snapshot = Snapshot(NOW, (Task(HOME),), [SiteRecord(HOME, NOW), *records], (), ())
    crawl.step(NOW, Restored(snapshot, {}))
    (fetch,) = begun(crawl, HOME)
    links = [f"http://new{n}.other{n}.example/" for n in range(5)]
    commands = answer(crawl, fetch, [*links, "http://old1.example/more", f"{HOME}/more"])
    assert sites_found(commands) == {Site("http://new0.other0.example"), "http://old1.example", HOME}
    assert left_out(commands) == {IN_ALL: 4}


def test_collectors_share_the_limit_in_all() -> None:
    crawl = engine(Scope(max_sites=100), is_part=True)
    crawl.step(NOW, CollectorsCounted(4))
    admitted = [
        crawl.discovery.sites.exceeded(f"http://h{n}.d{n}.example", set()) is None for n in range(100)
    ]
    assert sum(admitted) == 25


SITES = st.lists(
    st.builds("http://{}.{}.example:{}".format, st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)),
    max_size=200,
)


@given(SITES, st.integers(1, 9), st.integers(1, 9), st.integers(1, 40))
def test_no_limit_is_ever_exceeded_and_a_site_that_has_joined_stays(
    sites: list[str], per_page: int, per_domain: int, in_all: int
) -> None:
    budget = SiteBudget(Scope(max_sites=in_all, max_sites_per_domain=per_domain, max_sites_per_page=per_page))
    joined: set[str] = set()
    for begin in range(0, len(sites), 20):
        of_page: set[str] = set()
        for site in sites[begin : begin + 20]:
            limit = budget.exceeded(site, of_page)
            assert limit is None or site not in joined
            if limit is None:
                joined.add(site)
        assert len(of_page) <= per_page
    assert len(joined) <= in_all
    assert all(
        count <= per_domain for count in Counter(registered_domain(host_of(s)) for s in joined).values()
    )


def test_registered_domains() -> None:
    hosts = {
        "example": "example",
        "a.b.example.org": "example.org",
        "x.www.shop.co.uk": "shop.co.uk",
        "y.gov.br": "y.gov.br",
        "z.y.gov.br": "y.gov.br",
        "10.0.0.1": "10.0.0.1",
        "[::1]": "[::1]",
        "com.br": "com.br",
    }
    assert {host: registered_domain(host) for host in hosts} == hosts


def test_a_domain_that_the_job_does_not_name_grows_with_the_domains_that_link_to_it() -> None:
    scope = Scope(frozenset({"example", "com"}), max_sites_per_domain=1000)
    budget = SiteBudget(scope)
    budget.add_free("http://a.example", is_of_job=True)

    def joined(domain: str, sources: list[str], count: int = 2000) -> int:
        return sum(
            budget.exceeded(f"http://h{number}.{domain}", set(), sources[number % len(sources)]) is None
            for number in range(count)
        )

    farm = joined("farm.com", ["http://h1.farm.com"])
    popular = joined("popular.com", [f"http://s{number}.example" for number in range(20)])
    assert 0 < farm < 100 < 4 * farm < popular <= 1000
    assert joined("a.example", ["http://a.example"], 500) == 500


def test_pages_and_bytes_of_a_domain_grow_with_the_domains_that_link_to_it() -> None:
    scope = Scope(frozenset({"example", "com"}), max_pages_per_domain=100_000, max_bytes_per_domain=10**10)
    budget = SiteBudget(scope)
    budget.add_free("http://a.example", is_of_job=True)

    def pages(site: str, source: str | None = None) -> int:
        return sum(budget.exceeded(site, set(), source) is None for _ in range(30_000))

    assert pages("http://a.example") == 30_000
    assert pages("http://one.farm.com") + pages("http://two.farm.com") == 10_000
    assert budget.exceeded("http://three.farm.com", set()) == PAGES_OF_DOMAIN
    assert budget.subject_of(PAGES_OF_DOMAIN, "http://three.farm.com") == "farm.com, at most 10000"
    assert budget.exceeded("http://three.farm.com", set(), "http://b.example") is None
    assert pages("http://one.farm.com", "http://one.farm.com") == 19_999

    assert budget.exceeded("http://large.com", set()) is None
    budget.spend("http://large.com", 0, 10**9)
    assert budget.exceeded("http://large.com", set()) == BYTES_OF_DOMAIN
    assert budget.exceeded("http://large.com", set(), "http://b.example") is None
    budget.spend("http://a.example", 10**9, 10**12)
    assert budget.exceeded("http://a.example", set()) is None


def test_registered_domains_by_the_public_suffix_list() -> None:
    know_public_suffixes()
    hosts = {
        "www.example.org": "example.org",
        "a.b.example.co.uk": "example.co.uk",
        "one.github.io": "one.github.io",
        "x.two.blogspot.com": "two.blogspot.com",
        "github.io": "github.io",
        "a.b.c.kawasaki.jp": "b.c.kawasaki.jp",
        "www.city.kawasaki.jp": "city.kawasaki.jp",
        "a.shop.xn--55qx5d.cn": "shop.xn--55qx5d.cn",
        "a.b.unknown": "b.unknown",
        "127.0.0.1": "127.0.0.1",
        "intranet": "intranet",
    }
    assert {host: registered_domain(host) for host in hosts} == hosts
