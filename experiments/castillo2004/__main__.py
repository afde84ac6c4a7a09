"""`python -m experiments.castillo2004 [--out DIR] [--pages N]`: a quarter of an hour on one core.

Figures 3 and 5 to 10 and table 1 on two real graphs (one is shipped) and on a web of the paper's size.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from . import figures, runs, verdicts
from .webs import Ground, real_grounds, synthetic_ground

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
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    grounds = [] if options.skip_real else list(real_grounds())
    grounds.append(synthetic_ground(options.pages, max(1, round(options.pages / 70))))
    claims, tables = reproduce(grounds, out)
    webs = "; ".join(f"{g.label} ({g.web.pages:,} pages, {len(g.web.sites):,} sites)" for g in grounds)
    text = verdicts.report(claims, CONDITIONS.format(webs=webs))
    (out / "VERDICTS.md").write_text(text + "\n" + tables, encoding="utf-8")
    (out / "verdicts.json").write_bytes(msgspec.json.format(msgspec.json.encode(claims, enc_hook=bool)))
    print(text + "\n" + tables)


def reproduce(grounds: list[Ground], out: Path) -> tuple[list[verdicts.Claim], str]:
    claims: list[verdicts.Claim] = list(verdicts.on_trials(trials := runs.trials()))
    figures.site_sizes(grounds, out / "figure-03.png")
    fig5, fig6, speed, fig8, fig10 = {}, {}, {}, {}, {}
    for ground in grounds:
        claims += verdicts.on_site_sizes(ground)
        fig5[ground.label] = runs.strategies(ground)
        claims += verdicts.on_strategies(ground, fig5[ground.label])
        fig6[ground.label] = runs.more_robots(ground, fig5[ground.label])
        claims += verdicts.on_robots(ground, fig6[ground.label])
        speed[ground.label] = runs.speed_ups(ground)
        claims += verdicts.on_speed_ups(ground, speed[ground.label])
        fig8[ground.label] = runs.real_crawl(ground)
        claims += verdicts.on_real_crawl(ground, fig8[ground.label])
        fig10[ground.label] = runs.rank_by_depth(ground)
        claims += verdicts.on_depth(ground, *fig10[ground.label])
        if ground.web.pages >= 10 * runs.BATCH_PAGES:
            batch = runs.middle_batch(ground, fig6[ground.label]["length"][256].record)
            batches = runs.batch_runs(batch)
            claims += verdicts.on_batch(ground, batches, batch)
            figures.batch(ground.label, batches, out / f"figure-07-{ground.label}.png")
    figures.strategies(fig5, out / "figure-05.png")
    figures.robots(fig6, out / "figure-06.png")
    figures.speed_ups(speed, out / "table-1.png")
    figures.real_crawl(fig8, out / "figure-08-09.png")
    figures.rank_by_depth(fig10, out / "figure-10.png")
    return claims, "\n".join((areas_table(fig5), speed_table(speed), trials_table(trials)))


def areas_table(fig5: dict[str, dict[str, runs.Timed]]) -> str:
    lines = ["## With one robot (figure 5)", ""]
    lines += ["| web | strategy | area | half of the PageRank | 80% | time |", "|---|---|---|---|---|---|"]
    for label, by_name in fig5.items():
        for name, timed in sorted(by_name.items(), key=lambda item: -item[1].result.pagerank_auc):
            result = timed.result
            half, most = result.pages_for_half_pagerank or 0.0, result.pages_for_80_pagerank or 0.0
            cells = (f"{result.pagerank_auc:.3f}", f"{half:.1%} of the pages", f"{most:.1%}")
            lines.append(f"| {label} | {name} | {' | '.join(cells)} | {result.seconds / 86_400:.2f} d |")
    return "\n".join(lines) + "\n"


def speed_table(speed: dict[str, dict[int, dict[int, runs.SpeedUp]]]) -> str:
    lines = ["## Speed-up over the first tenth of the pages, and over the whole crawl (table 1)", ""]
    lines += ["| web | bytes per second | r = 1 | r = 64 | r = 256 |", "|---|---|---|---|---|"]
    for label, table in speed.items():
        for bandwidth, row in table.items():
            values = " | ".join(f"{row[r].first_tenth:.3g}, {row[r].whole:.3g}" for r in runs.ROBOTS)
            lines.append(f"| {label} | {bandwidth:,} | {values} |")
    return "\n".join(lines) + "\n"


def trials_table(trials: list[runs.Trial]) -> str:
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
