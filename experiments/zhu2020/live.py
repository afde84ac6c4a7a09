"""The jobs of the figures as live crawls: `headway crawl` with each policy in the network lab, all
smaller and quicker by fixed factors. Times are given on the scale of the paper."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from experiments.lab import Lab, Link, run

from headway.planning.problem import Objective, Problem
from headway.runtime.plan import make_outlook, plan_from_file
from headway.store.reader import RunReader
from headway.units import Instant

from .runs import CONSTANT, ROUNDS, SHORT, Point
from .sites import fifty_sites, six_sites

PAGE_BYTES = (8_000, 12_000, 16_000, 20_000, 24_000, 32_000)
RTT_S = (0.005, 0.010, 0.020, 0.030, 0.040, 0.060)
"""Of the sites in turn: what makes xi differ between them."""
SERVER_BYTES_PER_S = 4_000_000.0
BYTES_PER_KBIT = 125.0
ANSWER_HEAD_BYTES = 85
SEGMENT_BYTES, PACKET_HEAD_BYTES = 1448, 66
ONE_ALLOCATION = frozenset(CONSTANT + SHORT) - {"headway"}
START_S, LEAST_JUDGED_S = 0.5, 2.0
IN_A_SETTLED_STATE = 0.9
"""Of the time in which all sites are crawled, the part in which use of the link is judged."""


class Scale(msgspec.Struct, frozen=True):
    """Of a live crawl: its times are shorter and its link is faster than the paper's."""

    time: float
    bandwidth: float


SIX, FIFTY = Scale(1 / 8, 4.0), Scale(1 / 40, 10.0)


class Case(msgspec.Struct, frozen=True):
    """One live crawl. Rates and times are the paper's."""

    figure: str
    factor: str
    x: float
    policy: str
    objective: str
    data_kbit: list[float]
    deadline_s: list[float | None]
    bandwidth_kbit_per_s: float
    crawlers: int | None
    scale: Scale

    @property
    def name(self) -> str:
        return f"{self.figure}-{self.x:g}-{self.policy}-{self.objective}"


class SiteRun(msgspec.Struct, frozen=True):
    name: str
    payload_bytes: int
    """Of the bodies alone."""
    deadline_s: float | None
    planned_end_s: float
    start_s: float
    end_s: float | None
    """None: the crawl ended without the site."""
    first_rate_bytes_per_s: float
    """As planned, on the wire of the lab."""


class LiveRun(msgspec.Struct, frozen=True):
    """What a live crawl did; times on the paper's scale."""

    case: Case
    sites: list[SiteRun]
    use_of_link: float | None
    """Bytes on the wire over the bound, while all sites were crawled; None if that was too short."""
    most_over_bound: float
    """The highest second on the wire, wherever it begins, over the bound, less one."""
    exit_code: int

    def ends_s(self) -> list[float]:
        return [math.inf if site.end_s is None else site.end_s for site in self.sites]

    def execution_s(self) -> float:
        return sum(end - site.start_s for site, end in zip(self.sites, self.ends_s(), strict=True))

    def tardiness_s(self) -> float:
        return sum(
            max(0.0, end - site.deadline_s)
            for site, end in zip(self.sites, self.ends_s(), strict=True)
            if site.deadline_s is not None
        )

    def late(self) -> int:
        return sum(
            site.deadline_s is not None and end > site.deadline_s
            for site, end in zip(self.sites, self.ends_s(), strict=True)
        )


def cases(*, quick: bool) -> list[Case]:
    """Of each figure the ends of its sweep and its middle; `quick`: one figure of each kind, its middle."""
    chosen: list[Case] = []
    sufficient: tuple[tuple[str, str, Sequence[float], Any], ...] = (
        ("2", "bandwidth (kbit/s)", (800, 1000, 1200), six_sites),
        ("3", "data (Mbit)", (80, 120, 160), lambda x: six_sites(data_kbit=1000 * x)),
        ("4", "tightness (kbit/s)", (700, 850, 925), lambda x: six_sites(tightness_kbit_per_s=x)),
    )
    insufficient: tuple[tuple[str, str, Sequence[float], Any], ...] = (
        ("5", "bandwidth (kbit/s)", (500, 620, 740), six_sites),
        ("6", "data (Mbit)", (170, 210, 250), lambda x: six_sites(data_kbit=1000 * x)),
        ("7", "tightness (kbit/s)", (1050, 1550, 2050), lambda x: six_sites(tightness_kbit_per_s=x)),
    )
    scheduling = (("8-10", "bandwidth (kbit/s)", (520, 530, 540), fifty_sites("in turn", 0)),)
    for figures, policies, scale in (
        (sufficient, CONSTANT, SIX),
        (insufficient, SHORT, SIX),
        (scheduling, ROUNDS, FIFTY),
    ):
        for figure, factor, xs, problem_at in figures[: 1 if quick else None]:
            for x in xs[1:2] if quick else xs:
                problem: Problem = problem_at(float(x))
                for policy in policies:
                    chosen += _cases_of(figure, factor, float(x), policy, problem, scale)
    return chosen


def _cases_of(
    figure: str, factor: str, x: float, policy: str, problem: Problem, scale: Scale
) -> Iterator[Case]:
    """Searches and headway crawl once for each objective that the figure judges."""
    objectives = [Objective.MAX_COMPLETION]
    if policy in {"ga", "de", "headway"} and figure in {"2", "3", "4", "8-10"}:
        objectives.append(Objective.SUM_COMPLETION)
    for objective in objectives:
        yield Case(
            figure,
            factor,
            x,
            policy,
            objective.value,
            problem.data_bytes.tolist(),
            [due if math.isfinite(due) else None for due in problem.deadline_s.tolist()],
            problem.bandwidth_bytes_per_s,
            problem.crawlers if problem.crawlers < len(problem) else None,
            scale,
        )


def crawl_all(chosen: Sequence[Case], folder: Path, *, at_once: int, resume: bool) -> list[LiveRun]:
    """Several labs beside one another: each has a link of its own. A run is kept in `folder` as it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    counter = itertools.count(1)

    def one(case: Case) -> LiveRun:
        kept = folder / f"{case.name}.json"
        if not (resume and kept.exists()):
            links = [
                Link(SERVER_BYTES_PER_S, RTT_S[number % len(RTT_S)]) for number in range(len(case.data_kbit))
            ]
            kept.write_bytes(msgspec.json.encode(run("experiments.zhu2020.live:crawl", links, case)))
        print(f"live {next(counter)} of {len(chosen)}: {case.name}", flush=True)
        return msgspec.json.decode(kept.read_bytes(), type=LiveRun)

    with ThreadPoolExecutor(at_once) as threads:
        return list(threads.map(one, chosen))


async def crawl(lab: Lab, argument: dict[str, Any]) -> LiveRun:
    """Called inside the lab."""
    case = msgspec.convert(argument, Case)
    with tempfile.TemporaryDirectory(prefix="headway-zhu2020-") as name:
        folder = Path(name)
        job, sites = folder / "job.toml", list(_sites(case, lab))
        job.write_text(_job_file(case, sites), encoding="utf-8")
        plan = plan_from_file(job, Instant(time.time()))
        outlook = make_outlook(plan.problem, case.policy, Objective(case.objective))
        with lab.recording() as wire:
            await asyncio.sleep(0.1)
            began_s = time.monotonic()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headway", "crawl", str(job), "-o", str(folder / "run"), "-q"),
                env={**os.environ, "HEADWAY_LEARNT": ""},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            _, complaint = await process.communicate()
            await asyncio.sleep(0.1)
        if process.returncode not in {0, 3}:
            raise RuntimeError(f"{case.name}: ended with {process.returncode}: {complaint.decode()[-800:]}")
        begun, ends, started_after_s = _course(folder / "run", began_s)
    began_s += started_after_s
    factor, bound = 1 / case.scale.time, _bound(case)
    full_s = IN_A_SETTLED_STATE * min(ends.values(), default=0.0)
    use = None
    if full_s > LEAST_JUDGED_S:
        use = wire.received.mean_rate(began_s + START_S, began_s + full_s) / bound
    names, ends_s = plan.problem.names, outlook.schedule.end_s.tolist()
    planned_s = dict(zip(names, ends_s, strict=True))
    if case.policy in ONE_ALLOCATION:
        # The first rates are for good. They aim at ending a little before deadlines; the schedule does not.
        data_bytes = dict(zip(names, plan.problem.data_bytes.tolist(), strict=True))
        planned_s = {str(site): data_bytes[site] / rate for site, rate in plan.first_rates.items()}
    return LiveRun(
        case,
        [
            SiteRun(
                site,
                payload,
                due,
                factor * planned_s[site],
                factor * begun.get(site, 0.0),
                factor * ends[site] if site in ends else None,
                plan.first_rates.get(site, 0.0),
            )
            for (site, payload, _), due in zip(sites, case.deadline_s, strict=True)
        ],
        use,
        wire.received.worst_window(began_s, began_s + max(ends.values(), default=1.0)) / bound - 1,
        process.returncode or 0,
    )


def live_points(runs: Sequence[LiveRun]) -> list[Point]:
    """As the points of the formulas: the same measures, from the ends that were measured."""
    by_point: dict[tuple[str, float, str], dict[str, LiveRun]] = {}
    for one in runs:
        case = one.case
        by_point.setdefault((case.figure, case.x, case.policy), {})[case.objective] = one
    points = []
    for (figure, x, policy), done in by_point.items():
        by_max = done[Objective.MAX_COMPLETION.value]
        by_sum = done.get(Objective.SUM_COMPLETION.value, by_max)
        points.append(
            Point(
                figure,
                by_max.case.factor,
                x,
                policy,
                max(by_max.ends_s()),
                sum(by_sum.ends_s()),
                by_sum.execution_s(),
                by_max.tardiness_s(),
                by_max.late(),
                by_sum.tardiness_s(),
            )
        )
    return points


def _bound(case: Case) -> float:
    return case.bandwidth_kbit_per_s * BYTES_PER_KBIT * case.scale.bandwidth


def _sites(case: Case, lab: Lab) -> Iterator[tuple[str, int, str]]:
    """Each site with the bytes of its bodies and its table in the job file. What crosses the wire, with heads
    and packets, is the paper's amount of data."""
    for number, (data, due) in enumerate(zip(case.data_kbit, case.deadline_s, strict=True)):
        on_the_wire = data * BYTES_PER_KBIT * case.scale.time * case.scale.bandwidth
        usual = PAGE_BYTES[number % len(PAGE_BYTES)]
        pages = max(1, round(on_the_wire / wire_bytes(usual)))
        size = _payload_of(on_the_wire / pages)
        site = lab.servers[number].site
        lines = [
            "[[site]]",
            f'url = "{site}/site/{pages}/{size}/0"',
            f'data = "{pages * wire_bytes(size)} B"',
        ]
        if due is not None:
            lines.append(f'deadline = "{due * case.scale.time:.3f} s"')
        yield site, pages * size, "\n".join(lines)


def wire_bytes(payload: int) -> int:
    """Of an answer, with its head and those of its packets."""
    whole = payload + ANSWER_HEAD_BYTES
    return whole + PACKET_HEAD_BYTES * math.ceil(whole / SEGMENT_BYTES)


def _payload_of(on_the_wire: float) -> int:
    size = round(on_the_wire / (1 + PACKET_HEAD_BYTES / SEGMENT_BYTES)) - ANSWER_HEAD_BYTES
    return max(200, size)


def _job_file(case: Case, sites: Sequence[tuple[str, int, str]]) -> str:
    lines = [
        "[crawl]",
        f'bandwidth = "{8 * _bound(case):.0f} bit/s"',
        'interval = "0 s"',
        "allow_private = true",
        # Numbered pages that look alike are what the lab has, and what a trap looks like.
        "traps = false",
        f'policy = "{case.policy}"',
        f'objective = "{case.objective}"',
    ]
    if case.crawlers is not None:
        lines.append(f"crawlers = {case.crawlers}")
    return "\n".join([*lines, *(table for _, _, table in sites)]) + "\n"


def _course(folder: Path, began_s: float) -> tuple[dict[str, float], dict[str, float], float]:
    """When each site began and ended, in seconds since the crawl began, and when that was after `began_s`."""
    with RunReader(folder) as reader:
        started_at = reader.started_at
        rows = reader.sites()
    begun = {row.site: row.started_at - started_at for row in rows if row.started_at is not None}
    ends = {row.site: row.ended_at - started_at for row in rows if row.ended_at is not None}
    return begun, ends, max(0.0, started_at - (time.time() - (time.monotonic() - began_s)))
