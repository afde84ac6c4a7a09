"""`python -m experiments.castillo2004 [--out DIR] [--pages N]`: half an hour on one core.

Figures 3 and 5 to 10 and table 1 on two real graphs (one is shipped) and on a web of the paper's size. Every
crawl's result is kept: interrupted and called again, it resumes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from . import figures, runs, verdicts
from .findings import Findings, OnWeb, Trial
from .kept import Keeper, OutOfTimeError
from .webs import real_grounds, synthetic_ground

CONDITIONS = """\
Webs: {webs}. The sites of cnr-2000 are inferred and its page sizes drawn. The synthetic web has the paper's
pages for each site, a power law of site sizes up to 25,000 pages, and all home pages to begin with. Latency
and server rate are drawn by site (median 0.5 s with the connection, 150 KB/s). w = 15 s, and k = 1 where
nothing else is said. Areas are those under the curve of PageRank against pages: 0.5 for a straight line. The
crawl is that of `headway simulate`: the machine of the live crawl, in virtual time."""

INTRODUCTION = """\
# castillo2004
*Castillo, Marin, Rodriguez, Baeza-Yates: Scheduling algorithms for Web crawling (2004)*, rerun on two real
graphs and on a made-up web of the paper's size. `make reproduce PAPER=castillo2004` crawls them all again, in
virtual time (half an hour; stopped, it goes on where it was); `python -m experiments.castillo2004 --keep`
writes this page. cnr-2000 is not shipped: without it the other two webs are judged.
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.castillo2004", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/castillo2004"))
    parser.add_argument("--pages", type=int, default=3_500_000, help="of the synthetic web")
    parser.add_argument("--skip-real", action="store_true", help="the synthetic web alone")
    parser.add_argument("--fresh", action="store_true", help="crawl again what an earlier call has kept")
    parser.add_argument("--keep", action="store_true", help="write verdicts and figures into this folder")
    parser.add_argument("--most-minutes", type=float, default=float("inf"), help="begin no crawl after these")
    options = parser.parse_args()
    out: Path = options.out
    kept = out / f"crawls-{options.pages}"
    if options.fresh:
        shutil.rmtree(kept, ignore_errors=True)
    try:
        findings = crawl_all(
            options.pages, Keeper(kept, options.most_minutes * 60), skip_real=options.skip_real
        )
    except OutOfTimeError as next_one:
        print(f"time is over before {next_one}; run the same command again to resume")
        return 75
    figures.draw_all(findings, out)
    text = verdict_text(findings)
    (out / "VERDICTS.md").write_text(text, encoding="utf-8")
    print(text)
    if options.keep:
        publish(text, out)
    return 75 if any(web.left_out for web in findings.webs) else 0


def publish(text: str, out: Path) -> None:
    """The README of this folder: every figure as it was drawn, then the verdicts."""
    home = Path(__file__).parent
    (home / "figures").mkdir(exist_ok=True)
    lines = [INTRODUCTION]
    for name, title in figures.TITLES.items():
        shutil.copyfile(out / f"{name}.png", home / "figures" / f"{name}.png")
        lines += [f"## {title}", f"![{title}](figures/{name}.png)", ""]
    lines += [text.replace("# castillo2004: what holds", "## What holds").replace("\n## ", "\n### ")]
    (home / "README.md").write_text("\n".join(lines), encoding="utf-8")


def crawl_all(pages: int, keeper: Keeper, *, skip_real: bool) -> Findings:
    grounds = [] if skip_real else real_grounds()
    grounds.append(synthetic_ground(pages))
    trials = runs.trials(keeper)
    return Findings([runs.run_all(ground, keeper) for ground in grounds], trials)


def verdict_text(findings: Findings) -> str:
    webs = "; ".join(f"{w.label} ({w.pages:,} pages, {len(w.site_sizes):,} sites)" for w in findings.webs)
    conditions = CONDITIONS.format(webs=webs)
    for web in findings.webs:
        if web.left_out:
            conditions += f"\n\nNot crawled yet on {web.label}: {', '.join(web.left_out)}."
    claims = verdicts.report(verdicts.on_all(findings), conditions)
    return "\n".join(
        (claims, areas_table(findings.webs), speed_table(findings.webs), trials_table(findings.trials))
    )


def areas_table(webs: list[OnWeb]) -> str:
    lines = ["## With one robot (figure 5)", ""]
    lines += ["| web | strategy | area | half of the PageRank | 80% | time |", "|---|---|---|---|---|---|"]
    for web in webs:
        for name, outcome in sorted(web.strategies.items(), key=lambda item: -item[1].result.pagerank_auc):
            result = outcome.result
            half, most = result.pages_for_half_pagerank or 0.0, result.pages_for_80_pagerank or 0.0
            cells = (f"{result.pagerank_auc:.3f}", f"{half:.1%} of the pages", f"{most:.1%}")
            lines.append(f"| {web.label} | {name} | {' | '.join(cells)} | {result.seconds / 86_400:.2f} d |")
    return "\n".join(lines) + "\n"


def speed_table(webs: list[OnWeb]) -> str:
    lines = ["## Speed-up over the first tenth of the pages, and over the whole crawl (table 1)", ""]
    lines += ["| web | bytes per second | r = 1 | r = 64 | r = 256 |", "|---|---|---|---|---|"]
    for web in webs:
        for bandwidth, row in (web.speed_ups or {}).items():
            values = " | ".join(f"{row[r].first_tenth:.3g}, {row[r].whole:.3g}" for r in runs.ROBOTS)
            lines.append(f"| {web.label} | {bandwidth:,} | {values} |")
    return "\n".join(lines) + "\n"


def trials_table(trials: list[Trial]) -> str:
    lines = ["## Length against Depth where links are drawn otherwise (one robot)", ""]
    lines += [
        "| links grow with size to the | to home | upward | seed | rank of home pages | length | depth |"
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    for trial in trials:
        spec = trial.spec
        drawn = f"{spec.attraction:g} | {spec.home:.0%} | {spec.upward:.0%} | {spec.seed}"
        lines.append(f"| {drawn} | {trial.home_rank:.1f} | {trial.length:.3f} | {trial.depth:.3f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
