"""The result of a crawl, read from its run folder: finished, interrupted or in progress; traps, mirrors,
duplicates."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from headway.engine.start_pages import LEADS_OUT
from headway.errors import StoreError
from headway.model.page import Kind
from headway.policy.politeness import NEVER_ASKED
from headway.policy.scope import SITE_LIMIT, host_of, registered_domain
from headway.policy.scope import is_address as is_host_address
from headway.policy.traps import EVERY_BIT, NEAR_BITS, distance
from headway.policy.yielding import LinkEstimate
from headway.store.postgres.connection import Address, is_address
from headway.store.reader import RunReader, open_reader
from headway.store.rounds import (
    CHANGED,
    FAILED,
    GONE,
    NEW,
    UNCHANGED,
    Round,
    RoundResult,
    SiteOutcome,
    changes_in,
    end_round,
    period_of,
    rounds_of,
)
from headway.store.run_folder import read_link
from headway.units import Instant
from headway.view.link import LinkSharing
from headway.view.run import FAILURES, DeadlineCounts, RunMonitor, RunState, RunView

_BANDS = (0, 16, 32, 48)


class Clusters(msgspec.Struct, frozen=True):
    """Groups of near-duplicate pages."""

    pages: int = 0
    """Pages that have a near-duplicate."""
    clusters: int = 0
    largest: int = 0


_MOST_OF_A_BAND = 64
"""Clusters with the same band that a page is compared with: pages made for it could all share one."""


def count_clusters(fingerprints: Iterable[int]) -> Clusters:
    """Each page joins the first cluster it is near to, in the given order; the time grows linearly.

    Of four bands of bits at least one is equal in two fingerprints that differ in three bits, so only pages
    that share a band are compared.
    """
    sizes: list[int] = []
    centres: list[int] = []
    exact: dict[int, int] = {}
    banded: dict[tuple[int, int], list[int]] = {}
    for signed in fingerprints:
        fingerprint = signed & EVERY_BIT
        number = exact.get(fingerprint)
        if number is None:
            number = _nearest(fingerprint, banded, centres)
            if number is None:
                number = len(centres)
                centres.append(fingerprint)
                sizes.append(0)
                for band in _BANDS:
                    banded.setdefault((band, fingerprint >> band & 0xFFFF), []).append(number)
            exact[fingerprint] = number
        sizes[number] += 1
    shared = [size for size in sizes if size > 1]
    return Clusters(sum(shared), len(shared), max(shared, default=0))


def _nearest(fingerprint: int, banded: dict[tuple[int, int], list[int]], centres: list[int]) -> int | None:
    for band in _BANDS:
        for number in banded.get((band, fingerprint >> band & 0xFFFF), ())[-_MOST_OF_A_BAND:]:
            if distance(centres[number], fingerprint) <= NEAR_BITS:
                return number
    return None


_TRAP, _MIRROR, _BLOCKED = "trap: ", "mirror", "blocked"
_MOST_COMPARED = 200_000
"""At most this many answers: looking at all pages of a large crawl would take too long for a status."""


class Notice(msgspec.Struct, frozen=True):
    site: str
    what: str
    subject: str


class Noticed(msgspec.Struct, frozen=True):
    left_out: Mapping[str, int] = {}
    """Pages excluded because of a trap, a mirror or a limit on sites, by the reason."""
    notices: tuple[Notice, ...] = ()
    nearly_alike: Mapping[str, Clusters] = {}
    """For each site that has any, pages with a near-duplicate on the site."""


def noticed(reader: RunReader) -> Noticed:
    left_out: Counter[str] = Counter()
    for outcome in reader.outcomes():
        if outcome.reason.startswith((_TRAP, _MIRROR, SITE_LIMIT)):
            left_out[outcome.reason] += outcome.count
    by_site: dict[str, dict[str, int]] = {}
    for site, path, fingerprint in islice(reader.fingerprints(), _MOST_COMPARED):
        by_site.setdefault(site, {})[path] = fingerprint
    clusters = {site: count_clusters(newest.values()) for site, newest in by_site.items()}
    return Noticed(
        dict(left_out.most_common()),
        tuple(Notice(site, what, subject) for site, _, what, subject in reader.notices()),
        {site: found for site, found in clusters.items() if found.clusters},
    )


def lines_of(seen: Noticed) -> list[str]:
    """For people, the most important first."""
    lines = [f"{each.site} is a mirror of {each.subject}" for each in seen.notices if each.what == _MIRROR]
    blocked = {each.site: each.subject for each in seen.notices if each.what == _BLOCKED}
    if blocked:
        shown = [f"{site} ({subject})" for site, subject in blocked.items()]
        lines.append(
            "blocked: "
            + ", ".join(shown[:5])
            + (", ..." if len(shown) > 5 else "")
            + "; an owner may allow this crawler by its user agent, addresses or signature"
        )
    traps = [
        f"{each.site}{each.subject} ({each.what.removeprefix(_TRAP)})"
        for each in seen.notices
        if each.what.startswith(_TRAP) and each.subject.startswith("/")
    ]
    if traps:
        lines.append("endless: " + ", ".join(traps[:5]) + (", ..." if len(traps) > 5 else ""))
    limits = [
        f"{each.what.removeprefix(SITE_LIMIT)} ({each.subject})"
        for each in seen.notices
        if each.what.startswith(SITE_LIMIT)
    ]
    if limits:
        limits = list(dict.fromkeys(limits))
        lines.append(
            "limits on sites reached: " + ", ".join(limits[:5]) + (", ..." if len(limits) > 5 else "")
        )
    if seen.left_out:
        lines.append("excluded: " + ", ".join(f"{count} {why}" for why, count in seen.left_out.items()))
    pages = sum(found.pages for found in seen.nearly_alike.values())
    if pages:
        groups = sum(found.clusters for found in seen.nearly_alike.values())
        lines.append(f"near-duplicates: {pages} pages in {groups} group{'s' if groups > 1 else ''}")
    return lines


class SiteResult(msgspec.Struct, frozen=True):
    site: str
    verdict: str
    """As `SiteState.verdict`."""
    deadline_s: float | None
    """From the start of the crawl, as all times here."""
    finished_s: float | None
    done: int
    failed: int
    waiting: int
    wire_bytes: int
    forecast_from_s: float | None = None
    """Of a site that is being crawled: four of five ends lie between this and `forecast_to_s`."""
    forecast_s: float | None = None
    forecast_to_s: float | None = None
    deadline_chance: float | None = None
    leads_to: str = ""
    """The page of another site to which its first page redirects; that site has its deadline."""
    problem: str = ""
    """Why its first page was not fetched."""
    unreachable_since: float | None = None

    @property
    def is_failure(self) -> bool:
        """It was not crawled, whether or not it has a deadline."""
        return self.verdict in FAILURES


class Summary(msgspec.Struct, frozen=True):
    """What `headway status --json` prints; `docs/reference/figures.md` defines each number."""

    run: str
    state: RunState
    started_at: Instant
    seconds: float
    """From the start to the last sign of the crawl, including the time between two sessions."""
    active_s: float
    sittings: int
    done: int
    failed: int
    waiting: int
    wire_bytes: int
    received_bytes: int
    bound_bytes_per_s: float | None
    """The last bound; None without one."""
    lowest_bound_bytes_per_s: float | None
    highest_bound_bytes_per_s: float | None
    mean_bytes_per_s: float
    max_bytes_per_s: float
    """The highest second."""
    use_of_bound: float | None
    most_over_bound: float | None
    """The highest second relative to its bound, as a share of it; negative if all were under."""
    sites: tuple[SiteResult, ...]
    missed: int
    """Deadlines, including those of unreachable sites."""
    deadlines: DeadlineCounts
    errors: Mapping[str, int]
    first_problem: str | None
    noticed: Noticed
    forecast_from_s: float | None = None
    """Of a running crawl: four of five ends lie between this and `forecast_to_s`."""
    forecast_s: float | None = None
    forecast_to_s: float | None = None
    link_estimate: LinkEstimate | None = None
    """What the link carries, if the bound is a part of it."""
    sharing: LinkSharing | None = None
    """How a crawl with `background` shared the link with its other users."""
    rounds: tuple[Round, ...] = ()
    """The rounds of the run, the current one last; without their sites."""
    timezone: str | None = None
    """Of the job; None: that of the machine."""

    @property
    def bound_changed(self) -> bool:
        bounds = {self.lowest_bound_bytes_per_s, self.highest_bound_bytes_per_s, self.bound_bytes_per_s}
        return self.lowest_bound_bytes_per_s is not None and len(bounds) > 1


def site_lines(sites: Iterable[SiteResult]) -> list[str]:
    """What is to be known of sites that were not crawled as the job says, with what helps."""
    lines = []
    for site in sites:
        if site.unreachable_since is not None:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(site.unreachable_since))
            lines.append(f"{site.site} is unreachable since {since}; the same command tries it again")
        if site.problem.startswith(LEADS_OUT):
            target = site.problem.removeprefix(f"{LEADS_OUT}: ")
            lines.append(
                f"{site.site} redirects to {target}, which is not in the scope of the crawl; to crawl it, "
                f"give url = {json.dumps(target)}"
            )
        elif site.problem and site.unreachable_since is None:
            lines.append(f"{site.site}: {site.problem}")
    return lines


def begun_at(folder: Path | str) -> Instant | None:
    """When the crawl in a folder was first begun; None if it cannot be read."""
    try:
        with open_reader(folder) as reader:
            return reader.started_at
    except (StoreError, OSError):
        return None  # the next open reports the reason


def summarise(folder: Path | str, *, compares_pages: bool = True) -> Summary:
    """The summary of a run folder, or of a crawl on a PostgreSQL server by its address. `compares_pages`:
    with the pages that are nearly alike, for which each page is looked at."""
    with RunMonitor(folder) as monitor:
        view = monitor.view()
    return _summary_of(folder, view, compares_pages=compares_pages)


def summarise_some(folder: Path | str, most_sites: int) -> tuple[Summary, int | None]:
    """As `summarise`; of a run folder with very many sites the summary has so many of them, the most
    important first. Then also returns of how many."""
    with RunMonitor(folder, most_sites=most_sites) as monitor:
        view = monitor.view()
        return _summary_of(folder, view, compares_pages=True), monitor.sites_listed_of


def _summary_of(folder: Path | str, view: RunView, *, compares_pages: bool) -> Summary:
    with open_reader(folder) as reader:
        problem = _first_problem(reader) if not view.done else None
        rounds = tuple(map(_without_sites, rounds_of(reader)))
        timezone = reader.job.get("crawl", {}).get("timezone")
        seen = noticed(reader) if compares_pages else Noticed()
    link = view.link
    return Summary(
        run=_name_of(folder),
        state=view.state,
        started_at=Instant(view.started_at),
        seconds=view.elapsed_s,
        active_s=link.active_s,
        sittings=link.sittings,
        done=view.done,
        failed=view.failed,
        waiting=view.waiting,
        wire_bytes=view.wire_bytes,
        received_bytes=link.received_bytes,
        bound_bytes_per_s=view.bound_bytes_per_s,
        lowest_bound_bytes_per_s=link.lowest_bound_bytes_per_s,
        highest_bound_bytes_per_s=link.highest_bound_bytes_per_s,
        mean_bytes_per_s=link.mean_bytes_per_s,
        max_bytes_per_s=link.max_bytes_per_s,
        use_of_bound=link.use_of_bound,
        most_over_bound=link.most_over_bound,
        sites=tuple(
            SiteResult(
                site.site,
                site.verdict,
                site.deadline_s,
                site.end_s,
                site.done,
                site.failed,
                site.waiting,
                site.wire_bytes,
                _since(view.started_at, site.forecast_from_at),
                _since(view.started_at, site.forecast_at),
                _since(view.started_at, site.forecast_to_at),
                site.deadline_chance,
                site.leads_to,
                site.start_problem,
                site.down_since,
            )
            for site in view.sites
            if site.done or site.failed or site.waiting or site.deadline_at is not None
        ),
        missed=view.deadlines.all_missed,
        deadlines=view.deadlines,
        errors=view.failures,
        first_problem=problem,
        noticed=seen,
        forecast_from_s=_since(view.started_at, view.forecast_from_at),
        forecast_s=_since(view.started_at, view.forecast_middle_at),
        forecast_to_s=_since(view.started_at, view.forecast_at) if view.is_live else None,
        link_estimate=None if is_address(str(folder)) else read_link(Path(folder)).estimate,
        sharing=view.link.sharing,
        rounds=rounds,
        timezone=timezone,
    )


def rounds_in(run: Path | str) -> list[Round]:
    """The rounds of a run, with what the current one has found so far."""
    with open_reader(run) as reader:
        return rounds_of(reader)


def round_result(
    run: Path | str, summary: Summary, exit_code: int, *, is_complete: bool = True
) -> RoundResult:
    """What the current round has found."""
    with open_reader(run) as reader:
        rounds = rounds_of(reader)
        counts = changes_in(reader, period_of(rounds, len(rounds)))
    began = summary.started_at
    return RoundResult(
        done=summary.done,
        failed=summary.failed,
        wire_bytes=summary.wire_bytes,
        met=summary.deadlines.met,
        missed=summary.missed,
        exit_code=exit_code,
        new=counts[NEW],
        changed=counts[CHANGED],
        unchanged=counts[UNCHANGED],
        gone=counts[GONE],
        failed_visits=counts[FAILED],
        is_complete=is_complete,
        sites=tuple(
            SiteOutcome(
                site.site,
                site.verdict,
                None if site.deadline_s is None else began + site.deadline_s,
                None if site.finished_s is None else began + site.finished_s,
                site.done,
                site.failed,
                site.wire_bytes,
                site.problem,
            )
            for site in summary.sites[:_MOST_SITES_OF_ROUND]
        ),
    )


_MOST_SITES_OF_ROUND = 1000


def finish_round(run: Path | str, summary: Summary, exit_code: int, *, is_complete: bool = True) -> None:
    """Note that the current round has ended, and with what."""
    result = round_result(run, summary, exit_code, is_complete=is_complete)
    end_round(run, Instant(summary.started_at + summary.seconds), result)


def _without_sites(each: Round) -> Round:
    if each.result is None:
        return each
    return msgspec.structs.replace(each, result=msgspec.structs.replace(each.result, sites=()))


def _since(started_at: float, at: float | None) -> float | None:
    return None if at is None else at - started_at


def _name_of(run: Path | str) -> str:
    if is_address(str(run)):
        return Address.parse(str(run)).shown
    return os.fsencode(run).decode("utf-8", "replace")  # the name of a file need not be valid text


def _first_problem(reader: RunReader) -> str | None:
    for page in reader.pages():
        if page.state in {"failed", "excluded"}:
            detail = f" ({page.detail})" if page.detail else ""
            return f"{page.url}: {page.kind}{detail}"
    return None


# -- politeness: what an abuse desk asks for ----


class DomainPoliteness(msgspec.Struct, frozen=True):
    """What the sites of a registered domain, or an address, were asked, by `crawl.log`."""

    domain: str
    sites: int
    requests: int
    shortest_pause_s: float | None
    """From the end of an answer to the next request to any of these sites; None with fewer than two."""
    throttled: int
    """Answers that asked for a pause."""
    blocked: int
    denied: int
    """Pages that were not requested because robots.txt denies them."""


class _Asked:
    __slots__ = ("begins", "blocked", "denied", "ends", "sites", "throttled")

    def __init__(self) -> None:
        self.begins, self.ends = array("d"), array("d")
        self.sites: set[str] = set()
        self.throttled = self.blocked = self.denied = 0


def politeness_of(folder: Path, denied: Iterable[tuple[str, int]]) -> list[DomainPoliteness]:
    """By domain, those with the shortest pauses first. `denied`: pages of sites that robots.txt denies."""
    domains: dict[str, _Asked] = {}
    for site, count in denied:
        domains.setdefault(_group_of(site), _Asked()).denied += count
    log = folder / "crawl.log"
    if log.exists():
        with log.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                _read_line(line, domains)
    found = [_politeness(domain, asked) for domain, asked in domains.items()]
    return sorted(found, key=_by_pause)


def _group_of(site: str) -> str:
    host = host_of(site)
    return site.partition("://")[2] if is_host_address(host) else registered_domain(host)


def _by_pause(each: DomainPoliteness) -> tuple[bool, float, int]:
    return each.shortest_pause_s is None, each.shortest_pause_s or 0.0, -each.requests


def _read_line(line: str, domains: dict[str, _Asked]) -> None:
    columns = line.split(" ")
    columns = [column for column in columns if column]
    if len(columns) < _LOG_COLUMNS:
        return
    url, (begun, _, took), kind = columns[3], columns[6].partition("+"), columns[9]
    if columns[1] == "0" and kind in _NOT_ASKED:
        return
    try:
        begun_at, lasted_s = dt.datetime.fromisoformat(begun).timestamp(), float(took)
    except ValueError:
        return  # cut by a crash
    site = "/".join(url.split("/", 3)[:3])
    asked = domains.setdefault(_group_of(site), _Asked())
    asked.sites.add(site)
    asked.begins.append(begun_at)
    asked.ends.append(begun_at + lasted_s)
    asked.throttled += kind == Kind.THROTTLED
    asked.blocked += kind == Kind.BLOCKED


_LOG_COLUMNS = 10
_NOT_ASKED = frozenset({*NEVER_ASKED, Kind.DNS, Kind.CANCELLED, Kind.LEASE_EXPIRED})


def _politeness(domain: str, asked: _Asked) -> DomainPoliteness:
    order = np.argsort(np.frombuffer(asked.begins), kind="stable")
    begins, ends = np.frombuffer(asked.begins)[order], np.frombuffer(asked.ends)[order]
    pauses = begins[1:] - np.maximum.accumulate(ends)[:-1] if len(begins) > 1 else begins[:0]
    return DomainPoliteness(
        domain,
        len(asked.sites),
        len(begins),
        max(0.0, float(pauses.min())) if len(pauses) else None,
        asked.throttled,
        asked.blocked,
        asked.denied,
    )
