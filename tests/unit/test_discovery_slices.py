"""A page of very many links is looked at a part at a time, and comes to the same in the end."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.model.command import Command, FetchPage, Finished, SaveFound, SaveSettled, WakeAt
from headway.model.event import PageSettled, Seeded, Tick
from headway.model.page import Kind, Outcome, Page, PageKey, Site, Task
from headway.policy.ordering.simple import Depth
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.scope import Scope
from headway.units import Instant, Seconds

SITE, OTHER = Site("http://a.test"), Site("http://b.test")
NOW = Instant(1000.0)


def machine(links_at_once: int | None) -> Engine:
    return Engine(
        Policies(
            ordering=Depth(),
            scope=Scope(hosts=frozenset({"a.test"})),
            politeness=Politeness(interval_s=Seconds(10.0)),
            retry=RetryPolicy(),
        ),
        EngineSettings(
            max_connections=3, lease_s=Seconds(600.0), asks_robots=False, links_at_once=links_at_once
        ),
    )


def settled_home(crawl: Engine, links: list[Page]) -> list[list[Command]]:
    """Each step's commands, until nothing is left to be told."""
    home = Page(f"{SITE}/", SITE, PageKey(0))
    (fetch,) = [
        command
        for command in crawl.step(NOW, Seeded((Task(SITE),), (home,)))
        if isinstance(command, FetchPage)
    ]
    steps = [list(crawl.step(NOW, PageSettled(fetch.lease, Outcome(Kind.FETCHED, 200, 100), tuple(links))))]
    while crawl.has_pending_links:
        assert WakeAt(NOW) in steps[-1], "somebody has to come back"
        assert Finished() not in steps[-1]
        steps.append(list(crawl.step(NOW, Tick())))
    return steps


def told(steps: list[list[Command]]) -> tuple[list[str], list[str]]:
    """Pages queued and pages left out, in order."""
    commands = [command for step in steps for command in step]
    queued = [page.url for command in commands if isinstance(command, SaveFound) for page in command.pages]
    left_out = [each.page.url for each in commands if isinstance(each, SaveSettled) and not each.links]
    return queued, left_out


LINKS = st.lists(st.tuples(st.sampled_from([SITE, OTHER]), st.integers(1, 40)), max_size=60).map(
    lambda pairs: [Page(f"{site}/{n}", site, PageKey(n if site is SITE else 100 + n)) for site, n in pairs]
)


@given(LINKS, st.integers(1, 10))
@settings(max_examples=200)
def test_slices_come_to_the_same_as_all_at_once(links: list[Page], at_once: int) -> None:
    whole, sliced = machine(None), machine(at_once)
    assert told(settled_home(whole, links)) == told(settled_home(sliced, links))
    by_site = whole.stats.site_stats(SITE), sliced.stats.site_stats(SITE)
    assert by_site[0].links_seen == by_site[1].links_seen
    assert by_site[0].links_new == by_site[1].links_new


@given(LINKS, st.integers(1, 10))
@settings(max_examples=100)
def test_no_step_looks_at_more_than_two_slices(links: list[Page], at_once: int) -> None:
    for step in settled_home(machine(at_once), links):
        queued, left_out = told([step])
        assert len(queued) + len(left_out) <= 2 * at_once + 1
