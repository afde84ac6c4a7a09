"""Statistics of the crawl and of each site. Estimates, forecasts and reports are computed from them.

`plausible` corrects the times in a restored snapshot that were written under a clock that has since been set
back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import msgspec
from msgspec import structs

from headway.model.command import PageState, SiteRecord, Snapshot, WaitingRecord
from headway.model.event import RobotsSettled, SiteProgress
from headway.model.page import Kind, Outcome, RobotsRules, Site, Task, Timing, is_again
from headway.planning.estimate import Growth
from headway.policy.politeness import Politeness, RetryPolicy
from headway.units import FOREVER, Instant

_LINKS_DECAY = 0.98
"""By page: what remains of the counts of earlier links."""
_NEW_WEIGHT = 0.15
"""The weight of the last page in the moving average of new pages per page."""
_ANSWER_WEIGHT = 1 / 40
"""The least weight of the last answer in the means of a site, whose server may change."""
_MAX_ROBOTS_REDIRECTS = 5
"""RFC 9309 2.3.1.2."""
_NEVER = Instant(-FOREVER)


class AnswerMeans:
    """What the last answers of a site took on average, as far as it does not depend on our bound."""

    __slots__ = ("answers", "held_rate", "overhead_s", "transfer_bytes", "transfer_s")

    def __init__(self) -> None:
        self.answers = 0
        self.overhead_s = 0.0
        """Connection, wait for the first byte, and our own turnaround, per answer."""
        self.transfer_bytes = self.transfer_s = 0.0
        """Of answers that our bound did not hold back."""
        self.held_rate = 0.0
        """The rate of answers that it held back: their server is at least as fast."""

    def count(self, timing: Timing, wire_bytes: int, turnaround_s: float) -> None:
        self.answers += 1
        step = max(1.0 / self.answers, _ANSWER_WEIGHT)
        overhead_s = timing.connect_s + timing.tls_s + timing.first_byte_s + turnaround_s
        self.overhead_s += step * (overhead_s - self.overhead_s)
        if not timing.is_limited:
            self.transfer_bytes += step * (wire_bytes - self.transfer_bytes)
            self.transfer_s += step * (timing.transfer_s - self.transfer_s)
        else:
            # What arrives during a pause is read at once afterwards: the pauses belong to the transfer.
            rate = wire_bytes / (timing.transfer_s + timing.held_s)
            self.held_rate += step * (rate - self.held_rate) if self.held_rate else rate

    @property
    def server_bytes_per_s(self) -> float:
        """0 if no transfer was long enough to measure a rate."""
        free = self.transfer_bytes / self.transfer_s if self.transfer_s > 0 else 0.0
        return max(free, self.held_rate)


class SiteNumbers:
    """The sites of a crawl, numbered from 0 on as they come. Frontier, statistics and planner keep what they
    know of a site under its number, so that one table of names serves all of them."""

    __slots__ = ("_numbers", "sites")

    def __init__(self) -> None:
        self._numbers: dict[Site, int] = {}
        self.sites: list[Site] = []

    def __len__(self) -> int:
        return len(self.sites)

    def find(self, site: Site) -> int:
        """The number of a site; -1 if it is not known."""
        return self._numbers.get(site, -1)

    def number(self, site: Site) -> int:
        """The number of a site, which gets one if it is new."""
        number = self._numbers.get(site, -1)
        if number < 0:
            number = self._numbers[site] = len(self.sites)
            self.sites.append(site)
        return number


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def _packed(task: Task) -> bytes:
    """A task without its site, in a fifth of its memory. Seeds are kept as paths."""
    site = task.site
    begin, length = f"{site}/", len(site)
    seeds = [url[length:] if url.startswith(begin) else url for url in task.seeds]
    return _encode(
        (
            seeds,
            task.deadline_at,
            task.weight,
            task.max_pages,
            task.max_bytes,
            task.expected_bytes,
            task.cap_bytes_per_s,
        )
    )


def _unpacked(site: Site, packed: bytes) -> Task:
    seeds, *rest = _decode(packed)
    return Task(site, tuple([f"{site}{url}" if url.startswith("/") else url for url in seeds]), *rest)


class SiteStats:
    """One site: its task, its robots.txt, its connections and its counts. Only the engine changes it."""

    __slots__ = (
        "_robots_at",
        "address",
        "answers",
        "asked_at",
        "blocks",
        "content_bytes",
        "domain",
        "done",
        "down_since",
        "ended_at",
        "excluded",
        "failed",
        "failures_in_a_row",
        "given_up",
        "growth",
        "has_content",
        "in_flight",
        "is_proven",
        "leads_to",
        "links_new",
        "links_seen",
        "new_per_page",
        "pages_on_connection",
        "robots_attempts",
        "robots_expires_at",
        "robots_hops",
        "robots_problem",
        "robots_unreachable",
        "rules",
        "server",
        "server_group",
        "start_problem",
        "started_at",
        "suspects",
        "task",
        "times",
        "tried_at",
        "wire_bytes",
    )

    def __init__(self, task: Task) -> None:
        self.task = task
        self.done = self.failed = self.excluded = 0
        self.answers = 0
        self.in_flight = 0
        self.asked_at = _NEVER
        """When its last page was requested."""
        self.wire_bytes = 0
        self.content_bytes = 0
        self.links_seen = self.links_new = 0.0
        self.new_per_page: float | None = None
        self.growth = Growth()
        self.times = AnswerMeans()
        self.server = ""
        """The address and port by which rates are predicted; empty before the first answer."""
        self.domain = ""
        """The registered domain; empty before the first request."""
        self.address = ""
        """The address of the last answer, without a port."""
        self.server_group: str | None = None
        """The server that it shares with other sites (`policy.server_groups`); None before it is looked
        up, empty if it is not known."""
        self.is_proven = False
        """Whether the last answer was neither a failure nor slow."""
        self.started_at: Instant | None = None
        self.ended_at: Instant | None = None
        self.failures_in_a_row = 0
        """How often in a row the server was found in trouble."""
        self.down_since: Instant | None = None
        """When its server was found in trouble; None while it works."""
        self.suspects = self.blocks = 0
        """How many pages in a row have failed in a way that may be the server's fault, and were blocked."""
        self.tried_at: Instant | None = None
        """When the server in trouble was last asked, until the pause after that is shortened."""
        self.given_up: Outcome | None = None
        """Why the server was given up."""
        self.has_content = False
        """At least one page was fetched, redirects not counted."""
        self.start_problem = ""
        """Why its first page was not fetched."""
        self.leads_to = ""
        """The page of another site to which its first page leads: that site has taken over the task."""
        self.pages_on_connection = 0
        self.rules: RobotsRules | None = None
        self.robots_expires_at = _NEVER
        self.robots_attempts = 0
        self.robots_hops = 0
        self.robots_unreachable = False
        self._robots_at = self.robots_problem = ""
        """Where robots.txt redirects to, and why it could not be fetched: the outcome of the pages that fail
        because of it says so."""

    @property
    def site(self) -> Site:
        return self.task.site

    @property
    def robots_url(self) -> str:
        return self._robots_at or f"{self.site}/robots.txt"

    @property
    def is_full(self) -> bool:
        """Whether a limit of the site is reached. Pages in flight count as fetched."""
        task = self.task
        pages_full = task.max_pages is not None and self.done + self.in_flight >= task.max_pages
        return pages_full or (task.max_bytes is not None and self.wire_bytes >= task.max_bytes)

    @property
    def without_rules(self) -> Outcome:
        """The outcome of the site's pages when its robots.txt could not be fetched. If the request was not
        made because the address is forbidden, the outcome says so."""
        kind, _, detail = self.robots_problem.partition(": ")
        if kind == Kind.FORBIDDEN_ADDRESS:
            return Outcome(Kind.FORBIDDEN_ADDRESS, detail=detail)
        return Outcome(Kind.ROBOTS_UNREACHABLE, detail=self.robots_problem)

    def restore(self, record: SiteRecord) -> None:
        self.done, self.failed, self.excluded = record.done, record.failed, record.excluded
        self.wire_bytes, self.content_bytes = record.wire_bytes, record.content_bytes
        self.started_at, self.ended_at = record.started_at, record.ended_at
        self.failures_in_a_row = record.failures_in_a_row
        self.answers = record.done + record.failed
        self.is_proven = record.done > 0 and not record.failures_in_a_row
        self.has_content = record.done > 0

    def learn_robots(self, event: RobotsSettled, *, gave_up: bool) -> str | None:
        """Take in the result of a request for robots.txt; returns its text if there are rules to save."""
        if event.leads_to is not None and self.robots_hops < _MAX_ROBOTS_REDIRECTS:
            self._robots_at, self.robots_hops = event.leads_to, self.robots_hops + 1
            return None
        self._robots_at, self.robots_hops = "", 0
        outcome = event.outcome
        self.robots_problem = f"{outcome.kind}: {outcome.detail}".rstrip(": ") if event.rules is None else ""
        if event.rules is None and not gave_up:
            self.robots_attempts += 1
            return None
        # RFC 9309 2.3.1.4: an unreachable robots.txt disallows everything.
        self.rules, self.robots_expires_at = event.rules, event.expires_at
        self.robots_attempts, self.robots_unreachable = 0, gave_up
        return None if gave_up else event.text

    def count_answer(self, now: Instant, outcome: Outcome) -> None:
        """Count the bytes and the time of an answer, also of a page that is not kept: the link has carried
        them."""
        self.wire_bytes += outcome.wire_bytes
        self.content_bytes += outcome.content_bytes
        self.answers += 1
        if self.started_at is None:
            self.started_at = Instant(now - outcome.duration_s)

    def count_links(self, depth: int, seen: int, new: int) -> None:
        """Count the links of one page to pages of this site. Older links weigh less, because the estimate of
        what remains needs the share of new links at the edge of the crawl."""
        self.growth.note(depth, seen, new)
        self.links_seen = self.links_seen * _LINKS_DECAY + seen
        self.links_new = self.links_new * _LINKS_DECAY + new
        if self.new_per_page is None:
            self.new_per_page = float(new)
        self.new_per_page += _NEW_WEIGHT * (new - self.new_per_page)

    def count_state(self, state: PageState, by: int = 1) -> None:
        if state is PageState.DONE:
            self.done += by
        elif state is PageState.FAILED:
            self.failed += by
        elif state is PageState.EXCLUDED:
            self.excluded += by


class StatsBySite:
    """The statistics of each site, for reading. Those of a site of which nothing was requested are made for
    the reader, and what is written to them is lost: `CrawlStats.site_stats` is for writing."""

    def __init__(self, stats: CrawlStats) -> None:
        self._stats = stats

    def __len__(self) -> int:
        return len(self._stats.opened)

    def __iter__(self) -> Iterator[Site]:
        return iter(self._stats.opened)

    def __contains__(self, site: object) -> bool:
        return self._stats.has_site(site)

    def __getitem__(self, site: Site) -> SiteStats:
        site_stats = self._stats.look(site)
        if site_stats is None:
            raise KeyError(site)
        return site_stats

    def get(self, site: Site) -> SiteStats | None:
        return self._stats.look(site)

    def values(self) -> Iterator[SiteStats]:
        return (self[site] for site in self._stats.opened)

    def items(self) -> Iterator[tuple[Site, SiteStats]]:
        return ((site, self[site]) for site in self._stats.opened)


class CrawlStats:
    """The statistics of all sites, and their sums.

    A site costs memory when its first page is requested: before that, only its task is kept, packed.
    """

    def __init__(self) -> None:
        self.numbers = SiteNumbers()
        self._entries: list[SiteStats | bytes | None] = []
        """By number: the statistics, or the packed task of a site of which nothing was requested."""
        self.by_site = StatsBySite(self)
        self.on_task: Callable[[Task], None] | None = None
        """Called with each new or changed task."""
        self.opened: list[Site] = []
        """The sites of `by_site`, in the order in which they were opened."""
        self.failures: Counter[str] = Counter()
        """Failed pages since this process started, by kind."""
        self.done = self.failed = self.excluded = 0
        self.wire_bytes = 0

    @property
    def page_bytes(self) -> float:
        """The mean size of a page so far, on the wire."""
        return self.wire_bytes / (self.done + self.failed) if self.done + self.failed else 0.0

    def restore(self, record: SiteRecord, rules: RobotsRules | None) -> None:
        site_stats = self.site_stats(record.site)
        site_stats.restore(record)
        self.done += record.done
        self.failed += record.failed
        self.wire_bytes += record.wire_bytes
        if rules is not None and record.robots_expires_at is not None:
            site_stats.rules, site_stats.robots_expires_at = rules, record.robots_expires_at

    def forget(self, site: Site) -> None:
        """Subtract a site's counts from the sums, before they are restored from the store again."""
        site_stats = self.look(site)
        if site_stats is not None:
            self.done -= site_stats.done
            self.failed -= site_stats.failed
            self.wire_bytes -= site_stats.wire_bytes

    def has(self, task: Task) -> bool:
        """Whether the task is known, as it is."""
        entry = self._entry(task.site)
        return entry.task == task if isinstance(entry, SiteStats) else entry == _packed(task)

    def has_site(self, site: object) -> bool:
        return isinstance(site, str) and self._entry(Site(site)) is not None

    def open(self, task: Task) -> None:
        """Take in a task, or replace that of its site (with another deadline, or other limits)."""
        number = self.numbers.number(task.site)
        if number >= len(self._entries):
            self._entries += [None] * (number + 1 - len(self._entries))
        entry = self._entries[number]
        if isinstance(entry, SiteStats):
            entry.task = task
        else:
            if entry is None:
                self.opened.append(self.numbers.sites[number])
            self._entries[number] = _packed(task)
        if self.on_task is not None:
            self.on_task(task)

    def site_stats(self, site: Site) -> SiteStats:
        """The statistics of a site, to be changed. A site in scope that has no task gets one without a
        deadline."""
        entry = self._entry(site)
        if isinstance(entry, SiteStats):
            return entry
        if entry is None:
            self.open(Task(site))
        number = self.numbers.number(site)
        name = self.numbers.sites[number]
        site_stats = SiteStats(Task(name) if entry is None else _unpacked(name, entry))
        self._entries[number] = site_stats
        return site_stats

    def look(self, site: Site) -> SiteStats | None:
        """The statistics of a site, to be read; None if it is not known."""
        entry = self._entry(site)
        if entry is None or isinstance(entry, SiteStats):
            return entry
        return SiteStats(_unpacked(site, entry))

    def look_at(self, site: Site) -> SiteStats:
        """As `look`; of a site without a task what one without a deadline has."""
        return self.look(site) or SiteStats(Task(site))

    def _entry(self, site: Site) -> SiteStats | bytes | None:
        number = self.numbers.find(site)
        return self._entries[number] if 0 <= number < len(self._entries) else None

    def progressed(self, now: Instant, progress: SiteProgress) -> tuple[int, bool]:
        """Take in what the process that crawls a site has reported. Returns how many bytes it has received
        since the last report, and whether the site has ended now, or goes on after all."""
        site_stats = self.site_stats(progress.site)
        received_bytes = progress.wire_bytes - site_stats.wire_bytes
        site_stats.answers, site_stats.wire_bytes = progress.answers, progress.wire_bytes
        if site_stats.started_at is None and progress.answers:
            site_stats.started_at = now
        self.wire_bytes += received_bytes
        has_changed = progress.has_ended != (site_stats.ended_at is not None)
        if has_changed:
            site_stats.ended_at = now if progress.has_ended else None
        return received_bytes, has_changed

    def count(
        self,
        now: Instant,
        site_stats: SiteStats,
        outcome: Outcome,
        state: PageState,
        was: PageState | None = None,
    ) -> None:
        """Count an outcome. `was`: the state of a page that had settled before, under which it is no longer
        counted."""
        if outcome.duration_s:
            site_stats.count_answer(now, outcome)
        site_stats.count_state(state)
        if was is not None and state is not PageState.WAITING:
            site_stats.count_state(was, -1)
            self.done -= was is PageState.DONE
            self.failed -= was is PageState.FAILED
        if state is PageState.FAILED:
            self.failures[outcome.kind] += 1
        self.wire_bytes += outcome.wire_bytes
        self.done += state is PageState.DONE
        self.failed += state is PageState.FAILED


_MAX_ROBOTS_AGE_S = 24 * 3600.0
"""RFC 9309 2.4: a robots.txt should not be used for more than a day."""


def plausible(
    now: Instant,
    snapshot: Snapshot,
    rules: Mapping[Site, RobotsRules],
    politeness: Politeness,
    retry: RetryPolicy,
) -> Snapshot:
    """The snapshot without instants that lie too far ahead.

    The longest delays that politeness and retries can cause are known. An instant beyond them was computed
    from a clock that has since been set back, and would delay the crawl by the difference between the clocks.
    """
    sites = [_plausible_site(now, record, rules.get(record.site), politeness) for record in snapshot.sites]
    waiting = [plausible_waiting(now, record, retry) for record in snapshot.waiting]
    return structs.replace(snapshot, sites=sites, waiting=waiting)


def plausible_waiting(now: Instant, record: WaitingRecord, retry: RetryPolicy) -> WaitingRecord:
    latest = now + retry.longest_wait_s
    # The next visit to a page that was fetched before may be much further ahead than any retry.
    if record.retry_at is None or record.retry_at <= latest or is_again(record.attempt):
        return record
    return structs.replace(record, retry_at=Instant(latest))


def _plausible_site(
    now: Instant, record: SiteRecord, rules: RobotsRules | None, politeness: Politeness
) -> SiteRecord:
    delay_s = rules.crawl_delay_s if rules is not None else None
    latest = now + politeness.of(record.site).longest_wait_s(record.failures_in_a_row, delay_s)
    expires_at = record.robots_expires_at
    if record.free_at <= latest and (expires_at is None or expires_at <= now + _MAX_ROBOTS_AGE_S):
        return record
    return structs.replace(
        record,
        free_at=min(record.free_at, Instant(latest)),
        robots_expires_at=None if expires_at is None else min(expires_at, Instant(now + _MAX_ROBOTS_AGE_S)),
    )
