"""Each claim of the paper, judged on each web: what was found, and whether it holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.sim.study import SimResult

from .findings import Findings, OnWeb, Outcome, Trial
from .runs import BANDWIDTHS

Floats = NDArray[np.float64]
NEAR = 0.01
"""Areas that differ by less are the same to the eye."""
GRID = np.linspace(0.0, 1.0, 201)


class Claim(msgspec.Struct, frozen=True):
    figure: str
    text: str
    web: str
    found: str
    holds: bool | None
    """None: neither yes nor no."""
    why: str = ""


def on_all(findings: Findings) -> list[Claim]:
    claims = list(on_trials(findings.trials))
    for web in findings.webs:
        for judge in (
            on_site_sizes,
            on_strategies,
            on_robots,
            on_speed_ups,
            on_batch,
            on_real_crawl,
            on_depth,
        ):
            claims += judge(web)
    return claims


def on_site_sizes(ground: OnWeb) -> Iterator[Claim]:
    sizes = np.array(ground.site_sizes)
    tenth = sizes[: max(1, len(sizes) // 10)].sum() / sizes.sum()
    ranks = np.arange(1, len(sizes) + 1)
    middle = slice(len(sizes) // 100, max(len(sizes) // 2, 3))
    slope, fit = _line(np.log(ranks[middle]), np.log(sizes[middle]))
    found = f"a tenth of the sites has {tenth:.0%} of the pages; slope {slope:.2f} in log-log, R2 {fit:.2f}"
    yield Claim(
        "3",
        "Most pages are on few sites, by a power law",
        ground.label,
        found,
        bool(tenth > 0.5 and fit > 0.9),
        f"the largest site has {sizes[0]:,} pages: a collection in which large sites are cut off or absent",
    )


def on_strategies(ground: OnWeb) -> Iterator[Claim]:
    runs = ground.strategies
    area = {name: run.result.pagerank_auc for name, run in runs.items()}
    batches = [name for name in runs if name.startswith("batch")]
    partials = [name for name in runs if name.startswith("partial")]
    batch, partial = max(batches, key=area.__getitem__), max(partials, key=area.__getitem__)
    home = ground.depth.mean_rank[0]
    late_homes = (
        f"Length leaves the home pages of small sites for last, and a home page of this web has {home:.1f} "
        "times the mean rank"
    )
    yield _more(ground, "5", "Length is better than Batch", area, "length", batch, late_homes)
    waits = "a batch of this size has to be finished before what it found counts"
    yield _more(ground, "5", "Batch is a little better than Depth", area, batch, "depth", waits)
    yield _more(ground, "5", "Length is better than Depth", area, "length", "depth", late_homes)
    sums = "with batches this small the true ranks come in time to put right what the sums misjudge"
    yield _more(ground, "5", "Depth is better than Partial", area, "depth", partial, sums)
    worst = min(partials, key=area.__getitem__)
    yield Claim(
        "5",
        "Partial is close to Random",
        ground.label,
        f"{partial} {area[partial]:.3f}, {worst} {area[worst]:.3f}, random {area['random']:.3f}",
        abs(area[partial] - area["random"]) < 0.05,
        "between two rankings Partial favours what good pages link to, which is better than chance here",
    )
    curves = {name: _curve(run.result) for name, run in runs.items()}
    rivals = np.max([curve for name, curve in curves.items() if name != "optimal"], axis=0)
    early = GRID <= 0.5
    lead = (curves["optimal"] - rivals)[early]
    yield Claim(
        "5",
        "Optimal leads early",
        ground.label,
        f"up to half of the pages it is {lead.min():+.3f} to {lead.max():+.3f} ahead of the best rival",
        bool((lead > -NEAR).all()),
        "Optimal takes the best page that it knows; the best ones may lie behind worse ones that it leaves",
    )
    yield _overtaken(ground, runs, curves)
    costs = {name: runs[name].wall_s for name in ("length", batches[0], partials[0])}
    found = ", ".join(f"{name} {cost:.2f} s" for name, cost in costs.items())
    yield Claim(
        "5",
        "Length needs far less computation than Batch and Partial",
        ground.label,
        found,
        costs["length"] < min(costs[batches[0]], costs[partials[0]]),
    )


def _overtaken(ground: OnWeb, runs: dict[str, Outcome], curves: dict[str, Floats]) -> Claim:
    late = (GRID > 0.75) & (GRID < 1.0)
    ahead = {
        name: float((curve - curves["optimal"])[late].max())
        for name, curve in curves.items()
        if name not in {"optimal", "random"}
    }
    name = max(ahead, key=ahead.__getitem__)
    slowest = max(runs.values(), key=lambda run: run.result.seconds).result.strategy
    times = {key: runs[key].result.seconds / runs["length"].result.seconds for key in ("optimal",)}
    found = (
        f"beyond 75% of the pages {name} is {ahead[name]:+.3f} ahead of optimal; "
        f"optimal takes {times['optimal']:.2f} times as long as length (slowest: {slowest})"
    )
    why = (
        ""
        if ahead[name] > 0.002
        else (
            "with one robot the best known page is nearly always available, since its site is free; the "
            "interval holds Optimal up only where few sites have pages left"
        )
    )
    return Claim("5", "Optimal is overtaken at high coverage", ground.label, found, ahead[name] > 0.002, why)


def on_robots(ground: OnWeb) -> Iterator[Claim]:
    runs = ground.robots
    if runs is None:
        return
    spread = {
        name: max(float(np.abs(_curve(run) - _curve(by_robots[1])).max()) for run in by_robots.values())
        for name, by_robots in runs.items()
    }
    found = ", ".join(f"{name} moves by up to {width:.3f}" for name, width in spread.items())
    yield Claim(
        "6",
        "Length is steadier than Depth as robots are added",
        ground.label,
        found,
        None if abs(spread["length"] - spread["depth"]) < 0.005 else spread["length"] < spread["depth"],
        "alone, Length empties one large site after the other; many robots have to ask the small ones as "
        "well, whose pages are better on this web",
    )
    areas = {robots: run.pagerank_auc for robots, run in runs["depth"].items()}
    found = ", ".join(f"r = {robots}: {area:.3f}" for robots, area in areas.items())
    yield Claim(
        "6",
        "Depth improves as robots are added",
        ground.label,
        found,
        areas[256] > areas[1] - 1e-9,
        "one robot can keep strictly to the order of depth; many have to take deeper pages while the sites "
        "of the shallow ones rest",
    )


def on_speed_ups(ground: OnWeb) -> Iterator[Claim]:
    table = ground.speed_ups
    if table is None:
        return
    top, bottom = table[BANDWIDTHS[0]], table[BANDWIDTHS[-1]]
    largest = ground.site_sizes[0]
    days = largest * 15 / 86_400
    yield Claim(
        "table 1",
        "On a wide link the speed-up is nearly the number of robots (54.6 and 220.1)",
        ground.label,
        f"over the first tenth of the pages {top[64].first_tenth:.1f} with 64 and {top[256].first_tenth:.1f} "
        f"with 256; over the whole crawl {top[64].whole:.1f} and {top[256].whole:.1f}",
        top[64].first_tenth > 0.75 * 64 and top[256].first_tenth > 0.75 * 256,
        f"a site of {largest:,} pages takes {days:.1f} days at one page in 15 s, however many robots there "
        "are: the paper's figures can only be of a time in which enough sites have pages",
    )
    falls = all(
        table[low][robots].whole <= table[high][robots].whole * 1.001
        for high, low in itertools.pairwise(BANDWIDTHS)
        for robots in top
    )
    yield Claim(
        "table 1",
        "Every narrower link is slower",
        ground.label,
        "in every row and column" if falls else "not always",
        falls,
    )
    gain = bottom[256].first_tenth / bottom[1].first_tenth
    wide = top[256].first_tenth / top[1].first_tenth
    yield Claim(
        "table 1",
        "Saturation makes robots pointless",
        ground.label,
        f"256 robots are {gain:.2f} times as fast as one at 200 B/s (paper: 15), {wide:.0f} times at 20 MB/s",
        gain < 16,
        "a saturated link carries the same bytes for any number of robots. The paper's 3.0 against 0.2 at "
        "200 cannot come from one saturated link: its unit, or its model, is not the one that it states",
    )


def on_trials(trials: Sequence[Trial]) -> Iterator[Claim]:
    """Why the order of Length and Depth is another than in the paper."""
    won = [trial for trial in trials if trial.length > trial.depth]
    home_won = np.mean([trial.home_rank for trial in won]) if won else float("nan")
    home_lost = np.mean([trial.home_rank for trial in trials if trial not in won])
    usual = [t for t in trials if t.spec.attraction == 0.5]
    found = (
        f"in {len(won)} of {len(trials)} webs; in {sum(t in won for t in usual)} of {len(usual)} where links "
        f"grow with the root of a site's size, in {len(won) - sum(t in won for t in usual)} of "
        f"{len(trials) - len(usual)} where they grow with the size itself. Mean rank of a home page: "
        f"{home_won:.1f} where Length wins, {home_lost:.1f} where Depth does"
    )
    yield Claim(
        "5",
        "Length is better than Depth",
        "sixteen synthetic webs of 200,000 pages",
        found,
        None if 0 < len(won) < len(trials) else bool(won),
        "Length leaves the home pages of small sites for last. That pays where they have little rank, as the "
        "paper says of its own web, and where large sites draw the links",
    )


def on_batch(ground: OnWeb) -> Iterator[Claim]:
    batch = ground.batch
    if batch is None:
        return
    hours = {(run.bandwidth, run.per_connection): run.hours for run in batch.runs}
    small, large = hours[2_000, 100] / hours[2_000, 1], hours[20_000, 100] / hours[20_000, 1]
    idle = float((np.array(batch.run(20_000, 1).robots) < 128).mean())
    largest = f"{batch.largest_site:,} of {batch.pages:,} pages are on the largest site"
    yield Claim(
        "7",
        "At k = 1 robots fall idle as sites run dry",
        ground.label,
        f"{idle:.0%} of the time at 20 KB/s fewer than half are active; {largest}",
        idle > 0.25,
    )
    yield Claim(
        "7",
        "k = 100 saves a little on a narrow link (33 to 29 h)",
        ground.label,
        f"{hours[2_000, 1]:.1f} to {hours[2_000, 100]:.1f} h",
        0.8 < small <= 1.0,
    )
    yield Claim(
        "7",
        "k = 100 saves much on a wide one (9 to 3 h)",
        ground.label,
        f"{hours[20_000, 1]:.1f} to {hours[20_000, 100]:.1f} h",
        large < 0.7,
        ""
        if large < 0.7
        else "the batch has no site so large that its pauses outlast the transfer of all the rest",
    )


def on_real_crawl(ground: OnWeb) -> Iterator[Claim]:
    run = ground.real
    if run is None:
        return
    mean_rank = np.array(run.mean_rank)
    for pages, rank in ((0.5, 0.8), (0.8, 0.95)):
        at = float(np.interp(pages, run.pages_fraction, run.rank_fraction))
        when = float(np.interp(pages, run.pages_fraction, run.days))
        part = when / run.days[-1]
        yield Claim(
            "8",
            f"{pages:.0%} of the pages bring about {rank:.0%} of the PageRank",
            ground.label,
            f"{at:.0%}, after {when:.2f} of {run.days[-1]:.2f} days ({part:.0%} of the time; paper "
            f"{0.25 if pages == 0.5 else 0.5:.0%})",
            at >= rank - 0.05,
            "" if at >= rank - 0.05 else "the ranks of this web are less uneven than those of the paper's",
        )
    third = max(1, len(mean_rank) // 4)
    first, later = float(mean_rank[:third].mean()), float(mean_rank[third:].mean())
    yield Claim(
        "9",
        "The mean PageRank of what is fetched falls steeply in the first days",
        ground.label,
        f"{first:.2f} times the web's mean in the first quarter, {later:.2f} after it",
        bool(later < 0.75 * first),
    )


def on_depth(ground: OnWeb) -> Iterator[Claim]:
    means, counts = np.array(ground.depth.mean_rank), np.array(ground.depth.pages)
    levels = np.arange(len(means))
    top = ", ".join(f"{level}: {mean:.2f}" for level, mean in list(zip(levels, means, strict=True))[:6])
    enough = counts >= max(5, counts.sum() // 5000)
    falling = means[1] > means[3] if len(means) > 3 else means[0] > means[-1]
    yield Claim(
        "10",
        "PageRank falls with depth in the first levels",
        ground.label,
        f"mean by depth {top}",
        bool(falling),
    )
    deep = [mean for level, mean in zip(levels, means, strict=True) if level >= 4 and enough[level]]
    if len(deep) > 1:
        yield Claim(
            "10",
            "From three or four clicks on there is hardly a relation",
            ground.label,
            f"between {min(deep):.2f} and {max(deep):.2f} from depth 4 on",
            max(deep) < 2 * min(deep) + 0.5,
        )
    yield Claim(
        "10",
        "Home pages have a low mean PageRank",
        ground.label,
        f"{means[0]:.2f} against {means[1]:.2f} at depth 1",
        bool(means[0] < means[1]),
        ""
        if means[0] < means[1]
        else (
            "pages of this web link to their site's home page. In the paper most home pages are known from a "
            "registry only, and have few links or none"
        ),
    )


def report(claims: Sequence[Claim], conditions: str) -> str:
    held = sum(claim.holds is True for claim in claims)
    lines = [
        "# castillo2004: what holds",
        "",
        conditions,
        "",
        f"{held} of {len(claims)} verdicts: holds.",
        "",
    ]
    lines += ["| figure | claim | web | found | verdict |", "|---|---|---|---|---|"]
    words = {True: "holds", False: "does not hold", None: "neither"}
    for claim in sorted(claims, key=lambda each: (_order(each.figure), each.text)):
        why = f"; {claim.why}" if claim.why and (not claim.holds or claim.figure == "table 1") else ""
        lines.append(
            f"| {claim.figure} | {claim.text} | {claim.web} | {claim.found} | {words[claim.holds]}{why} |"
        )
    return "\n".join(lines) + "\n"


def _order(figure: str) -> float:
    return 6.5 if figure == "table 1" else float(figure)


def _more(
    ground: OnWeb, figure: str, text: str, area: dict[str, float], one: str, other: str, why: str
) -> Claim:
    difference = area[one] - area[other]
    found = f"area {area[one]:.3f} ({one}) against {area[other]:.3f} ({other})"
    return Claim(
        figure, text, ground.label, found, None if abs(difference) < NEAR / 5 else difference > 0, why
    )


def _curve(result: SimResult) -> Floats:
    return np.interp(GRID, *np.array(result.pagerank_curve).T)


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    slope = float(np.polyfit(x, y, 1)[0])
    return slope, float(np.corrcoef(x, y)[0, 1] ** 2)
