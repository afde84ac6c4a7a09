"""Sites go to the place from which they are nearest, as measured, whichever collector had them."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.fleetweb import FleetWeb

from headway.cluster.calls import Probes
from headway.cluster.coordinator import Report
from headway.cluster.leader import Leader
from headway.cluster.postgres import LeaderElection, PostgresCoordinator
from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions
from headway.model.command import SaveFound
from headway.model.page import Page
from headway.planning.allocator import Allocator
from headway.policy.timetable import Timetable
from headway.runtime.driver import WallClock
from headway.store.postgres.connection import Address
from headway.store.postgres.store import PostgresStore

SITES = [f"http://{name}.example" for name in "abcd"]
FAR, NEAR = 0.2, 0.02
BUSY = Report(active=tuple(f"http://{name}.example" for name in "wxyz"))


@pytest.fixture
def fleet(postgres_store):
    """A leader, and collectors in Europe and America, over four sites."""
    address = Address.parse(postgres_store)
    store = PostgresStore(address)
    store.create(1.0, {})
    pages = tuple(Page(f"{site}/", site, number) for number, site in enumerate(SITES))
    store.commit([SaveFound(pages, is_elsewhere=True)], {})
    store.close()
    election = LeaderElection(address, Leader(Timetable(1e6), Allocator))
    members = [PostgresCoordinator(address, name=place, label=place, place=place) for place in ("eu", "us")]
    yield election, *members
    for each in (election, *members):
        each.close()


def test_a_site_moves_to_the_place_that_is_much_nearer(fleet):
    election, europe, america = fleet
    europe.join()
    election.round()
    assert europe.beat(Report()).taken.sites == set(SITES)
    from_europe = tuple((site, NEAR if site in SITES[:2] else FAR) for site in SITES)
    europe.beat(Report(active=tuple(SITES), round_trips_s=from_europe))
    america.join()
    assert set(america.beat(BUSY).to_measure) == set(SITES)
    from_america = tuple((site, FAR if site in SITES[:2] else NEAR) for site in SITES)
    america.beat(Report(active=BUSY.active, round_trips_s=from_america))
    assert america.beat(BUSY).to_measure == ()
    election.round()
    asked_back = europe.beat(Report(active=tuple(SITES))).asked_back
    assert set(asked_back) == set(SITES[2:])
    europe.give_back(asked_back)
    election.round()
    assert america.beat(BUSY).taken.sites == set(SITES[2:])


def test_a_site_is_measured_by_connecting_without_a_request():
    async def probe(sites):
        fetcher = HttpFetcher(WallClock(), ClientOptions(user_agent="test", allow_private=True))
        probes = Probes(fetcher.measure_round_trip)
        probes.ask(sites)
        found = []
        while len(found) < len(sites):
            await asyncio.sleep(0.01)
            found += probes.take()
        await fetcher.aclose()
        return dict(found)

    with FleetWeb(sites=1) as web:
        nobody = "http://127.0.0.1:1"
        found = asyncio.run(asyncio.wait_for(probe([*web.sites, nobody]), 10))
        assert 0 < found[web.sites[0]] < 1
        assert found[nobody] > 10
        assert not web.asked
