"""The books: what each site has given so far. Estimates, forecasts and reports are reckoned from them."""

from __future__ import annotations

from collections import Counter

from headway.model.command import PageState
from headway.model.event import RobotsSettled
from headway.model.outcome import Kind, Outcome
from headway.model.page import Site
from headway.model.robots import RobotsRules
from headway.model.snapshot import SiteRecord
from headway.model.task import Task
from headway.units import FOREVER, Instant

_LINKS_FADE = 0.98
_NEW_FADE = 0.15
_ROBOTS_REDIRECTS = 5  # RFC 9309 2.3.1.2
_NEVER = Instant(-FOREVER)


class SiteBook:
    """One site: its task, its manners and its sums. Only the machine writes in it."""

    __slots__ = (
        "answers",
        "content_bytes",
        "done",
        "ended_at",
        "excluded",
        "failed",
        "failures_in_a_row",
        "in_flight",
        "links_new",
        "links_seen",
        "new_per_page",
        "pages_on_connection",
        "robots_attempts",
        "robots_expires_at",
        "robots_hops",
        "robots_problem",
        "robots_unreachable",
        "robots_url",
        "rules",
        "server",
        "started_at",
        "task",
        "wire_bytes",
    )

    def __init__(self, task: Task) -> None:
        self.task = task
        self.done = 0
        self.failed = 0
        self.excluded = 0
        self.answers = 0
        self.in_flight = 0
        self.wire_bytes = 0
        self.content_bytes = 0
        self.links_seen = 0.0
        self.links_new = 0.0
        self.new_per_page: float | None = None
        self.server = ""
        """The address that rates are predicted by."""
        self.started_at: Instant | None = None
        self.ended_at: Instant | None = None
        self.failures_in_a_row = 0
        self.pages_on_connection = 0
        self.rules: RobotsRules | None = None
        self.robots_expires_at = _NEVER
        self.robots_attempts = 0
        self.robots_url = f"{task.site}/robots.txt"
        self.robots_hops = 0
        self.robots_unreachable = False
        self.robots_problem = ""
        """Why robots.txt could not be had: what a person needs to know about the pages given up for it."""

    @property
    def site(self) -> Site:
        return self.task.site

    @property
    def is_full(self) -> bool:
        """The site's own limits are reached; what is under way counts as fetched."""
        task = self.task
        pages_full = task.max_pages is not None and self.done + self.in_flight >= task.max_pages
        return pages_full or (task.max_bytes is not None and self.wire_bytes >= task.max_bytes)

    @property
    def without_rules(self) -> Outcome:
        """How its pages end when its rules could not be had; that we did not want to ask is told as such."""
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

    def learn_robots(self, event: RobotsSettled, *, gave_up: bool) -> str | None:
        """Take in what became of robots.txt; returns its text when there are rules to be kept."""
        if event.leads_to is not None and self.robots_hops < _ROBOTS_REDIRECTS:
            self.robots_url, self.robots_hops = event.leads_to, self.robots_hops + 1
            return None
        self.robots_url, self.robots_hops = f"{self.site}/robots.txt", 0
        outcome = event.outcome
        self.robots_problem = f"{outcome.kind}: {outcome.detail}".rstrip(": ") if event.rules is None else ""
        if event.rules is None and not gave_up:
            self.robots_attempts += 1
            return None
        # RFC 9309 2.3.1.4: a robots.txt that cannot be had denies everything.
        self.rules, self.robots_expires_at = event.rules, event.expires_at
        self.robots_attempts, self.robots_unreachable = 0, gave_up
        return None if gave_up else event.text

    def count_answer(self, now: Instant, outcome: Outcome) -> None:
        """Bytes and time count whether or not the page is kept: the link has carried them."""
        self.wire_bytes += outcome.wire_bytes
        self.content_bytes += outcome.content_bytes
        self.answers += 1
        if self.started_at is None:
            self.started_at = Instant(now - outcome.duration_s)

    def count_links(self, seen: int, new: int) -> None:
        """Links of one page to pages of this site. Old ones fade: coverage is about the crawl's edge."""
        self.links_seen = self.links_seen * _LINKS_FADE + seen
        self.links_new = self.links_new * _LINKS_FADE + new
        if self.new_per_page is None:
            self.new_per_page = float(new)
        self.new_per_page += _NEW_FADE * (new - self.new_per_page)

    def count_state(self, state: PageState, by: int = 1) -> None:
        if state is PageState.DONE:
            self.done += by
        elif state is PageState.FAILED:
            self.failed += by
        elif state is PageState.EXCLUDED:
            self.excluded += by


class Ledger:
    def __init__(self) -> None:
        self.books: dict[Site, SiteBook] = {}
        self.outcomes: Counter[str] = Counter()
        self.done = 0
        self.failed = 0
        self.wire_bytes = 0

    @property
    def page_bytes(self) -> float:
        """The mean page so far, on the wire."""
        return self.wire_bytes / (self.done + self.failed) if self.done + self.failed else 0.0

    def restore(self, record: SiteRecord, rules: RobotsRules | None) -> None:
        book = self.book(record.site)
        book.restore(record)
        self.done += record.done
        self.failed += record.failed
        self.wire_bytes += record.wire_bytes
        if rules is not None and record.robots_expires_at is not None:
            book.rules, book.robots_expires_at = rules, record.robots_expires_at

    def forget(self, site: Site) -> None:
        """Take a site's sums out of ours: they are about to be read anew."""
        book = self.books.get(site)
        if book is not None:
            self.done -= book.done
            self.failed -= book.failed
            self.wire_bytes -= book.wire_bytes

    def open(self, task: Task) -> SiteBook:
        """The site's book; a task given later replaces the one before (another deadline, other limits)."""
        book = self.books.get(task.site)
        if book is None:
            book = self.books[task.site] = SiteBook(task)
        else:
            book.task = task
        return book

    def book(self, site: Site) -> SiteBook:
        """The site's book; a site that the scope lets in without a task gets one without a deadline."""
        book = self.books.get(site)
        return book if book is not None else self.open(Task(site))

    def count(
        self,
        now: Instant,
        book: SiteBook,
        outcome: Outcome,
        state: PageState,
        was: PageState | None = None,
    ) -> None:
        """A page that settles once more counts as what it is now, not as what it `was`."""
        if outcome.duration_s:
            book.count_answer(now, outcome)
        book.count_state(state)
        if was is not None and state is not PageState.WAITING:
            book.count_state(was, -1)
            self.done -= was is PageState.DONE
            self.failed -= was is PageState.FAILED
        self.outcomes[outcome.kind] += 1
        self.wire_bytes += outcome.wire_bytes
        self.done += state is PageState.DONE
        self.failed += state is PageState.FAILED
