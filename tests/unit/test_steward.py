"""The steward: shares by the allocation, forecasts, and warnings, in a crawl played in virtual time."""

from __future__ import annotations

from headway.crawl.bound import LinkBound
from headway.crawl.machine import Crawl
from headway.crawl.steward import Steward
from headway.model.command import Command, Foresee, SaveServers, SetRates
from headway.model.event import Restored, Seeded
from headway.model.outcome import Kind, Outcome
from headway.model.page import Page, PageKey, Site
from headway.model.snapshot import Snapshot
from headway.model.task import Task
from headway.policy.allocation.allocator import Allocator
from headway.policy.ordering.deadline import Deadline
from headway.policy.politeness import Politeness
from headway.policy.prediction import Prediction
from headway.policy.retry import RetryPolicy
from headway.policy.scope import Scope
from headway.policy.timetable import Timetable
from headway.sim.kernel import simulate
from headway.testing.script import Answer, Script, ScriptedWorld
from headway.units import BytesPerSecond, Instant, Seconds

URGENT, PATIENT = Site("http://urgent.test"), Site("http://patient.test")
PAGES = 60
PAGE_BYTES = 10_000


def page(site: Site, number: int) -> Page:
    return Page(f"{site}/{number}", site, PageKey(hash((site, number))), depth=1)


def web() -> Script:
    """Two sites of sixty pages, each found on the first; a page takes a tenth of a second."""
    ok = Outcome(Kind.FETCHED, 200, PAGE_BYTES, Seconds(0.1), peer="192.0.2.1")
    answers = {}
    for site in (URGENT, PATIENT):
        links = tuple(page(site, number) for number in range(1, PAGES))
        answers[page(site, 0).url] = [Answer(Seconds(0.1), ok, links)]
        answers |= {page(site, number).url: [Answer(Seconds(0.1), ok)] for number in range(1, PAGES)}
    return Script(answers)


def crawl_within(capacity: float) -> Crawl:
    politeness = Politeness(interval_s=Seconds(0.4))
    return Crawl(
        ordering=Deadline(),
        scope=Scope(),
        politeness=politeness,
        retry=RetryPolicy(),
        max_connections=8,
        lease_s=Seconds(1e6),
        asks_robots=False,
        bound=LinkBound(Timetable(BytesPerSecond(capacity))),
        steward=Steward(Allocator(), politeness, Prediction(BytesPerSecond(1e6))),
    )


def play(crawl: Crawl, deadline_s: float) -> list[tuple[Instant, Command]]:
    seen: list[tuple[Instant, Command]] = []
    tasks = (Task(URGENT, deadline_at=Instant(deadline_s)), Task(PATIENT))
    seeded = Seeded(tasks, (page(URGENT, 0), page(PATIENT, 0)))
    world = ScriptedWorld(web())
    simulate(crawl, world, [seeded], on_command=lambda now, c: seen.append((now, c)))
    return seen


def test_the_site_with_the_deadline_has_the_link_when_there_is_not_enough_for_both() -> None:
    commands = play(crawl_within(25_000), deadline_s=40.0)
    early = [c.rates_bytes_per_s for now, c in commands if isinstance(c, SetRates) and 2 < now < 10]
    assert early
    assert all(rates.get(URGENT, 0.0) > rates.get(PATIENT, 0.0) for rates in early)


def test_no_claim_is_above_the_capacity() -> None:
    played = play(crawl_within(25_000), deadline_s=40.0)
    rates = [rate for _, c in played if isinstance(c, SetRates) for rate in c.rates_bytes_per_s.values()]
    assert len(rates) > 10
    assert 0 < min(rates) <= max(rates) <= 25_000


def test_a_deadline_out_of_reach_is_reported_once_with_no_false_alarm_for_one_within() -> None:
    hopeless = [c for _, c in play(crawl_within(1e6), deadline_s=15.0) if isinstance(c, Foresee)]
    assert [(told.site, told.is_late) for told in hopeless] == [(URGENT, True)]
    assert not [c for _, c in play(crawl_within(1e6), deadline_s=60.0) if isinstance(c, Foresee)]


def test_the_forecast_range_holds_the_end() -> None:
    crawl = crawl_within(1e6)
    ranges = []

    def look(now: Instant, _: Command) -> None:
        if crawl.steward is not None and 5 < now < 25:
            ranges.append(crawl.steward.range_of(now, crawl.ledger.book(URGENT), crawl.frontier))

    world = ScriptedWorld(web())
    seeded = Seeded((Task(URGENT), Task(PATIENT)), (page(URGENT, 0), page(PATIENT, 0)))
    simulate(crawl, world, [seeded], on_command=look)
    ended_at = crawl.ledger.book(URGENT).ended_at
    known = [ends for ends in ranges if ends is not None]
    assert known
    assert ended_at is not None
    assert sum(early - 1 <= ended_at <= late + 1 for early, late in known) >= 0.8 * len(known)


def test_what_was_learnt_of_servers_is_saved_and_taken_up_again() -> None:
    rows = [c.rows for _, c in play(crawl_within(25_000), 40.0) if isinstance(c, SaveServers)]
    assert rows
    again = crawl_within(25_000)
    snapshot = Snapshot(Instant(0.0), (), (), (), (), servers=rows[-1])
    again.step(Instant(0.0), Restored(snapshot, {}))
    assert again.steward is not None
    (address, _), *_ = rows[-1]
    assert address in again.steward.prediction
