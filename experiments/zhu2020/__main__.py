"""`python -m experiments.zhu2020 [--out DIR] [--draws N] [--downloads FILE | --no-downloads]`: some minutes
on one core."""

from __future__ import annotations

import argparse
from pathlib import Path

from .downloads import claims_on, draw_downloads, read_downloads
from .figures import draw_all
from .measure import measure, write_downloads
from .runs import insufficient, mean_over_draws, scheduling, sufficient, write_csv
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.zhu2020", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/zhu2020"))
    parser.add_argument("--draws", type=int, default=20, help="draws of fifty sites for each way")
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
    draw_all(enough, short, mean_over_draws(fifty["in turn"]), options.out)
    claims = [*on_sufficient(enough), *on_insufficient(short), *on_scheduling(fifty)]
    conditions = CONDITIONS.format(draws=options.draws)
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
