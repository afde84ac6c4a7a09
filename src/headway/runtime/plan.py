"""A plan: sites from a table or a job file, schedules, and a verdict; and the probe for sizes of sites.

Before a crawl, `probe` (`headway plan --probe`) and `read_sitemaps` (`run-scrapy`) ask sites for robots.txt
and their sitemaps, one request after the other with the pauses of a crawl, and count the listed pages.
"""

from __future__ import annotations

import asyncio
import csv
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from headway.config.job import Job, SiteWish, load_job
from headway.engine.forecast import Forecast
from headway.engine.machine import Engine
from headway.errors import JobError
from headway.http.client import HttpFetcher
from headway.http.robots import MAX_ROBOTS_BYTES, judge
from headway.model.command import SetRates
from headway.model.event import Event
from headway.model.page import Kind, Page, RobotsRules, Site
from headway.pages.document import REDIRECT_STATUSES, parse
from headway.pages.parsed import ParseOptions
from headway.pages.url import page_of
from headway.planning.ends import EndRange
from headway.planning.estimate import NO_FACTS, NOTHING_LEARNT, Knowledge, Remaining
from headway.planning.policies import POLICIES, Outlook, StartPlan, run_policy
from headway.planning.problem import FloatArray, Objective, Problem, Schedule, Timetable
from headway.ports import Request, Response
from headway.runtime.commands import WorldCommand
from headway.runtime.driver import VirtualClock, WallClock
from headway.runtime.runtime import Circumstances, Runtime, build_fetcher, build_politeness, check_has_rate
from headway.store.learnt import LearntStore
from headway.store.reader import knowledge_of_run
from headway.units import FOREVER, BytesPerSecond, Instant, Seconds

DEFAULTS: Mapping[str, float | None] = {
    "data_bytes": None,
    "deadline_s": math.inf,
    "cap_bytes_per_s": math.inf,
    "weight": 1.0,
    "xi": 1.0,
}
"""The meaning of an empty field, by column; None: it must not be empty."""
COLUMNS = ("name", *DEFAULTS)


class SiteTable:
    """Sites from a CSV or JSON table: a name, its data, and what else is known of each.

    Every error names the file, the line (in JSON: the site) and the column.
    """

    def __init__(self, path: Path) -> None:
        self.names: list[str] = []
        self._path = path
        self._columns = {key: array("d") for key in DEFAULTS}
        self._place_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.names)

    def column(self, key: str) -> FloatArray:
        return np.array(self._columns[key])

    def add(self, place: str, name: object, fields: Mapping[str, object]) -> None:
        """A site, checked; `place` is its position in the file."""
        if not isinstance(name, str) or not name.strip():
            raise self.error(place, "name", "every site needs a name")
        name = name.strip()
        if (first := self._place_of.setdefault(name, place)) != place:
            raise self.error(place, "name", f"{name!r} appears twice, first in {first}")
        self.names.append(name)
        for key, default in DEFAULTS.items():
            self._columns[key].append(self._number(place, key, fields.get(key), default))

    def error(self, place: str, column: str, message: str) -> JobError:
        where = ", ".join(part for part in (str(self._path), place, column) if part)
        return JobError(f"{where}: {message}")

    def _number(self, place: str, key: str, value: object, default: float | None) -> float:
        if value is None or value == "":
            if default is None:
                raise self.error(place, key, "it is missing, and the plan needs it")
            return default
        number = _as_float(value)
        if number is None:
            hint = "" if key != "data_bytes" else "; sizes are plain bytes here, such as 1500000"
            raise self.error(place, key, f"{value!r} is not a plain number{hint}")
        if not math.isfinite(number):
            raise self.error(place, key, f"{value!r} is not a finite number; leave the field empty for none")
        if key == "deadline_s":
            if number < 0:
                raise self.error(place, key, f"{value} s is in the past; deadlines count from the start")
            # The paper writes 0 for a site without a deadline.
            return number or math.inf
        if number <= 0:
            raise self.error(place, key, f"{value} is not more than zero")
        return number


def _as_float(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str) or "_" in str(value):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def read_site_table(path: Path) -> SiteTable:
    """Read `name,data_bytes,deadline_s,cap_bytes_per_s,weight,xi` (the columns after data_bytes may be
    absent, an empty field means none), or a JSON list of objects with the same keys."""
    table = SiteTable(path)
    try:
        if path.suffix.lower() == ".json":
            _read_json(table, path.read_bytes())
        else:
            with path.open(newline="", encoding="utf-8-sig") as file:
                _read_csv(table, csv.reader(file, strict=True))
    except IsADirectoryError:
        raise JobError(f"{path} is a folder; give a job file, or a table of sites") from None
    except OSError as problem:
        raise JobError(f"cannot read {path}: {problem.strerror or problem}") from None
    except UnicodeDecodeError:
        raise JobError(f"{path} is not text in UTF-8") from None
    if not len(table):
        raise JobError(f"{path} contains no site; add a row for each, after the header {','.join(COLUMNS)}")
    return table


def _read_csv(table: SiteTable, rows: Any) -> None:
    lines: Iterator[list[str]] = iter(rows)
    try:
        header = [cell.strip() for cell in next(lines, [])]
        _check_header(table, header)
        for row in lines:
            if not any(cell.strip() for cell in row):
                continue
            place = f"line {rows.line_num}"
            if len(row) != len(header):
                message = f"it has {len(row)} fields and the header {len(header)}"
                raise table.error(place, "", message)
            fields = dict(zip(header, (cell.strip() for cell in row), strict=True))
            table.add(place, fields["name"], fields)
    except csv.Error as problem:
        raise table.error(f"line {rows.line_num}", "", str(problem)) from None


def _check_header(table: SiteTable, header: list[str]) -> None:
    if not any(header):
        raise JobError(f"{table.error('', '', 'it is empty')}; the header should be {','.join(COLUMNS)}")
    for column in header:
        if column not in COLUMNS:
            hint = "; separate columns by commas" if ";" in column or "\t" in column else ""
            known = ", ".join(COLUMNS)
            raise table.error("line 1", "", f"there is no column {column!r}, only {known}{hint}")
        if header.count(column) > 1:
            raise table.error("line 1", column, "the column appears twice")
    for column in ("name", "data_bytes"):
        if column not in header:
            raise table.error("line 1", "", f"the column {column!r} is missing")


def _read_json(table: SiteTable, text: bytes) -> None:
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as problem:
        raise table.error("", "", f"it is not JSON: {problem}") from None
    sites = document.get("sites") if isinstance(document, dict) else document
    if not isinstance(sites, list):
        raise table.error("", "", 'it should be a list of sites, or {"sites": [...]}')
    for number, site in enumerate(sites, 1):
        place = f"site {number}"
        if not isinstance(site, dict):
            raise table.error(place, "", "it should be an object with name and data_bytes")
        if strange := [key for key in site if key not in COLUMNS]:
            raise table.error(place, "", f"there is no key {strange[0]!r}, only {', '.join(COLUMNS)}")
        if isinstance(site.get("data_bytes"), str):
            raise table.error(place, "data_bytes", f"{site['data_bytes']!r} is text, not a number")
        table.add(place, site.get("name"), site)


_HORIZON_S = Seconds(28 * 86_400.0)
_WITHOUT_BOUND = BytesPerSecond(1e15)


def plan_from_file(
    path: Path,
    now: Instant,
    *,
    bandwidth_bytes_per_s: BytesPerSecond | None = None,
    policy: str | None = None,
    crawlers: int | None = None,
    learn_from: Path | None = None,
    learnt: LearntStore | None = None,
    ask: Callable[[Job, Knowledge], Knowledge] | None = None,
) -> StartPlan:
    """The plan of a job file, or of a CSV or JSON table of sites, for which nothing needs to be assumed.
    `ask` may find out more about the sites of a job."""
    if path.suffix.lower() == ".toml":
        job = load_job(path, now)
        knowledge = NOTHING_LEARNT
        if learnt is not None:
            knowledge, _ = learnt.read([wish.site for wish in job.sites])
        elif learn_from is not None:
            knowledge = knowledge_of_run(learn_from)
        if ask is not None:
            knowledge = ask(job, knowledge)
        crawl = job.file.crawl
        job = job.with_crawl(policy=policy or crawl.policy, crawlers=crawlers or crawl.crawlers)
        return plan_from_job(job, now, bandwidth_bytes_per_s, knowledge)
    if learn_from is not None:
        raise JobError(f"{path} gives the data of every site, so --learn-from has no effect; leave it out")
    if ask is not None:
        raise JobError(f"{path} gives the data of every site, so --probe has no effect; leave it out")
    sites = read_site_table(path)
    if bandwidth_bytes_per_s is None:
        raise JobError(f"{path} has no bandwidth; give one, such as --bandwidth 1Mbit/s")
    problem = Problem.of(
        sites.column("data_bytes"),
        Timetable.constant(bandwidth_bytes_per_s),
        deadline_s=sites.column("deadline_s"),
        cap_bytes_per_s=sites.column("cap_bytes_per_s"),
        weight=sites.column("weight"),
        xi=sites.column("xi"),
        names=sites.names,
        crawlers=crawlers,
    )
    return StartPlan(problem, Objective.MAX_COMPLETION)


def plan_from_job(
    job: Job,
    now: Instant,
    bandwidth_bytes_per_s: BytesPerSecond | None = None,
    knowledge: Knowledge | None = None,
) -> StartPlan:
    """Ask the planner of a crawl that starts now. The engine receives the job; its first commands are the
    decision, and are not carried out."""
    if bandwidth_bytes_per_s is not None:
        timetable = job.timetable.with_rate(bandwidth_bytes_per_s)
        job = structs.replace(job, timetable=timetable, link_part=None)
    check_has_rate(job, "a plan")
    if not job.is_bounded:
        raise JobError("the job has no bandwidth, so there is nothing to share; give one with --bandwidth")
    return start_plan(job, now, Circumstances(knowledge=knowledge or NOTHING_LEARNT))


def start_plan(
    job: Job, now: Instant, circumstances: Circumstances, opening: Sequence[Event] = ()
) -> StartPlan:
    """What the planner of a crawl decides that starts now, with these events."""
    world = _NothingHappens()
    runtime = Runtime.from_job(job, VirtualClock(now), world, circumstances)
    runtime.run_virtually(opening, until=now)
    engine, planner, tasks = runtime.engine, runtime.engine.planner, job.tasks(now)
    assert planner is not None  # the job is bounded
    demands = {demand.site: demand for demand in planner.on_a_faster_link(now, engine.stats)}
    wanted = [task for task in tasks if task.site in demands]
    if not wanted:
        raise JobError("the job's scope excludes all its start pages, so there is nothing to plan")
    by_site = [engine.stats.site_stats(task.site) for task in wanted]
    remaining = [planner.remaining_of(task.site) or Remaining(0.0, 0.0, 0.0) for task in wanted]
    problem = Problem.of(
        [max(left.expected, 1.0) for left in remaining],
        _link_of(job, now),
        deadline_s=[np.inf if task.deadline_at is None else task.deadline_at - now for task in wanted],
        cap_bytes_per_s=[demands[task.site].cap_bytes_per_s for task in wanted],
        weight=[task.weight for task in wanted],
        names=[task.site for task in wanted],
        crawlers=job.file.crawl.crawlers,
    )
    problem = replace(problem, shut_s=_shut_of(job, now, [task.site for task in wanted]))
    return StartPlan(
        problem,
        Objective(job.file.crawl.objective),
        tuple(planner.assumptions_of(now, site_stats, engine.frontier) for site_stats in by_site),
        tuple(remaining),
        world.first_rates,
        job.file.crawl.policy,
        job.quotas,
        *_forecasts(engine, now),
        begins_at=now,
        zone=job.zone,
    )


def _shut_of(job: Job, now: Instant, sites: Sequence[Site]) -> tuple[tuple[tuple[float, float], ...], ...]:
    """When each site is outside its windows; empty if no site has any."""
    windows = [None if (rules := job.own.of(site)) is None else rules.hours.windows for site in sites]
    shut = {
        each: tuple((from_s, to_s) for from_s, to_s, rate in each.segments(now, _HORIZON_S) if not rate)
        for each in set(windows)
        if each is not None
    }
    return tuple(() if each is None else shut[each] for each in windows) if shut else ()


def _forecasts(engine: Engine, now: Instant) -> tuple[dict[Site, EndRange], EndRange | None]:
    """What the crawl would forecast at its start, of its sites and of itself."""
    crawl = engine.forecast(now)
    forecasts = {}
    for site in engine.stats.by_site:
        if (found := engine.forecast_of(site)) is not None:
            forecasts[site] = _from(now, found.end)._replace(chance=found.chance)
    return forecasts, None if crawl is None else _from(now, crawl)


def _from(now: Instant, end: Forecast) -> EndRange:
    return EndRange(end.from_at - now, end.at - now, end.to_at - now)


def start_of(job: Job, now: Instant, knowledge: Knowledge) -> StartPlan:
    """What the planner of a crawl that starts now assumes and decides, also if the link has no bound."""
    unbounded = None if job.is_bounded else _WITHOUT_BOUND
    return plan_from_job(job, now, unbounded, knowledge=knowledge)


class _NothingHappens:
    """A world without time, which records the engine's first commands and never carries them out."""

    def __init__(self) -> None:
        self.first_rates: dict[Site, BytesPerSecond] = {}

    def start(self, now: Instant, command: WorldCommand) -> None:
        if isinstance(command, SetRates):
            self.first_rates = command.rates_bytes_per_s

    def next_at(self) -> Instant:
        return FOREVER

    def settle(self, now: Instant) -> Sequence[Event]:
        return ()


def make_outlook(
    problem: Problem, policy: str, objective: Objective = Objective.MAX_COMPLETION, *, seed: int = 0
) -> Outlook:
    return Outlook.of(policy, objective, run_policy(policy, problem, objective, seed=seed))


def compare(
    problem: Problem, objective: Objective = Objective.MAX_COMPLETION, *, seed: int = 0
) -> list[tuple[str, Schedule | None, str]]:
    """Every policy on the same job: its schedule and notes on it, or why it cannot handle the job."""
    results: list[tuple[str, Schedule | None, str]] = []
    for name in POLICIES:
        try:
            schedule = run_policy(name, problem, objective, seed=seed)
        except JobError as reason:
            results.append((name, None, str(reason)))
        else:
            results.append((name, schedule, "; ".join(schedule.notes)))
    return results


def _link_of(job: Job, now: Instant) -> Timetable:
    segments = job.timetable.segments(now, _HORIZON_S)
    if not any(rate for _, _, rate in segments):
        raise JobError("the timetable or the windows leave no time in which the crawl may run")
    # The horizon may be within a pause, but the last step of a plan has no end.
    while len(segments) > 1 and not segments[-1][2]:
        segments.pop()
    return Timetable([(float(from_s), float(rate)) for from_s, _, rate in segments])


_USUAL_SITEMAP = "/sitemap.xml"
_MOST_SITEMAPS = 200
"""Read of one site."""
_MOST_PAGES = 1_000_000
_MOST_REDIRECTS = 5
_SITES_AT_ONCE = 16


class Listed(msgspec.Struct):
    """The pages of a site that are in scope and that its robots.txt allows."""

    pages: dict[str, Page]
    sitemaps_read: int = 0
    sitemaps_left: int = 0
    """Known, and not read for lack of time or because they are too many."""
    rules: RobotsRules | None = None
    problem: str = ""

    @property
    def expected_pages(self) -> int:
        """As if the sitemaps that were not read were as long as the others."""
        if not self.sitemaps_read:
            return len(self.pages)
        return round(len(self.pages) * (1 + self.sitemaps_left / self.sitemaps_read))

    def line(self) -> str:
        if not self.pages:
            return self.problem or "no sitemap"
        left = f", and {self.sitemaps_left} more that were not read" if self.sitemaps_left else ""
        read = "one sitemap" if self.sitemaps_read == 1 else f"{self.sitemaps_read} sitemaps"
        return f"{len(self.pages):,} pages in {read}{left}"


async def probe(job: Job, sites: Iterable[SiteWish], *, longest_s: float) -> dict[Site, Listed]:
    """Ask these sites. What has been read after `longest_s` seconds counts."""
    clock = WallClock()
    places = asyncio.Semaphore(_SITES_AT_ONCE)
    found = {wish.site: Listed({}, problem="no answer in time") for wish in sites}

    async def one(wish: SiteWish) -> None:
        async with places:
            await read_sitemaps(wish, job, fetcher, found[wish.site])

    async with aclosing(build_fetcher(job, clock)) as fetcher:
        tasks = [asyncio.create_task(one(wish)) for wish in sites]
        if tasks:
            await asyncio.wait(tasks, timeout=longest_s)
        for task in tasks:
            task.cancel()
        for problem in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(problem, Exception):
                raise problem
    return found


async def read_sitemaps(
    wish: SiteWish, job: Job, fetcher: HttpFetcher, listed: Listed, *, tries_usual: bool = True
) -> None:
    """Fill `listed` with what the sitemaps of a site list. `tries_usual`: also look for one at its usual
    place if robots.txt names none."""
    agent, pause_s = job.file.crawl.user_agent, build_politeness(job).pause_s
    robots = await _fetch(fetcher, f"{wish.site}/robots.txt", wish.site, pause_s(), MAX_ROBOTS_BYTES)
    if robots.kind is not Kind.FETCHED:
        listed.problem = f"robots.txt: {robots.detail or robots.kind}"
        return
    rules = judge(robots.status, robots.body, agent)
    if rules is None:
        listed.problem = f"robots.txt: status {robots.status}, so nothing may be asked"
        return
    listed.rules, listed.problem = rules, ""
    named = rules.sitemaps
    if not named and tries_usual:
        named = (_USUAL_SITEMAP,) if rules.allows(wish.site + _USUAL_SITEMAP) else ()
    waiting = {page.url for url in named if (page := page_of(url, base=wish.site)) is not None}
    options = ParseOptions(user_agent=agent, read_sitemaps=True)
    asked: set[str] = set()
    while waiting and len(asked) < _MOST_SITEMAPS and len(listed.pages) < _MOST_PAGES:
        sitemap = page_of(min(waiting))
        waiting.discard(min(waiting))
        if sitemap is None or sitemap.url in asked or sitemap.site != wish.site:
            continue
        asked.add(sitemap.url)
        listed.sitemaps_left = len(waiting) + 1
        await asyncio.sleep(pause_s(rules.crawl_delay_s))
        response = await _fetch(fetcher, sitemap.url, wish.site, pause_s(rules.crawl_delay_s))
        if response.kind is Kind.FETCHED and response.status == 200:
            parsed = await asyncio.to_thread(parse, response, sitemap, options)
            if parsed.is_list:
                waiting |= {page.url for page in parsed.lists} - asked
                _add(listed, parsed.links, wish, job, rules)
                # An index only leads to others.
                listed.sitemaps_read += bool(parsed.links)
        elif response.status not in {404, 410}:
            listed.problem = f"{sitemap.url}: {response.detail or f'status {response.status}'}"
        listed.sitemaps_left = len(waiting)


def _add(listed: Listed, links: Iterable[Page], wish: SiteWish, job: Job, rules: RobotsRules) -> None:
    respects = job.file.crawl.respect_robots
    for page in links:
        if page.site != wish.site or page.url in listed.pages or job.judge(page) is not None:
            continue
        if not respects or rules.allows(page.url):
            listed.pages[page.url] = page


async def _fetch(
    fetcher: HttpFetcher, url: str, site: Site, pause_s: float, most_bytes: int | None = None
) -> Response:
    """Redirects within the site are followed."""
    response = await fetcher.fetch(Request(url, site, max_body_bytes=most_bytes))
    for _ in range(_MOST_REDIRECTS):
        location = response.header("location") if response.status in REDIRECT_STATUSES else None
        target = page_of(location, base=response.url) if location else None
        if target is None or target.site != site:
            break
        await asyncio.sleep(pause_s)
        response = await fetcher.fetch(Request(target.url, site, max_body_bytes=most_bytes))
    return response


def unknown_sites(job: Job, knowledge: Knowledge) -> list[SiteWish]:
    """The sites of which neither the job nor an earlier run knows how much they have."""
    return [
        wish
        for wish in job.sites
        if wish.expected_bytes is None and not knowledge.sites.get(wish.site, NO_FACTS).data_bytes
    ]


def with_listed(knowledge: Knowledge, found: Mapping[Site, Listed]) -> Knowledge:
    """The knowledge with what sitemaps have said."""
    sites = dict(knowledge.sites)
    for site, listed in found.items():
        if listed.expected_pages:
            facts = sites.get(site, NO_FACTS)
            sites[site] = structs.replace(facts, listed_pages=listed.expected_pages)
    return structs.replace(knowledge, sites=sites)
