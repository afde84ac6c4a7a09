"""`python -m experiments.zhu2020 [--out DIR] [--draws N] [--quick | --no-live] [--resume]
[--downloads FILE | --no-downloads]`

The formulas take some minutes of one core, the live crawls half an hour of waiting. Each live crawl is kept
as it ends; `--resume` goes on with those that are left.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.lab import why_not

from .downloads import claims_on, draw_downloads, read_downloads
from .figures import draw_all
from .live import cases, crawl_all, live_points
from .live_verdicts import draw_live_downloads, live_downloads, on_live, on_live_downloads, write_sites
from .measure import measure, write_downloads
from .runs import Point, insufficient, mean_over_draws, scheduling, sufficient, write_csv
from .verdicts import on_insufficient, on_scheduling, on_sufficient, report

CONDITIONS = """\
Six sites with 125 Mbit of data in the ratios 1 : 1.3 : 1.6 : 1.9 : 2.2 : 2.5 and deadlines of 60, 90, 180,
200, 320 and 400 s (figures 2 to 7); fifty sites of that size with five crawlers (8 to 10), {draws} draws for
each of three ways of drawing deadlines. The paper does not print its deadlines. Where it takes the logarithm
of a time beyond deadlines that may be zero, ln(1 + x) is taken. GA, DE and Random run with one fixed seed."""

MEASURED = """
Figures 11 and 12 are real downloads over loopback through headway's own fetcher under its own bound, from
sites that differ in page size, connections and latency; the data are the bodies alone, so xi holds what
the heads, the packets and the connections add. Pages of 4 KB with 20 ms before each come at no more than
200 KB/s: beyond that no bandwidth helps, which eq 17 does not say and a cap on the site's rate does."""


LIVE = """
Live: each policy as `headway crawl` in {lab}. The six sites have their time
divided by 8 and their rates multiplied by 4, the fifty (deadlines in turn, the first draw) by 40 and 10; all
times are given on the paper's scale. Sites differ in the size of their pages and in their round trip. What
crosses the wire, with the heads of answers and packets, is the paper's amount of data. In a crawl a policy
of constant rates aims at ending 5.5% before a deadline, if all deadlines can be met so: sites that the
formula ends exactly at their deadlines end that much earlier. GA finds M-SUMT's optimum to within a
hundred-thousandth at any deadlines, so that no measurement can tell one from the other; DE it can."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.zhu2020", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/zhu2020"))
    parser.add_argument("--draws", type=int, default=20, help="draws of fifty sites for each way")
    parser.add_argument("--quick", action="store_true", help="live: a figure of each kind, its middle")
    parser.add_argument("--no-live", action="store_true", help="formulas alone")
    parser.add_argument("--resume", action="store_true", help="keep the live crawls of an earlier call")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="labs beside one another")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--downloads", type=Path, help="draw figures 11 and 12 from this CSV")
    source.add_argument("--no-downloads", action="store_true", help="leave figures 11 and 12 out")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    enough, short = sufficient(), insufficient()
    for points in (enough, short):
        for figure in dict.fromkeys(point.figure for point in points):
            mine = [point for point in points if point.figure == figure]
            write_csv(mine, options.out / f"figure-{int(figure):02}.csv")
    fifty = scheduling(options.draws)
    for way, draws in fifty.items():
        write_csv(mean_over_draws(draws), options.out / f"figure-08-10-{way.replace(' ', '-')}.csv")
    claims = [*on_sufficient(enough), *on_insufficient(short), *on_scheduling(fifty)]
    conditions = CONDITIONS.format(draws=options.draws)
    live: list[Point] = []
    if not options.no_live:
        runs = crawl_all(
            cases(quick=options.quick), options.out / "live", at_once=options.at_once, resume=options.resume
        )
        live = live_points(runs)
        write_csv(live, options.out / "live.csv")
        write_sites(runs, options.out / "live-sites.csv")
        downloaded = live_downloads(runs)
        write_downloads(downloaded, options.out / "figure-11-12-live.csv")
        draw_live_downloads(downloaded, options.out / "figure-11-12-live.png")
        claims += on_live(runs, [*enough, *short, *fifty["in turn"][0]])
        claims += on_live_downloads(downloaded)
        why = why_not()
        conditions += LIVE.format(
            lab="the network lab" if why is None else f"processes over loopback, without round trips ({why})"
        )
    draw_all(enough, short, mean_over_draws(fifty["in turn"]), options.out, live)
    if options.no_downloads:
        conditions += "\nFigures 11 and 12 were left out."
    else:
        if options.downloads is not None:
            downloads = read_downloads(options.downloads)
        else:
            downloads = measure()
            conditions += MEASURED
        write_downloads(downloads, options.out / "figure-11-12.csv")
        draw_downloads(downloads, options.out)
        claims += claims_on(downloads)
    text = report(claims, conditions)
    (options.out / "VERDICTS.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
