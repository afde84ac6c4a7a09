"""The runtime builds the engine from the job and drives it in a world of virtual time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.script import Answer, Script, ScriptedWorld

from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.errors import HeadwayError
from headway.model.command import (
    AddSite,
    Command,
    FetchPage,
    OrderAnswered,
    Pause,
    Resume,
    SetCapacity,
    SetRates,
)
from headway.model.event import CapacityChanged, Ordered, PageSettled
from headway.model.page import Kind, Lease, Outcome, Page, PageKey, Site, Task
from headway.pages.url import page_of
from headway.runtime.driver import VirtualClock
from headway.runtime.runtime import Circumstances, Runtime
from headway.runtime.simulation import DescribedWeb, simulate_job
from headway.sim.web import Servers, Trouble, Web, make_sites
from headway.sim.world import GraphWorld
from headway.units import FOREVER, BytesPerSecond, Instant, Seconds

START = Instant(1_700_000_000.0)
OK = Outcome(Kind.FETCHED, 200, 10_000)


def job_of(**crawl: Any) -> Job:
    tables = {
        "crawl": {"interval": "1 s", "timezone": "UTC", **crawl},
        "site": [{"url": "http://a.test/", "deadline": "1 h"}, {"url": "http://b.test/"}],
    }
    source = Source("the test")
    return build_job(convert(tables, source), source)


def one_site(**crawl: Any) -> Job:
    source = Source("the test")
    return build_job(convert({"crawl": crawl, "site": [{"url": "http://a.test/"}]}, source), source)


def page(url: str) -> Page:
    found = page_of(url)
    assert found is not None
    return found


def chain(site: str, count: int) -> dict[str, list[Answer]]:
    """Pages that each link to the next."""
    urls = [f"{site}/", *(f"{site}/{number}" for number in range(1, count))]
    links = [*((page(url),) for url in urls[1:]), ()]
    return {url: [Answer(Seconds(0.5), OK, link)] for url, link in zip(urls, links, strict=True)}


SCRIPT = Script(chain("http://a.test", 8) | chain("http://b.test", 8) | chain("http://c.test", 3))


class Seen:
    def __init__(self) -> None:
        self.commands: list[tuple[float, Command]] = []

    def __call__(self, now: Instant, command: Command) -> None:
        self.commands.append((now - START, command))

    def of(self, kind: type[Command]) -> list[tuple[float, Any]]:
        return [(at, command) for at, command in self.commands if isinstance(command, kind)]


def run(
    job: Job, *outside: tuple[float, Any], script: Script = SCRIPT
) -> tuple[Seen, Runtime[ScriptedWorld]]:
    seen = Seen()
    runtime = Runtime.from_job(job, VirtualClock(START), ScriptedWorld(script))
    events = [(Instant(START + at), event) for at, event in outside]
    runtime.run_virtually(outside=events, on_command=seen)
    return seen, runtime


def test_a_job_is_crawled_with_its_planner_and_its_bound() -> None:
    seen, runtime = run(job_of(bandwidth="1 Mbit/s"))
    assert runtime.engine.stats.done == 16
    assert seen.of(SetRates)
    assert [command.capacity_bytes_per_s for _, command in seen.of(SetCapacity)] == [125_000.0]


def test_without_bound_and_deadlines_there_is_nothing_to_plan() -> None:
    seen, runtime = run(one_site())
    assert runtime.engine.stats.done == 8
    assert not seen.of(SetRates)


def test_a_limit_holds_from_its_instant_on_and_until_it_is_taken_back() -> None:
    seen, _ = run(
        job_of(bandwidth="1 Mbit/s"),
        (3.0, CapacityChanged(BytesPerSecond(5_000.0))),
        (5.0, CapacityChanged(None)),
    )
    assert [(at, command.capacity_bytes_per_s) for at, command in seen.of(SetCapacity)] == [
        (0.0, 125_000.0),
        (3.0, 5_000.0),
        (5.0, 125_000.0),
    ]


def test_while_the_crawl_is_paused_nothing_is_asked_for() -> None:
    seen, runtime = run(job_of(), (2.2, Ordered(Pause())), (60.0, Ordered(Resume())))
    asked = [at for at, _ in seen.of(FetchPage)]
    assert runtime.engine.stats.done == 16
    assert not [at for at in asked if 2.2 <= at < 60.0]
    assert [at for at in asked if at >= 60.0]
    assert [at for at, _ in seen.of(OrderAnswered)] == [pytest.approx(2.2), pytest.approx(60.0)]


def test_a_site_is_added_at_its_instant() -> None:
    added = AddSite(Task(Site("http://c.test")), (page("http://c.test/"),))
    seen, runtime = run(job_of(), (4.0, Ordered(added)))
    pages = [(at, command.lease.page.url) for at, command in seen.of(FetchPage)]
    assert min(at for at, url in pages if url == "http://c.test/") >= 4.0
    assert runtime.engine.stats.done == 19


THREE = Script(
    chain("http://a.test", 8)
    | chain("http://b.test", 5)
    | chain("http://c.test", 6)
    | chain("http://d.test", 3)
)


def job_of_four(**crawl: Any) -> Job:
    source = Source("the test")
    sites = [{"url": f"http://{name}.test/"} for name in "abcd"]
    tables = {
        "crawl": {"interval": "1 s", "timezone": "UTC", "respect_robots": False, **crawl},
        "site": sites,
    }
    return build_job(convert(tables, source), source)


def most_open(seen: Seen) -> int:
    """Of how many sites at most some pages have been asked for and not all."""
    asked = [(at, command.lease.page.site) for at, command in seen.of(FetchPage)]
    spans = {site: [at for at, each in asked if each == site] for _, site in asked}
    return max(sum(min(span) <= at <= max(span) for span in spans.values()) for at, _ in asked)


@pytest.mark.parametrize("policy", ["m-maxt", "realloc-sumt", "alloconce", "realloc-prodataamount", "ga"])
@pytest.mark.parametrize("crawlers", [1, 2, 9])
@pytest.mark.parametrize("bandwidth", ["1 Mbit/s", None])
def test_no_more_sites_are_open_than_there_are_crawlers(
    policy: str, crawlers: int, bandwidth: str | None
) -> None:
    seen, runtime = run(job_of_four(policy=policy, crawlers=crawlers, bandwidth=bandwidth), script=THREE)
    assert runtime.engine.stats.done == 22
    assert most_open(seen) == min(crawlers, 4)


def test_with_few_crawlers_headways_own_policy_gives_no_more_sites_a_rate_and_crawls_them_all() -> None:
    seen, runtime = run(job_of_four(crawlers=2, bandwidth="1 Mbit/s"), script=THREE)
    assert runtime.engine.stats.done == 22
    assert max(len(command.rates_bytes_per_s) for _, command in seen.of(SetRates)) == 2


def test_pages_that_are_visited_again_are_not_held_back_forever() -> None:
    job = job_of_four(crawlers=1, every="1 h", bandwidth="1 Mbit/s", policy="m-maxt")
    runtime = Runtime.from_job(job, VirtualClock(START), ScriptedWorld(THREE))
    asked: list[str] = []

    def note(_: Instant, command: Command) -> None:
        if isinstance(command, FetchPage):
            asked.append(command.lease.page.url)

    runtime.run_virtually(until=Instant(START + 2.5 * 3600), on_command=note)
    assert all(asked.count(f"http://{name}.test/") == 3 for name in "abcd")


def test_what_is_due_after_the_end_does_not_happen() -> None:
    seen, _ = run(job_of(), (10_000.0, Ordered(Pause())))
    assert not seen.of(OrderAnswered)


def test_the_same_job_and_script_give_the_same_commands() -> None:
    job, limit = job_of(bandwidth="1 Mbit/s"), (3.0, CapacityChanged(BytesPerSecond(5_000.0)))
    assert run(job, limit)[0].commands == run(job, limit)[0].commands


def test_a_server_that_never_answers_is_given_up_when_its_lease_ends() -> None:
    silent = Script({"http://a.test/": [Answer(Seconds(FOREVER), OK)]})
    _, runtime = run(one_site(max_attempts=1), script=silent)
    assert runtime.engine.stats.failures[Kind.LEASE_EXPIRED] == 1


def test_no_more_is_received_in_a_day_than_the_quota_of_the_job() -> None:
    """Also where nothing says how much of the quota has been used."""
    job = one_site(quota={"day": "50 kB"}, timezone="UTC")
    midnight_s = job.quotas[0].window(START)[1] - START
    seen, runtime = run(job)
    asked = [at for at, _ in seen.of(FetchPage)]
    assert runtime.engine.stats.done == len(asked) == 8
    assert 0 < sum(at < midnight_s for at in asked) <= 5


def test_one_of_several_collectors_leaves_the_quota_to_the_shares_it_is_assigned() -> None:
    job = one_site(quota={"day": "50 kB"})
    assert list(Circumstances(is_part=True).quotas_of(job)) == []
    assert len(Circumstances().quotas_of(job)) == 1


def test_virtual_time_refuses_queues_that_would_wait_for_a_store() -> None:
    runtime = Runtime.from_job(
        job_of(), VirtualClock(START), ScriptedWorld(SCRIPT), Circumstances(most_held=16)
    )
    with pytest.raises(HeadwayError, match="most_held"):
        runtime.run_virtually()


def test_a_pause_without_end_is_an_error_not_a_hang() -> None:
    with pytest.raises(HeadwayError, match="never happen"):
        run(job_of(), (0.1, Ordered(Pause())))


def test_a_crawl_that_revisits_ends_at_the_given_time() -> None:
    runtime = Runtime.from_job(one_site(every="1 h"), VirtualClock(START), ScriptedWorld(SCRIPT))
    asked: list[str] = []

    def note(_: Instant, command: Command) -> None:
        if isinstance(command, FetchPage):
            asked.append(command.lease.page.url)

    until = Instant(START + 3.5 * 3600)
    assert runtime.run_virtually(until=until, on_command=note) == until
    assert asked.count("http://a.test/") == 4


# -- the link of a described web ----------------------------------------------------------------------------


def big_pages(*sites: str) -> GraphWorld:
    """One page of 10,000 bytes on each site, from servers of 1 MB/s without latency."""
    count = len(sites)
    web = Web(
        "big pages",
        np.zeros(count + 1, dtype=np.int64),
        np.zeros(0, dtype=np.int32),
        np.arange(count, dtype=np.int32),
        np.full(count, 10_000, dtype=np.int64),
        sites,
        np.arange(count, dtype=np.int32),
    )
    trouble = Trouble.drawn(count, count, 0)
    return GraphWorld(web, Servers.alike(count), trouble, max_connections=8, keep_open_s=Seconds(5.0))


def fetch(world: GraphWorld, number: int, site: str) -> None:
    asked = Page(f"http://{site}/{number}", Site(f"http://{site}"), PageKey(number))
    world.start(Instant(0.0), FetchPage(Lease(number, asked, 0, Instant(FOREVER))))


def ends(world: GraphWorld) -> dict[int, float]:
    found: dict[int, float] = {}
    while (at := world.next_at()) < FOREVER:
        found |= {event.lease.number: at for event in world.settle(at) if isinstance(event, PageSettled)}
    return found


def rates(**by_site: float) -> SetRates:
    return SetRates({Site(f"http://{site}.test"): BytesPerSecond(rate) for site, rate in by_site.items()})


def test_the_link_is_shared_by_the_rates_and_what_is_free_is_used() -> None:
    world = big_pages("a.test", "b.test")
    world.start(Instant(0.0), SetCapacity(BytesPerSecond(1000.0)))
    world.start(Instant(0.0), rates(a=600.0, b=200.0))
    fetch(world, 0, "a.test")
    fetch(world, 1, "b.test")
    # 750 and 250 bytes a second until a has its 10,000; then b has the whole link.
    first = 10_000 / 750
    assert ends(world) == pytest.approx({0: first, 1: first + (10_000 - 250 * first) / 1000})
    assert [rate for _, rate in world.link] == [0.0, 1000.0, 0.0]


def test_a_site_without_a_rate_has_what_the_rates_leave() -> None:
    world = big_pages("a.test", "b.test")
    world.start(Instant(0.0), SetCapacity(BytesPerSecond(1000.0)))
    world.start(Instant(0.0), rates(a=800.0))
    fetch(world, 0, "a.test")
    fetch(world, 1, "b.test")
    assert ends(world)[0] == pytest.approx(10_000 / 800)


def test_it_is_never_left_without_anything() -> None:
    world = big_pages("a.test", "b.test")
    world.start(Instant(0.0), SetCapacity(BytesPerSecond(1000.0)))
    world.start(Instant(0.0), rates(a=1000.0))
    fetch(world, 0, "a.test")
    fetch(world, 1, "b.test")
    # A hundredth of the link beside the whole of it: 1000 and 10 parts of 1010.
    assert ends(world)[0] == pytest.approx(10_000 / (1000 * 1000 / 1010))


def test_a_change_of_the_capacity_counts_at_once() -> None:
    world = big_pages("a.test")
    world.start(Instant(0.0), SetCapacity(BytesPerSecond(1000.0)))
    fetch(world, 0, "a.test")
    world.settle(Instant(0.0))
    world.start(Instant(5.0), SetCapacity(BytesPerSecond(500.0)))
    assert ends(world) == pytest.approx({0: 15.0})


def test_orders_steer_the_crawl_of_a_described_web() -> None:
    """A limit, a pause and an added site that the web does not have, at instants of the simulation."""
    sites = ["a.test", "b.test"]
    web = make_sites([[f"http://{site}/"] for site in sites], np.array([20, 20]), np.array([5e3, 5e3]), 1)
    described = DescribedWeb.without_trouble(web, Servers.alike(2, answer_s=0.1))
    stranger = AddSite(Task(Site("http://c.test")), (page("http://c.test/"),))
    outside = [
        (Instant(START + 2.0), CapacityChanged(BytesPerSecond(10_000.0))),
        (Instant(START + 4.0), Ordered(Pause())),
        (Instant(START + 30.0), Ordered(Resume())),
        (Instant(START + 31.0), Ordered(stranger)),
    ]
    job = job_of(bandwidth="1 Mbit/s")
    simulated = simulate_job(job, described, START, outside=outside)
    assert [rate for _, rate in simulated.capacities] == [125_000.0, 10_000.0]
    assert not ((simulated.record.started_at > 4.0) & (simulated.record.started_at < 30.0)).any()
    stats = simulated.engine.stats
    assert stats.site_stats(Site("http://a.test")).done == stats.site_stats(Site("http://b.test")).done == 20
    assert stats.site_stats(Site("http://c.test")).failed == 1
