"""Laws of the machine, whatever the web does."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.script import Answer, Script, ScriptedWorld

from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.model.command import Command, FetchPage, FetchRobots, PageState, SaveFound, SaveSettled
from headway.model.event import Draining, Event, PageSettled, Seeded, Tick
from headway.model.page import Kind, Outcome, Page, PageKey, Site, Task
from headway.policy.ordering.base import Ordering
from headway.policy.ordering.simple import Depth, Length, LongestWait, Random, Score
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.scope import Scope
from headway.runtime.driver import simulate
from headway.units import FOREVER, Instant, Seconds

SITES = tuple(Site(f"http://s{number}.test") for number in range(3))
INTERVAL_S = Seconds(2.0)
orderings = st.sampled_from([Depth(), Length(), LongestWait(), Score(), Random(1)])
durations = st.floats(0.01, 5.0).map(Seconds)
outcomes = st.sampled_from(
    [
        Outcome(Kind.FETCHED, 200, 5000),
        Outcome(Kind.REDIRECT, 302, 200),
        Outcome(Kind.NOINDEX, 200, 900),
        Outcome(Kind.TIMEOUT_TOTAL, keep_alive=False),
        Outcome(Kind.SERVER_ERROR, 502, 100),
        Outcome(Kind.THROTTLED, 503, 100, retry_after_s=Seconds(30.0)),
        Outcome(Kind.MISSING, 410, 100),
        Outcome(Kind.DNS, keep_alive=False),
        Outcome(Kind.TOO_LARGE, 200, 90_000, keep_alive=False),
    ]
)


def page(number: int) -> Page:
    site = SITES[number % len(SITES)]
    return Page(f"{site}/{number}", site, PageKey(number), depth=number // 4, score=float(number % 7))


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    count = draw(st.integers(1, 20))
    answers = st.lists(
        st.builds(
            Answer,
            durations | st.just(Seconds(FOREVER)),
            outcomes,
            st.lists(st.integers(0, count - 1).map(page), max_size=4).map(tuple),
        ),
        min_size=1,
        max_size=4,
    )
    return Script({page(number).url: draw(answers) for number in range(count)})


def new_crawl(ordering: Ordering, connections: int = 2, max_attempts: int = 3) -> Engine:
    return Engine(
        Policies(
            ordering=ordering,
            scope=Scope(hosts=frozenset({"s0.test", "s1.test", "s2.test"})),
            politeness=Politeness(interval_s=INTERVAL_S),
            retry=RetryPolicy(max_attempts=max_attempts),
        ),
        EngineSettings(max_connections=connections, lease_s=Seconds(100.0)),
    )


def seeds(count: int = 3) -> Seeded:
    return Seeded(tuple(Task(site) for site in SITES), tuple(page(number) for number in range(count)))


class Watcher:
    """Sees every command and every answer, and keeps the books that the laws are about."""

    def __init__(self, script: Script) -> None:
        self.world = ScriptedWorld(script)
        self.open: dict[Site, Instant] = {}
        self.ended_at: dict[Site, Instant] = {}
        self.most_open = 0
        self.found: list[Page] = []
        self.fetches: Counter[str] = Counter()
        self.states: dict[str, list[PageState]] = {}
        self.forgiven: dict[str, list[int]] = {}
        """Attempts that did not count, because the server was in trouble."""

    def start(self, now: Instant, command: Command) -> None:
        assert isinstance(command, FetchPage | FetchRobots)
        site = command.lease.page.site if isinstance(command, FetchPage) else command.site
        assert site not in self.open, "two requests to one site at once"
        assert now >= self.ended_at.get(site, Instant(-FOREVER)) + INTERVAL_S, "asked too soon"
        self.open[site] = now
        self.most_open = max(self.most_open, len(self.open))
        if isinstance(command, FetchPage):
            self.fetches[command.lease.page.url] += 1
        self.world.start(now, command)

    def next_at(self) -> Instant:
        return self.world.next_at()

    def settle(self, now: Instant) -> list[Event]:
        events = list(self.world.settle(now))
        for event in events:
            site = event.lease.page.site if isinstance(event, PageSettled) else event.site  # type: ignore[union-attr]
            if self.open.pop(site, None) is not None:
                self.ended_at[site] = now
        return events

    def command(self, now: Instant, command: Command) -> None:
        match command:
            case SaveFound(pages):
                self.found.extend(pages)
            case SaveSettled(page, outcome, state):
                self.states.setdefault(page.url, []).append(state)
                self.forgiven.setdefault(page.url, []).append(command.forgiven)
                if outcome.kind is Kind.LEASE_EXPIRED:
                    self.open.pop(page.site, None)
                    self.ended_at[page.site] = now


def run(script: Script, crawl: Engine) -> Watcher:
    watcher = Watcher(script)
    simulate(crawl, watcher, [seeds()], on_command=watcher.command)
    return watcher


@given(scripts(), orderings, st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_one_request_a_site_spaced_by_the_interval_within_the_connections(
    script: Script, ordering: Ordering, connections: int
) -> None:
    watcher = run(script, new_crawl(ordering, connections))
    assert watcher.most_open <= connections


@given(scripts(), orderings)
@settings(max_examples=200, deadline=None)
def test_every_page_found_ends_once_in_a_final_state(script: Script, ordering: Ordering) -> None:
    crawl = new_crawl(ordering)
    watcher = run(script, crawl)
    urls = [found.url for found in watcher.found]
    assert len(urls) == len(set(urls)), "a page was queued twice"
    for url in urls:
        *before, last = watcher.states[url]
        assert all(state is PageState.WAITING for state in before)
        assert last is not PageState.WAITING
    assert crawl.frontier.waiting == 0
    assert crawl.in_flight == 0


@given(scripts(), orderings, st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_no_page_is_tried_more_often_than_allowed(
    script: Script, ordering: Ordering, max_attempts: int
) -> None:
    crawl = new_crawl(ordering, max_attempts=max_attempts)
    watcher = run(script, crawl)
    forgiven = {url: max(found, default=0) for url, found in watcher.forgiven.items()}
    assert all(count <= max_attempts + forgiven.get(url, 0) for url, count in watcher.fetches.items())


@given(scripts(), orderings)
@settings(max_examples=100, deadline=None)
def test_everything_reachable_through_answers_that_succeed_is_found(
    script: Script, ordering: Ordering
) -> None:
    watcher = run(script, new_crawl(ordering))
    linked = {
        link.url
        for url, answers in script.pages.items()
        for answer in answers[: watcher.fetches[url]]
        if answer.duration_s < FOREVER
        for link in answer.links
    }
    assert linked <= {found.url for found in watcher.found}


def test_an_answer_after_its_lease_ran_out_does_not_count() -> None:
    crawl = new_crawl(Depth())
    (robots,) = [command for command in crawl.step(Instant(0), seeds(1)) if isinstance(command, FetchRobots)]
    script = Script({page(0).url: [Answer(Seconds(1.0))]})
    _, answered = script.play(robots, 0)
    crawl.step(Instant(1), answered)
    (fetch,) = [command for command in crawl.step(Instant(10), Tick()) if isinstance(command, FetchPage)]
    expired = crawl.step(Instant(200), Tick())
    assert [c.state for c in expired if isinstance(c, SaveSettled)] == [PageState.WAITING]
    late = crawl.step(Instant(201), PageSettled(fetch.lease, Outcome(Kind.FETCHED, 200, 10)))
    assert not [command for command in late if isinstance(command, SaveSettled)]
    assert crawl.stats.done == 0


def test_draining_starts_nothing_and_finishes_when_the_last_answer_is_in() -> None:
    crawl = new_crawl(Depth())
    commands = crawl.step(Instant(0), seeds(3))
    asked = [command for command in commands if isinstance(command, FetchRobots)]
    assert len(asked) == 2
    crawl.step(Instant(1), Draining())
    script = Script({})
    drained: list[Command] = []
    for command in asked:
        _, event = script.play(command, 0)
        drained += crawl.step(Instant(2), event)
    assert not [command for command in drained if isinstance(command, FetchPage | FetchRobots)]
    assert type(drained[-1]).__name__ == "Finished"


def test_a_site_without_reachable_robots_is_given_up_and_its_pages_fail() -> None:
    down = Answer(Seconds(0.1), Outcome(Kind.CONNECT, keep_alive=False))
    script = Script({}, robots={site: [down] for site in SITES})
    watcher = run(script, new_crawl(Depth()))
    assert not watcher.fetches
    assert {tuple(states) for states in watcher.states.values()} == {(PageState.FAILED,)}
