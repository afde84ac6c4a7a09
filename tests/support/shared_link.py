"""A bottleneck with users and a crawler in virtual time, for tests of the controller: a queue in front of a
link of constant rate, in steps of 2 ms.

Users load small pages on new connections, and may download something large by a saw-tooth (Reno) or by the
measured bandwidth (BBR). The crawler receives at the rate of its controller, through windows, and measures
round trips on its connections, with noise and in whole milliseconds as Linux does.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass, field

from headway.policy.yielding import PACKET_BYTES, GroupYield, LinkUse, QueueDelay
from headway.units import BytesPerSecond, Instant, Seconds

STEP_S = 0.002
CONTROL_S = 0.05
TOLD_EVERY = 5
FIRST_WINDOW = 10 * PACKET_BYTES


class Download:
    """A user's large download: its window is what it may have on the way."""

    def __init__(self, begins_s: float, ends_s: float, *, probes: bool = False) -> None:
        self.begins_s, self.ends_s = begins_s, ends_s
        self._probes = probes
        self._window = float(FIRST_WINDOW)
        self._threshold = math.inf
        self._on_way = 0.0
        self._cut_at = -math.inf
        self._best: deque[tuple[float, float]] = deque()
        self._full, self._rounds_alike, self._round_ends_at = 0.0, 0, 0.0
        self.got: list[tuple[float, float]] = []

    def sends(self, now: float, round_trip_s: float, base_s: float) -> float:
        if not self.begins_s <= now < self.ends_s:
            return 0.0
        if self._probes and len(self._best) > 1:
            best = max(rate for _, rate in self._best)
            if now >= self._round_ends_at:
                self._round_ends_at = now + round_trip_s
                self._rounds_alike = 0 if best > 1.25 * self._full else self._rounds_alike + 1
                self._full = max(self._full, best)
            phase = int((now - self.begins_s) / base_s) % 8
            gain = 1.25 if phase == 0 else 0.75 if phase == 1 else 1.0
            if self._rounds_alike < 3:
                gain = 2.89
            room = max(2.0, gain) * max(best, FIRST_WINDOW / base_s) * base_s - self._on_way
            sent = max(0.0, min(gain * max(best, FIRST_WINDOW / base_s) * STEP_S, room))
        else:
            sent = max(0.0, min(self._window - self._on_way, 4 * self._window / round_trip_s * STEP_S))
        self._on_way += sent
        return sent

    def arrived(self, now: float, size: float, round_trip_s: float) -> None:
        self._on_way -= size
        self.got.append((now, size))
        if self._probes:
            recent = sum(each for at, each in self.got[-int(0.1 / STEP_S) :] if at > now - 0.1)
            self._best.append((now, recent / 0.1))
            while self._best[0][0] < now - 10 * round_trip_s:
                self._best.popleft()
        if self._window < self._threshold:
            self._window += size
        else:
            self._window += PACKET_BYTES * size / self._window

    def lost(self, now: float, size: float, round_trip_s: float) -> None:
        self._on_way -= size
        if now - self._cut_at > round_trip_s:
            self._cut_at = now
            self._window = self._threshold = max(2.0 * PACKET_BYTES, self._window / 2)

    def rate(self, begins_s: float, ends_s: float) -> float:
        return sum(size for at, size in self.got if begins_s <= at < ends_s) / (ends_s - begins_s)


@dataclass
class Page:
    """A page of a user: a round trip to connect, then windows that double."""

    began_at: float
    left: float
    window: float = FIRST_WINDOW
    on_way: float = 0.0
    sends_at: float = 0.0


@dataclass
class Scene:
    """A link and its users."""

    link_bytes_per_s: float
    base_s: float = 0.04
    buffer_s: float = 0.25
    seconds: float = 30.0
    bound_bytes_per_s: float = 0.0
    """0: twice the link."""
    page_every_s: float = 0.25
    page_bytes: float = 30_000
    downloads: list[Download] = field(default_factory=list)
    jitter_s: float = 0.0005
    connections: int = 12
    segments: int = 5
    crawls_from_s: float = 0.0
    joins_s: tuple[float, ...] = (0.0,)
    """When each process of the crawl begins."""
    idle_s: tuple[float, float] = (0.0, 0.0)
    """From and until when the last process has nothing to fetch."""


class Outcome:
    """What each got."""

    def __init__(self) -> None:
        self.pages: list[tuple[float, float]] = []
        self.crawler: list[tuple[float, float]] = []
        self.rates: list[tuple[float, float]] = []
        self.waits: list[tuple[float, float]] = []
        self.by_process: list[list[tuple[float, float]]] = []

    def page_quantile(self, quantile: float, begins_s: float = 0.0, ends_s: float = math.inf) -> float:
        times = sorted(lasted for at, lasted in self.pages if begins_s <= at < ends_s)
        return times[min(len(times) - 1, int(quantile * len(times)))]

    def rate_of(self, process: int, begins_s: float, ends_s: float) -> float:
        got = self.by_process[process]
        return sum(size for at, size in got if begins_s <= at < ends_s) / (ends_s - begins_s)

    def crawl_rate(self, begins_s: float, ends_s: float) -> float:
        return sum(size for at, size in self.crawler if begins_s <= at < ends_s) / (ends_s - begins_s)


class Process:
    """One process of the crawl: its connections, what is on its way to it, and its controller."""

    def __init__(self, number: int, bound_bytes_per_s: float, scene: Scene, seed: int) -> None:
        self.number = number
        self.begins_s = max(scene.crawls_from_s, scene.joins_s[number])
        self._idle_s = scene.idle_s if number == len(scene.joins_s) - 1 else (0.0, 0.0)
        self._scene = scene
        self._connections = max(1, scene.connections // len(scene.joins_s))
        self._most_on_way = self._connections * scene.segments * PACKET_BYTES
        self.group = GroupYield(BytesPerSecond(bound_bytes_per_s))
        self._delay = QueueDelay()
        self.others: list[LinkUse] = []
        self.on_way = 0.0
        self.has_lost = False
        self._coming: deque[tuple[float, float]] = deque()
        self._arrivals: deque[tuple[float, float]] = deque()

    def sends(self, now: float) -> list[tuple[object, float]]:
        if now < self.begins_s:
            return []
        if not self._idle_s[0] <= now < self._idle_s[1]:
            granted = min(self.group.pace_bytes_per_s * STEP_S, max(0.0, self._most_on_way - self.on_way))
            self.on_way += granted
            self._coming.append((now + self._scene.base_s, granted))
        sent: list[tuple[object, float]] = []
        while self._coming and self._coming[0][0] <= now:
            sent.append((self, self._coming.popleft()[1]))
        return sent

    def arrived(self, now: float, size: float) -> None:
        self.on_way -= size
        self._arrivals.append((now, size))

    def steps(self, now: float, felt_s: float, chance: random.Random) -> None:
        scene, arrivals = self._scene, self._arrivals
        while arrivals and arrivals[0][0] < now - 0.4:
            arrivals.popleft()
        delivered = sum(size for _, size in arrivals) / 0.4
        segments = sum(size for at, size in arrivals if at > now - CONTROL_S) / PACKET_BYTES
        for path in range(min(self._connections, int(segments))):
            noise_s = chance.expovariate(1 / scene.jitter_s) if scene.jitter_s else 0.0
            measured_s = math.floor(1000 * (scene.base_s + 0.002 * path + felt_s + noise_s)) / 1000
            self._delay.add(Instant(now), path, Seconds(measured_s))
        self.group.step(Instant(now), self._delay, delivered, has_lost=self.has_lost)
        self.has_lost = False


def run(scene: Scene, *, crawls: bool = True, seed: int = 1) -> Outcome:
    """Without `crawls` the users have the link alone."""
    chance = random.Random(seed)
    outcome = Outcome()
    bound = scene.bound_bytes_per_s or 2 * scene.link_bytes_per_s
    processes = [
        Process(number, bound / len(scene.joins_s), scene, seed) for number in range(len(scene.joins_s))
    ]
    outcome.by_process = [[] for _ in processes]
    queue: deque[tuple[object, float]] = deque()
    queued = 0.0
    pages: list[Page] = []
    next_page_at, next_control_at = 0.1, scene.crawls_from_s
    wait_then: deque[float] = deque([0.0] * max(1, int(scene.base_s / 2 / STEP_S)))
    for number in range(int(scene.seconds / STEP_S)):
        now = number * STEP_S
        wait_s = queued / scene.link_bytes_per_s
        wait_then.append(wait_s)
        felt_s = wait_then.popleft()
        round_trip_s = scene.base_s + wait_s
        sends: list[tuple[object, float]] = []
        if now >= next_page_at:
            size = scene.page_bytes * chance.lognormvariate(0.0, 0.15)
            # The request follows a round trip of connecting, and the answer another.
            pages.append(Page(now, size, sends_at=now + 2 * scene.base_s + wait_s))
            next_page_at += scene.page_every_s * chance.uniform(0.8, 1.2)
        for page in pages:
            if page.left > 0 and now >= page.sends_at and page.on_way < page.window:
                burst = min(page.left, page.window - page.on_way)
                page.left -= burst
                page.on_way += burst
                sends.append((page, burst))
        sends += [
            (each, sent)
            for each in scene.downloads
            if (sent := each.sends(now, round_trip_s, scene.base_s)) > 0
        ]
        for process in processes if crawls else ():
            sends += process.sends(now)
        chance.shuffle(sends)
        for flow, size in sends:
            fits = min(size, max(0.0, scene.buffer_s * scene.link_bytes_per_s - queued))
            if fits > 0:
                queue.append((flow, fits))
                queued += fits
            if (gone := size - fits) > 0:
                if isinstance(flow, Download):
                    flow.lost(now, gone, round_trip_s)
                elif isinstance(flow, Page):
                    flow.left += gone
                    flow.on_way -= gone
                    flow.sends_at = now + round_trip_s + 0.2
                elif isinstance(flow, Process):
                    flow.on_way -= gone
                    flow.has_lost = True
        room = scene.link_bytes_per_s * STEP_S
        while queue and room > 0:
            flow, size = queue[0]
            served = min(size, room)
            room -= served
            queued -= served
            if served < size:
                queue[0] = (flow, size - served)
            else:
                queue.popleft()
            if isinstance(flow, Download):
                flow.arrived(now, served, round_trip_s)
            elif isinstance(flow, Page):
                flow.on_way -= served
                if flow.on_way <= 1e-6 and flow.left > 0:
                    flow.window *= 2
                    flow.sends_at = now + scene.base_s
                elif flow.on_way <= 1e-6:
                    outcome.pages.append((now, now - flow.began_at))
                    pages.remove(flow)
            elif isinstance(flow, Process):
                flow.arrived(now, served)
                outcome.crawler.append((now, served))
                outcome.by_process[flow.number].append((now, served))
        if crawls and now >= next_control_at:
            next_control_at += CONTROL_S
            at_work = [process for process in processes if process.begins_s <= now]
            for process in at_work:
                process.steps(now, felt_s, chance)
                if round(now / CONTROL_S) % TOLD_EVERY == 0:
                    # What is said comes a moment later.
                    process.group.hear(Instant(now), Instant(now), process.others)
                    process.others = [
                        other.group.use(Instant(now)) for other in at_work if other is not process
                    ]
            outcome.rates.append((now, sum(process.group.pace_bytes_per_s for process in at_work)))
            outcome.waits.append((now, wait_s))
    return outcome
