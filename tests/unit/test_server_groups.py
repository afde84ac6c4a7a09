"""The interval, connections and pauses of servers and registered domains."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from headway.cluster.coordinator import GroupLeases
from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.errors import JobError
from headway.model.command import FetchPage, FetchRobots
from headway.model.page import Kind, Outcome, Site, Timing
from headway.policy.server_groups import GroupRule, GroupRules, ServerGroups, server_key
from headway.runtime.driver import VirtualClock
from headway.runtime.runtime import Runtime
from headway.sim.web import Servers, Trouble, make_sites
from headway.sim.world import GraphWorld
from headway.units import FOREVER, Instant, Seconds

START = Instant(1_700_000_000.0)
TENTH = Seconds(0.1)


def crawl(
    homes: list[str], addresses: dict[str, str], pages: int = 4, *, server: Any = (), **settings: Any
) -> list[tuple[float, float, str]]:
    """Crawls drawn sites; returns start, end and site of each request, robots.txt included."""
    tables = {
        "crawl": {"interval": "2 s", "timezone": "UTC", **settings},
        "site": [{"url": home} for home in homes],
        "server": list(server),
    }
    source = Source("the test")
    job = build_job(convert(tables, source), source)
    count = len(homes)
    web = make_sites([(home,) for home in homes], np.full(count, pages), np.full(count, 2_000.0), 1)
    world = GraphWorld(
        web,
        Servers.alike(count, answer_s=0.1, rate_bytes_per_s=1e6),
        Trouble.drawn(web.pages, count, 0),
        max_connections=256,
        keep_open_s=Seconds(5.0),
        addresses={Site(site.rstrip("/")): address for site, address in addresses.items()},
    )
    begun: dict[str, float] = {}
    requests: list[tuple[float, float, str]] = []
    runtime = Runtime.from_job(job, VirtualClock(START), world)
    original = world._ended

    def ended(now: Instant, slot: int) -> Any:
        event = original(now, slot)
        site = event.lease.page.site if hasattr(event, "lease") else event.site
        requests.append((begun.pop(site) - START, now - START, site))
        return event

    world._ended = ended  # type: ignore[method-assign]

    def note(now: Instant, command: Any) -> None:
        if isinstance(command, FetchPage):
            begun[command.lease.page.site] = now
        elif isinstance(command, FetchRobots):
            begun[command.site] = now

    runtime.run_virtually(on_command=note)
    assert runtime.engine.stats.done == (pages + 1) * count  # the home page by its URL and by its number
    return sorted(requests)


def shortest_pause(requests: list[tuple[float, float, str]], group_of: dict[str, str]) -> dict[str, float]:
    """From the end of an answer to the next request, by group."""
    ends: dict[str, float] = {}
    shortest: dict[str, float] = defaultdict(lambda: FOREVER)
    for begin, end, site in requests:
        group = group_of[site + "/"]
        shortest[group] = min(shortest[group], begin - ends.get(group, -FOREVER))
        ends[group] = max(end, ends.get(group, -FOREVER))
    return shortest


NAMES = [f"http://n{number}-example.org/" for number in range(12)]
THREE = {name: f"192.0.2.{number % 3}" for number, name in enumerate(NAMES)}


def test_the_interval_holds_for_the_address_of_many_names() -> None:
    shortest = shortest_pause(crawl(NAMES, THREE), THREE)
    assert len(shortest) == 3
    assert all(2.0 <= pause < 2.1 for pause in shortest.values())


def test_the_addresses_of_a_network_are_one_server_if_asked() -> None:
    requests = crawl(NAMES, THREE, server_networks=True)
    shortest = shortest_pause(requests, dict.fromkeys(NAMES, "all"))
    assert 2.0 <= shortest["all"] < 2.1


def test_the_interval_holds_for_a_registered_domain() -> None:
    homes = [f"http://{name}.example.org/" for name in "abcd"]
    apart = {home: f"192.0.2.{number}" for number, home in enumerate(homes)}
    shortest = shortest_pause(crawl(homes, apart), dict.fromkeys(homes, "all"))
    assert 2.0 <= shortest["all"] < 2.1
    assert shortest_pause(crawl(homes, apart, domain_interval="0 s"), dict.fromkeys(homes, "all"))["all"] < 0


def test_with_a_server_interval_of_zero_the_names_of_an_address_are_independent() -> None:
    assert min(shortest_pause(crawl(NAMES, THREE, server_interval="0 s"), THREE).values()) < 0


def test_a_longer_server_interval_is_kept() -> None:
    shortest = shortest_pause(crawl(NAMES, THREE, server_interval="7 s"), THREE)
    assert all(7.0 <= pause < 7.1 for pause in shortest.values())


def test_pages_in_a_row_go_on_before_other_sites_of_the_address() -> None:
    requests = crawl(NAMES, THREE, pages=6, pages_per_connection=3, respect_robots=False)
    shortest = shortest_pause(
        [request for request in requests if THREE[request[2] + "/"] == "192.0.2.0"], THREE
    )
    assert shortest["192.0.2.0"] == pytest.approx(0.0, abs=0.01)
    by_address: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for request in requests:
        by_address[THREE[request[2] + "/"]].append(request)
    for mine in by_address.values():
        for (_, end, site), (begin, _, following) in itertools.pairwise(mine):
            assert following == site or begin - end >= 2.0


def test_a_large_server_is_given_more_connections_while_it_answers_well() -> None:
    alone = [f"http://c{number}-example.org/" for number in range(30)]
    one = dict.fromkeys(alone, "192.0.2.7")
    rule = [{"network": "192.0.2.0/28", "interval": "1 s", "connections": 4}]
    requests = crawl(alone, one, pages=6, server=rule)
    early = [begin for begin, _, _ in requests if begin < 15]
    late = [begin for begin, _, _ in requests if 45 <= begin < 60]
    assert shortest_pause(requests[:15], one)["192.0.2.7"] >= 1.0
    assert len(early) <= 15 < 1.5 * len(early) < len(late)


def test_a_server_rule_needs_a_network_or_a_domain() -> None:
    with pytest.raises(JobError, match="either the network of the servers or their domain"):
        crawl(NAMES, THREE, server=[{"interval": "1 s"}])
    with pytest.raises(JobError, match="neither an address nor a network"):
        crawl(NAMES, THREE, server=[{"network": "example"}])


@pytest.mark.parametrize(
    ("address", "site", "is_of_job", "key"),
    [
        ("203.0.114.9", "http://a.example:8080", True, "203.0.114.9"),
        ("203.0.114.9", "http://a.example:8081", False, "203.0.114.9"),
        ("127.0.0.1", "http://127.0.0.1:8080", True, "127.0.0.1 8080"),
        ("127.0.0.1", "http://127.0.0.1:8081", False, "127.0.0.1"),
        ("10.0.0.9", "https://intranet", True, "10.0.0.9 443"),
        ("::ffff:203.0.114.9", "http://a.example", False, "203.0.114.9"),
        ("fe80::1%eth0", "http://a.example", False, "fe80::1"),
        ("", "http://a.example", True, ""),
        ("not an address", "http://a.example", True, ""),
    ],
)
def test_what_a_server_is(address: str, site: str, is_of_job: bool, key: str) -> None:
    assert server_key(address, Site(site), GroupRules(), is_of_job=is_of_job) == key


def test_a_network_of_ipv6_is_a_48() -> None:
    rules = GroupRules(whole_networks=True)
    one, other = (server_key(f"2a00:1:2:{number}::1", A, rules, is_of_job=False) for number in (3, 4))
    assert one == other == "2a00:1:2::/48"


# -- signals ------------------------------------------------------------------------------------------------

A, B = Site("http://a.example"), Site("http://b.example")
RULES = GroupRules(Seconds(2.0), Seconds(0.0))


def answered(groups: ServerGroups, now: float, site: Site, outcome: Outcome) -> float:
    """Carries out a request; returns for how long the server then rests."""
    mine = groups.groups_of("192.0.2.1", "")
    groups.start(site, mine)
    groups.end(Instant(now), site, outcome, goes_on=False, groups=mine)
    return mine[0].free_at() - now


def good(first_byte_s: float = 0.1) -> Outcome:
    return Outcome(Kind.FETCHED, 200, timing=Timing(Instant(0.0), Instant(1.0), first_byte_s=first_byte_s))


def throttled(retry_after_s: float | None) -> Outcome:
    wish = None if retry_after_s is None else Seconds(retry_after_s)
    return Outcome(Kind.THROTTLED, 429, retry_after_s=wish)


def test_a_pause_that_one_site_asks_for_is_short_for_the_others_of_its_server() -> None:
    groups = ServerGroups(RULES)
    assert answered(groups, 0.0, A, throttled(3000.0)) == 30.0
    assert answered(groups, 100.0, B, throttled(3000.0)) == 3000.0


def test_the_interval_of_a_server_grows_with_its_refusals_and_falls_with_good_answers() -> None:
    groups = ServerGroups(RULES)
    rests = [answered(groups, 1000.0 * number, A, throttled(1.0)) for number in range(12)]
    assert rests[0] == 2 * RULES.server_interval_s
    assert max(rests) <= RULES.most_interval_s + RULES.most_interval_s * 0.1
    assert rests == sorted(rests)
    after = [answered(groups, 1e6 + 1000.0 * number, B, good()) for number in range(1000)]
    assert after == sorted(after, reverse=True)
    assert after[-1] == RULES.server_interval_s


def test_bad_pages_now_and_then_do_not_slow_a_server_down_and_several_in_a_row_do() -> None:
    error = Outcome(Kind.SERVER_ERROR, 500)
    groups = ServerGroups(RULES)
    rests = [answered(groups, 10.0 * step, A, good() if step % 3 == 2 else error) for step in range(60)]
    assert set(rests) == {2.0}
    assert [answered(groups, 1000.0 + step, A, error) for step in range(4)] == [2.0, 2.0, 3.0, 4.5]
    assert [answered(groups, 2000.0 + step, A, good()) for step in range(40)][-1] == 2.0


def test_latencies_that_grow_lengthen_the_interval() -> None:
    groups = ServerGroups(RULES)
    for number in range(50):
        assert answered(groups, 100.0 * number, A, good(0.1)) == 2.0
    slow = [answered(groups, 1e5 + 100.0 * number, A, good(3.0)) for number in range(40)]
    assert slow[-1] > 4.0
    assert max(slow) <= RULES.most_interval_s * 1.1


def test_groups_that_nobody_uses_are_forgotten() -> None:
    groups = ServerGroups(RULES)
    for number in range(70_000):
        address = f"198.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        mine = groups.groups_of(address, "")
        groups.start(A, mine)
        groups.end(Instant(10.0 * number), A, good(), goes_on=False, groups=mine)
    assert len(groups) <= 50_000


# -- shared groups ------------------------------------------------------------------------------------------


def test_a_shared_group_waits_for_its_lease_and_is_released_after_the_request_under_way() -> None:
    groups = ServerGroups(GroupRules(Seconds(2.0), Seconds(0.0), is_shared=True))
    mine = groups.groups_of("192.0.2.1", "")
    blocking = groups.blocking(Instant(0.0), A, mine)
    assert blocking is mine[0]
    groups.wait(blocking, 0.0, 1, A)
    assert groups.take_wanted() == ("192.0.2.1",)
    assert groups.next_at() == FOREVER
    groups.granted("192.0.2.1", Instant(5.0))
    assert groups.next_at() == 5.0
    assert list(groups.due(Instant(5.0))) == [A]
    groups.wait(mine[0], 0.0, 1, A)
    groups.recalled(Instant(5.0), "192.0.2.1")
    assert groups.take_released(Instant(5.5)) == ()
    groups.start(A, mine)
    assert groups.take_released(Instant(6.0)) == ()
    groups.end(Instant(7.0), A, good(), goes_on=True, groups=mine)
    assert groups.take_released(Instant(7.0)) == (("192.0.2.1", 9.0),)
    assert groups.blocking(Instant(100.0), A, mine) is mine[0]


def test_two_collectors_take_turns_with_a_server() -> None:
    """Each has sites that always wait: none keeps the server for itself, and no two hold it at once."""
    leases = GroupLeases()
    rules = GroupRules(Seconds(2.0), Seconds(0.0), is_shared=True)
    crawls = [ServerGroups(rules), ServerGroups(rules), ServerGroups(rules)]
    requests: list[tuple[float, int]] = []
    mine = [groups.groups_of("192.0.2.1", "") for groups in crawls]
    under_way: dict[int, float] = {}
    for step in range(2000):
        now = Instant(step * 0.1)
        number = step % 3
        groups, (group,) = crawls[number], mine[number]
        if number in under_way and now >= under_way[number]:
            del under_way[number]
            groups.end(now, A, good(), goes_on=False, groups=(group,))
        if number not in under_way:
            if groups.blocking(now, A, (group,)) is None:
                assert not under_way
                requests.append((now, number))
                groups.start(A, (group,))
                under_way[number] = now + 0.15
            elif not group.waiting:
                groups.wait(group, 0.0, 1, A)
            else:
                list(groups.due(now))
        granted, recalled = leases.exchange(number, groups.take_wanted(), groups.take_released(now))
        for lease in granted:
            groups.granted(lease.key, lease.not_before, is_unclean=lease.is_unclean)
        for key in recalled:
            groups.recalled(now, key)
    assert min(then - first for (first, _), (then, _) in itertools.pairwise(requests)) >= 2.0
    turns = [sum(who == number for _, who in requests) for number in range(3)]
    assert len(requests) > 60
    assert max(turns) - min(turns) <= 2


def test_a_server_whose_holder_died_rests_for_its_interval() -> None:
    leases = GroupLeases()
    groups = ServerGroups(GroupRules(Seconds(2.0), Seconds(0.0), is_shared=True))
    assert leases.exchange(1, ("192.0.2.1",), ())[0]
    leases.left(Instant(50.0), 1)
    (lease,), _ = leases.exchange(2, ("192.0.2.1",), ())
    (mine,) = groups.groups_of("192.0.2.1", "")
    groups.granted(lease.key, lease.not_before, is_unclean=lease.is_unclean)
    assert mine.free_at() == 52.0


def test_rules_of_servers() -> None:
    groups = ServerGroups(
        GroupRules(
            Seconds(2.0),
            Seconds(3.0),
            exceptions=(
                GroupRule("192.0.2.0/28", interval_s=Seconds(0.5), connections=3),
                GroupRule(domain="example.org", interval_s=Seconds(9.0)),
            ),
        )
    )
    server, domain = groups.groups_of("192.0.2.1", "example.org")
    assert (server.base_interval_s, server.most_connections, domain.base_interval_s) == (0.5, 3, 9.0)
    other, domain = groups.groups_of("192.0.3.1", "example.net")
    assert (other.base_interval_s, domain.base_interval_s) == (2.0, 3.0)
