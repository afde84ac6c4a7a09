"""`python -m benchmarks.foresight.fit`: makes `headway/planning/forecast_table.py`, with which headway
forecasts.

The model of the pages left is fitted to half of the sites of three families (documentation, a national
research council, made-up webs), and the factors of the ranges to crawls of the other real sites. It takes
some minutes.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.foresight.crawls import Crawl, Setting, run
from benchmarks.foresight.fitting import fit_pages, snapshots, table_of
from benchmarks.foresight.webs import GRAPHS, SiteGraph, graph_sites, synthetic_sites

import headway.planning
from headway.planning.ends import ForecastTable

TABLE = Path(headway.planning.__file__).with_name("forecast_table.py")
CRAWLED_PAGES = 30, 600
_INTERVALS_S = (0.0, 0.1, 0.5, 1.0, 2.0)
_FEW_SITES = (1, 3, 8, 8, 20)


def settings(count: int, seed: int) -> list[Setting]:
    """Crawls of all kinds: with and without pauses, deadlines, a tight bound, and servers that slow down
    half-way."""
    chance = np.random.default_rng([seed, 0xC7])
    return [
        Setting(
            seed * 100_000 + number,
            float(chance.choice(_INTERVALS_S)),
            float(np.exp(chance.uniform(np.log(0.2), np.log(3.0)))),
            has_deadlines=bool(chance.random() < 0.5),
            strategy=str(chance.choice(["length", "depth"])),
            slows=bool(chance.random() < 0.1),
        )
        for number in range(count)
    ]


def crawled(
    sites: list[SiteGraph], table: ForecastTable, setting: Setting, levels: tuple[float, float] = (0.8, 0.8)
) -> Crawl:
    """A crawl of some sites, drawn by the seed of the setting; several crawls of one site are one site."""
    chance = np.random.default_rng([setting.seed, 0x51])
    few = [site for site in sites if CRAWLED_PAGES[0] <= len(site.links) <= CRAWLED_PAGES[1]]
    count = min(int(chance.choice(_FEW_SITES)), len(few))
    return run(
        [few[place] for place in chance.choice(len(few), count, replace=False)], setting, table, levels
    )


def make_table(
    fitted: list[SiteGraph], others: list[SiteGraph], crawls: int, seed: int, processes: int = 2
) -> ForecastTable:
    pages = fit_pages(snapshots(fitted))
    with ProcessPoolExecutor(processes) as pool:
        made = list(pool.map(partial(crawled, others, table_of(pages)), settings(crawls, seed), chunksize=4))
    return table_of(pages, made)


_SOURCE = '''"""Made by `python -m benchmarks.foresight.fit` from {sites} sites and {crawls} crawls."""

from __future__ import annotations

from headway.planning.ends import ForecastTable, read_rows

_TREES = """
{trees}
"""
_EDGES = """
{edges}
"""
_CELLS = """
{cells}
"""
_PROBABILITIES = """
{probabilities}
"""
_SITES = """
{by_site}
"""
_CRAWLS = """
{by_crawl}
"""
SHIPPED = ForecastTable(
    (_TREES, {base}, read_rows(_EDGES)[0], {classes}, read_rows(_CELLS)),
    read_rows(_PROBABILITIES)[0],
    read_rows(_SITES),
    read_rows(_CRAWLS),
)
'''


def as_source(table: ForecastTable, sites: int, crawls: int) -> str:
    trees, base, edges, classes, cells = table.pages
    return _SOURCE.format(
        sites=sites,
        crawls=crawls,
        trees=_wrapped(trees),
        edges=_lines([edges]),
        cells=_lines(cells),
        probabilities=_lines([table.probabilities]),
        by_site=_lines(table.sites),
        by_crawl=_lines(table.crawls),
        base=base,
        classes=tuple(round(each, 4) for each in classes),
    )


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 108, break_long_words=False, break_on_hyphens=False))


def _lines(rows: Sequence[Sequence[float]]) -> str:
    """A row ends with a semicolon."""
    return _wrapped("; ".join(" ".join(f"{each:g}" for each in row) for row in rows))


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.foresight.fit", description=__doc__)
    parser.add_argument("--crawls", type=int, default=240)
    options = parser.parse_args()
    families = [graph_sites("debdoc-small"), graph_sites("cnr-2000"), synthetic_sites(range(12))]
    if not all(families):
        raise SystemExit(f"the graphs are not in {GRAPHS}; set HEADWAY_DATA to the folder that has them")
    fitted = [site for family in families for site in family[::2]]
    others = [site for family in families for site in family[1::2]]
    # Made-up sites are too much alike: ranges calibrated on them are too narrow for real ones.
    others = [site for site in others if not site.family.startswith("synthetic")]
    table = make_table(fitted, others, options.crawls, seed=1)
    TABLE.write_text(as_source(table, len(fitted) + len(others), options.crawls), encoding="utf-8")
    print(f"{TABLE}: {len(fitted)} sites, and {options.crawls} crawls of {len(others)} others")


if __name__ == "__main__":
    main()
