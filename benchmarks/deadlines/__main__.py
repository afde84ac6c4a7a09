"""`make bench NAME=deadlines`: deadlines met of those that are possible, live and simulated.

Options: --draws N (drawn jobs with wrong sizes and with exact ones, in virtual time; 40), --live N (live
crawls of each case; 1), --only live|simulated. Live crawls are processes of `headway crawl` over loopback.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.deadlines.cases import Case, cases, drawn, exact
from benchmarks.deadlines.live import crawl
from benchmarks.deadlines.possible import best_of_paper, planned, possible
from benchmarks.deadlines.simulated import Crawled, simulate
from rich.console import Console
from rich.table import Table

AT_ONCE = 2
COLUMNS = ("plan", "possible", "paper", "met", "missed", "announced", "lead", "taken back", "after", "advice")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.deadlines", description=__doc__)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--live", type=int, default=1)
    parser.add_argument("--only", choices=("live", "simulated"))
    options = parser.parse_args()
    console = Console(width=140)
    if options.only != "live":
        console.print(table("in virtual time, one crawl of each case", cases(), [*map(simulate, cases())]))
        console.print(draws_table(options.draws))
    if options.only != "simulated":
        repeated = [case for case in cases() for _ in range(options.live)]
        console.print(table("live over loopback", repeated, asyncio.run(_crawl_all(repeated))))
    console.print(
        "plan: what `headway plan` says holds with exact sizes; possible: for someone who knows sizes and"
        " changes; paper: the most that any policy of zhu2020 meets with the same wrong sizes; announced: of"
        " the missed ones, before their deadlines; lead: from the first announcement to the deadline, least"
        " and median; taken back: announced as late and met; after: messages about a deadline after it;"
        " advice: of the bandwidths named first, those that meet the deadline in a simulation."
    )


async def _crawl_all(chosen: Sequence[Case]) -> list[Crawled]:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(case: Case) -> Crawled:
        async with places:
            return await crawl(case)

    return await asyncio.gather(*map(one, chosen))


def table(title: str, chosen: Sequence[Case], crawled: Sequence[Crawled]) -> Table:
    made = Table(title=title)
    made.add_column("case")
    for name in COLUMNS:
        made.add_column(name, justify="right")
    for case, result in zip(chosen, crawled, strict=True):
        made.add_row(case.name, *_cells(case, result))
    return made


def _cells(case: Case, crawled: Crawled) -> list[str]:
    is_wrong = any(site.given_factor != 1 for site in case.sites)
    missed = [site for site, is_met in enumerate(crawled.is_met) if not is_met]
    leads = lead_times(case, crawled)
    announced = sum(site in leads for site in missed)
    true, named = advice(case, crawled)
    return [
        str(planned(case)),
        str(possible(case)),
        str(best_of_paper(case)[0]) if is_wrong else "",
        str(crawled.met),
        str(len(missed)),
        str(announced),
        "" if not leads else f"{min(leads.values()):.1f} s, {_median([*leads.values()]):.1f} s",
        str(sum(crawled.is_met[site] for site in leads)),
        str(messages_after(case, crawled)),
        f"{true} of {named}" if named else "",
    ]


def lead_times(case: Case, crawled: Crawled) -> dict[int, float]:
    """By site, the seconds from the first announcement to the deadline."""
    leads: dict[int, float] = {}
    for at_s, site, decision in crawled.messages:
        if decision.decision == "foresee-late":
            leads.setdefault(site, (case.sites[site].deadline_s or 0.0) - at_s)
    return leads


def messages_after(case: Case, crawled: Crawled) -> int:
    return sum(at_s > (case.sites[site].deadline_s or 0.0) for at_s, site, _ in crawled.messages)


def advice(case: Case, crawled: Crawled) -> tuple[int, int]:
    """Of the named bandwidths, how many meet the deadline if the crawl has them from that moment on."""
    first: dict[int, tuple[float, float]] = {}
    for at_s, site, decision in crawled.messages:
        if decision.needed_bytes_per_s is not None and not crawled.is_met[site]:
            first.setdefault(site, (at_s, decision.needed_bytes_per_s))
    true = 0
    for site, (at_s, needed) in first.items():
        true += simulate(replace(case, bound_becomes=(at_s, needed))).is_met[site]
    return true, len(first)


def draws_table(draws: int) -> Table:
    made = Table(title=f"in virtual time, {draws} drawn jobs of six sites each; sums")
    made.add_column("sizes")
    for name in (*COLUMNS[:6], "after", "draws below plan", "draws below the paper"):
        made.add_column(name, justify="right")
    kinds: dict[str, Callable[[Case], Case]] = {
        "exact": exact,
        "wrong by up to 30%": lambda case: case,
        "not given": lambda case: replace(
            case, sites=tuple(replace(site, is_given=False) for site in case.sites)
        ),
    }
    for name, changed in kinds.items():
        chosen = [changed(drawn(seed)) for seed in range(draws)]
        results = [*map(simulate, chosen)]
        plan, best = [*map(planned, chosen)], [*map(possible, chosen)]
        paper = [best_of_paper(drawn(seed), searches=False)[0] for seed in range(draws)]
        met = [result.met for result in results]
        missed = [{n for n, is_met in enumerate(result.is_met) if not is_met} for result in results]
        announced = sum(
            len(lost & lead_times(case, result).keys())
            for case, result, lost in zip(chosen, results, missed, strict=True)
        )
        columns = (
            sum(plan),
            sum(best),
            sum(paper),
            sum(met),
            sum(map(len, missed)),
            announced,
            sum(map(messages_after, chosen, results)),
            sum(mine < theirs for mine, theirs in zip(met, plan, strict=True)),
            sum(mine < theirs for mine, theirs in zip(met, paper, strict=True)),
        )
        made.add_row(name, *map(str, columns))
    return made


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    main()
