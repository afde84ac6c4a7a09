"""`headway simulate` put together: a web from wherever it is described, crawled under each strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from headway.app.planning import problem_from_job
from headway.config.job import load_job
from headway.errors import HeadwayError, JobError
from headway.policy.allocation.problem import Objective
from headway.policy.pagerank import pagerank
from headway.report.sim_result import SimResult
from headway.report.sim_whatif import WhatIf
from headway.sim.graph import load_graph
from headway.sim.judge import judge
from headway.sim.recorded import web_of_run
from headway.sim.run import run_crawl
from headway.sim.setup import Setup
from headway.sim.synthetic import SyntheticSpec, make_web
from headway.sim.trouble import Trouble
from headway.sim.web import Servers, Web
from headway.sim.whatif import what_if
from headway.store.reader import DATABASE, RunReader
from headway.units import BytesPerSecond, Instant

MEASURED_SPREAD, GIVEN_SPREAD, GUESSED_SPREAD = 0.15, 0.3, 0.8
"""How far the logarithm of a site's amount of data strays from what an earlier run found, what the job
says, and what was guessed."""


def load_web(target: str, *, seed: int = 0) -> tuple[Web, Servers]:
    """A graph folder, a run folder, or "synthetic:pages=...": the web and its servers."""
    if target == "synthetic" or target.startswith("synthetic:"):
        spec = SyntheticSpec.parse(target)
        web = make_web(spec if "seed=" in target else msgspec.structs.replace(spec, seed=seed))
        return web, Servers.drawn(len(web.sites), seed)
    path = Path(target)
    if not path.exists():
        raise HeadwayError(
            f"{target} is not there; give a graph folder, a run folder, a job file, or for example"
            " synthetic:pages=100000"
        )
    if path.name == DATABASE or (path / DATABASE).exists():
        return web_of_run(path, seed=seed)
    web = load_graph(path, seed=seed)
    return web, Servers.drawn(len(web.sites), seed)


def only_sites(web: Web, servers: Servers, wanted: Sequence[str]) -> tuple[Web, Servers]:
    """The part of a web on the sites named; all of it when none is."""
    if not wanted:
        return web, servers
    part = web.only(wanted)
    kept = np.flatnonzero(np.isin(np.array(web.sites), list(wanted)))
    if not len(part.seeds):
        raise HeadwayError(f"no page of {', '.join(wanted)} is among those that the crawl begins with")
    return part, servers.only(kept)


def usual_strategies(web: Web) -> list[str]:
    """Those that castillo2004 compares, and Flow, with batches of about a tenth of the web."""
    size = max(1, web.pages // 10)
    size = round(size, 1 - len(str(size)))
    return ["optimal", "length", f"batch({size})", "depth", f"partial({size})", f"flow({size})", "random"]


def simulate_strategies(
    web: Web,
    servers: Servers,
    setups: Sequence[Setup],
    *,
    trouble: Trouble | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[SimResult]:
    """Crawl the web once for each setup. `tell` hears what is being done: large webs take a while."""
    if not setups:
        raise JobError("no strategy is named")
    for setup in setups:
        setup.check(web)
    tell(f"ranking {web.pages:,} pages")
    ranks = pagerank(web.starts, web.targets, tolerance=1e-8)
    results = []
    for setup in setups:
        tell(f"crawling by {setup.strategy}")
        record = run_crawl(web, servers, setup, trouble=trouble, ranks=ranks)
        results.append(judge(web, servers, setup, record, ranks))
    return results


def what_if_of_job(
    path: Path,
    now: Instant,
    *,
    bandwidth_bytes_per_s: BytesPerSecond | None = None,
    sizes_from: Path | None = None,
    draws: int = 100,
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> WhatIf:
    """Whether a job's deadlines would hold, over many draws. Sizes are those of an earlier run, those that
    the job gives, or a guess: the less is known, the wider they are drawn."""
    job = load_job(path)
    problem = problem_from_job(job, now, bandwidth_bytes_per_s)
    given = np.array([wish.expected_bytes is not None for wish in job.sites])
    spread = np.where(given, GIVEN_SPREAD, GUESSED_SPREAD)
    if sizes_from is not None:
        held = bytes_held(sizes_from)
        known = np.array([name in held for name in problem.names])
        data = [
            held.get(name, float(size)) for name, size in zip(problem.names, problem.data_bytes, strict=True)
        ]
        problem = replace(problem, data_bytes=np.array(data))
        spread = np.where(known, MEASURED_SPREAD, spread)
    return what_if(
        path.name,
        problem,
        spread,
        objective=Objective(job.file.crawl.objective),
        draws=draws,
        seed=seed,
        tell=tell,
    )


def bytes_held(run: Path) -> dict[str, float]:
    """What each site of an earlier run gave, and by the mean of its pages what it had still waiting."""
    with RunReader(run) as reader:
        sites = reader.sites()
    answered = {row.site: row.done + row.failed for row in sites}
    return {
        row.site: row.wire_bytes * (1.0 + row.waiting / answered[row.site])
        for row in sites
        if answered[row.site] and row.wire_bytes
    }
