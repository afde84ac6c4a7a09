"""`python -m experiments.castillo2004 [--out DIR] [--pages N]`: a quarter of an hour on one core.

Figures 3 and 5 to 10 and table 1 on two real graphs (one is shipped) and on a web of the paper's size.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from . import figures, runs, verdicts
from .findings import Findings, OnWeb, Trial
from .webs import real_grounds, synthetic_ground

CONDITIONS = """\
Webs: {webs}. The sites of cnr-2000 are inferred and its page sizes drawn. The synthetic web has the paper's
pages for each site, a power law of site sizes up to 25,000 pages, and all home pages to begin with. Latency
and server rate are drawn by site (median 0.5 s with the connection, 150 KB/s). w = 15 s, and k = 1 where
nothing else is said. Areas are those under the curve of PageRank against pages: 0.5 for a straight line. The
crawl is that of `headway simulate`: the machine of the live crawl, in virtual time."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.castillo2004", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/castillo2004"))
    parser.add_argument("--pages", type=int, default=3_500_000, help="of the synthetic web")
    parser.add_argument("--skip-real", action="store_true", help="the synthetic web alone")
    parser.add_argument("--again", action="store_true", help="figures and verdicts anew, without crawling")
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    kept = out / "findings.json"
    if options.again:
        findings = msgspec.json.decode(kept.read_bytes(), type=Findings)
    else:
        findings = crawl_all(options.pages, skip_real=options.skip_real)
        kept.write_bytes(msgspec.json.encode(findings))
    figures.draw_all(findings, out)
    text = verdict_text(findings)
    (out / "VERDICTS.md").write_text(text, encoding="utf-8")
    print(text)


def crawl_all(pages: int, *, skip_real: bool) -> Findings:
    webs = [] if skip_real else [runs.run_all(ground) for ground in real_grounds()]
    webs.append(runs.run_all(synthetic_ground(pages, max(1, round(pages / 70)))))
    return Findings(webs, runs.trials())


def verdict_text(findings: Findings) -> str:
    webs = "; ".join(f"{w.label} ({w.pages:,} pages, {len(w.site_sizes):,} sites)" for w in findings.webs)
    claims = verdicts.report(verdicts.on_all(findings), CONDITIONS.format(webs=webs))
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
        for bandwidth, row in web.speed_ups.items():
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
    main()
