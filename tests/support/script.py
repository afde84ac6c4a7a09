"""A web that follows a script, for both drivers: what each page answers, after how long, at which attempt.

`ScriptedWorld` plays it in virtual time for `VirtualDriver`, `ScriptedCollector` on an event loop (give it
a `VirtualTimeLoop`) for `runtime.driver`. The same script must give the same decisions in both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

import msgspec

from headway.engine.decisions import in_order
from headway.model.command import Decision, FetchPage, FetchRobots, PageState, Saving
from headway.model.event import Event, PageSettled, RobotsSettled
from headway.model.page import (
    AllowAll,
    Kind,
    Outcome,
    Page,
    RobotsRules,
    Sighting,
    Site,
    is_again,
    tries_before,
)
from headway.runtime.commands import WorldCommand
from headway.runtime.driver import EventSink
from headway.units import FOREVER, Instant, Seconds


class Answer(msgspec.Struct, frozen=True):
    """One answer to one attempt. A `duration_s` of FOREVER is a server that never answers."""

    duration_s: Seconds
    outcome: Outcome = Outcome(Kind.FETCHED, 200, 1000)
    links: tuple[Page, ...] = ()
    sighting: Sighting | None = None


class Script(msgspec.Struct, frozen=True):
    """Answers by URL, one an attempt, the last for all further attempts; robots.txt by site."""

    pages: Mapping[str, Sequence[Answer]]
    robots: Mapping[Site, Sequence[Answer]] = {}
    rules: Mapping[Site, RobotsRules] = {}
    default: Answer = Answer(Seconds(1.0), Outcome(Kind.MISSING, 404))
    again: Mapping[str, Sequence[Answer]] = {}
    """To visits of pages that were fetched before; without an entry, as the first time."""

    def play(
        self, command: FetchPage | FetchRobots, robots_attempt: int
    ) -> tuple[Seconds, PageSettled | RobotsSettled]:
        if isinstance(command, FetchPage):
            lease = command.lease
            url, was = lease.page.url, PageState.DONE if is_again(lease.attempt) else None
            answers = self.pages.get(url, (self.default,))
            if was is not None:
                answers = self.again.get(url, answers)
            answer = answers[min(tries_before(lease.attempt), len(answers) - 1)]
            settled = PageSettled(lease, answer.outcome, answer.links, sighting=answer.sighting, was=was)
            return answer.duration_s, settled
        answers = self.robots.get(command.site, (Answer(Seconds(0.5)),))
        answer = answers[min(robots_attempt, len(answers) - 1)]
        rules = self.rules.get(command.site, AllowAll()) if answer.outcome.kind is Kind.FETCHED else None
        return answer.duration_s, RobotsSettled(command.site, rules, FOREVER, answer.outcome)


class _Player:
    """Counts how often each robots.txt was asked for, so that its script can go on."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._robots_asked: dict[Site, int] = {}

    def play(self, command: FetchPage | FetchRobots) -> tuple[Seconds, PageSettled | RobotsSettled]:
        attempt = 0
        if isinstance(command, FetchRobots):
            attempt = self._robots_asked.get(command.site, 0)
            self._robots_asked[command.site] = attempt + 1
        return self._script.play(command, attempt)


class ScriptedWorld:
    """For `runtime.driver.simulate`."""

    def __init__(self, script: Script) -> None:
        self._player = _Player(script)
        self._coming: list[tuple[Instant, int, PageSettled | RobotsSettled]] = []
        self._serial = 0

    def start(self, now: Instant, command: WorldCommand) -> None:
        if isinstance(command, FetchPage | FetchRobots):
            duration_s, event = self._player.play(command)
            self._serial += 1
            heappush(self._coming, (Instant(now + duration_s), self._serial, event))

    def next_at(self) -> Instant:
        return self._coming[0][0] if self._coming else FOREVER

    def settle(self, now: Instant) -> Sequence[Event]:
        events = []
        while self._coming and self._coming[0][0] <= now:
            events.append(heappop(self._coming)[2])
        return in_order(events)


class ScriptedCollector:
    """For `runtime.driver.LiveDriver`."""

    def __init__(self, script: Script) -> None:
        self._player = _Player(script)
        self._timers: list[asyncio.TimerHandle] = []

    def attach(self, sink: EventSink) -> None:
        self._sink = sink

    def start(self, now: Instant, command: WorldCommand) -> None:
        if not isinstance(command, FetchPage | FetchRobots):
            return
        loop = asyncio.get_running_loop()
        duration_s, event = self._player.play(command)
        if duration_s < FOREVER:
            self._timers.append(loop.call_at(loop.time() + duration_s, self._sink.tell, event))

    def committed(self) -> None:
        pass

    async def aclose(self) -> None:
        for timer in self._timers:
            timer.cancel()


class MemoryJournal:
    """Keeps the decisions and what was to be saved, in order."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.saved: list[Saving] = []

    def decide(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def save(self, batch: Sequence[Saving]) -> None:
        self.saved.extend(batch)


class LoopClock:
    """The running event loop's time as the crawl's clock: with a `VirtualTimeLoop`, virtual time."""

    def now(self) -> Instant:
        return Instant(asyncio.get_running_loop().time())
