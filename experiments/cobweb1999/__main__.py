"""`python -m experiments.cobweb1999 [--out DIR] [--short]`: about ten minutes, two in short."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from experiments.cobweb1999.collectors import LATENCY_S, Point, measure
from experiments.cobweb1999.figure import draw
from experiments.cobweb1999.refresher import CRAWL_DAYS, replay
from experiments.cobweb1999.sums import tables
from tests.support.squid import find_squid

from headway.demoweb import QUICK, ServedProcess, design_web

_MOST_IN_PAPER = 25
JOB = """\
[crawl]
interval = "20 ms"
allow_private = true
retry_penalty = "200 ms"
backoff = "50 ms"
max_backoff = "400 ms"
[crawl.scope]
max_depth = 6
[crawl.timeouts]
first_byte = "1 s"
idle = "1 s"
"""


def scaling(counts: list[int], seconds: float) -> list[Point]:
    return [asyncio.run(measure(count, seconds)) for count in counts]


def describe_scaling(points: list[Point]) -> str:
    least = points[0]
    rows = []
    for point in points:
        linear = point.docs_per_min / (least.docs_per_min * point.collectors / least.collectors)
        rows.append(
            f"| {point.collectors} | {point.docs_per_min:.0f} | {linear:.2f} | {point.http_latency_s:.2f} | "
            f"{point.scheduler_latency_s:.6f} |"
        )
    each = {point.collectors: point.docs_per_min / point.collectors for point in points}
    worst = min(rate for count, rate in each.items() if count <= _MOST_IN_PAPER) / each[least.collectors]
    beyond = min(each.values()) / each[least.collectors]
    verdict = "holds" if worst > 0.9 else "does not hold"
    return "\n".join(
        [
            f"Fig 3 and table 1, servers of {LATENCY_S} s latency\n",
            "| collectors | docs/min | of linear growth | HTTP latency (s) | scheduler latency (s) |",
            "|---|---|---|---|---|",
            *rows,
            (
                f"\nLinear growth {verdict}: the worst point up to 25 has {worst:.2f} of it, "
                f"the worst of all {beyond:.2f}, where servers and crawler share one machine. "
                "The paper's scheduler took 0.02 s."
            ),
        ]
    )


def describe_replay(requests: int) -> str:
    if find_squid() is None:
        return "Table 3 was left out: there is no squid."
    result = replay(requests)
    errors = sum(result["errors"].values())
    total = result["updates"] + result["fresh"] + result["new"] + errors
    rows = [("Updates performed", result["updates"], "89%"), ("Updates discarded", result["fresh"], "5.7%")]
    rows += [("New documents collected", result["new"], "5.3%"), ("Errors", errors, "-")]
    quick, kept = result["answered_under_1_s"], (result["updates"] + result["new"]) / total
    uncounted = result["announced"] - result["accepted"] - sum(result["refused"].values())
    verdicts = [
        _verdict("Most of what users ask for is worth a fresh copy", result["updates"] > total / 2),
        _verdict(f"Most answers of the near proxy come in under a second: {quick:.0%} (63%)", quick > 0.5),
        _verdict("Every announcement is accepted or refused with a reason, none is lost", not uncounted),
    ]
    return "\n".join(
        [
            (
                f"Table 3, {requests} requests of users through Squid in {result['seconds']:.0f} s, a day "
                f"being {result['day_s']:.0f} s, after a crawl of {CRAWL_DAYS} days and "
                f"{result['crawled']} pages ({result['source']})\n"
            ),
            "| | pages | share | paper |\n|---|---|---|---|",
            *(f"| {name} | {count} | {count / total:.1%} | {paper} |" for name, count, paper in rows),
            f"| Total, each page once | {total} | 100% | 100% |",
            (
                f"\nAnnounced {result['announced']}, asked for again within the time that they are fresh "
                f"{result['refused'].get('repeated', 0)}, lost {sum(result['lost'].values())}; {kept:.0%} of "
                "the others brought a copy."
            ),
            "",
            *verdicts,
        ]
    )


def _verdict(claim: str, holds: bool) -> str:
    return f"- {claim}: {'holds' if holds else 'does not hold'}."


def describe_crawl(scale: float) -> str:
    web_of = design_web(seed=11, scale=scale, tempo=QUICK)
    with tempfile.TemporaryDirectory() as name, ServedProcess(web_of) as web:
        folder = Path(name)
        sites = "".join(f'[[site]]\nurl = "{url}"\n' for url in web.urls)
        (folder / "job.toml").write_text(JOB + sites)
        words = ["crawl", str(folder / "job.toml"), "-o", str(folder / "run"), "-q"]
        subprocess.run([sys.executable, "-m", "headway", *words], check=True)
        return tables(folder / "run")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.cobweb1999", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/cobweb1999"))
    parser.add_argument("--short", action="store_true", help="fewer collectors and requests")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    counts = [5, 15, 25] if options.short else [5, 10, 15, 20, 25, 50, 100]
    points = scaling(counts, 8.0 if options.short else 24.0)
    draw(points, options.out / "fig3.png")
    parts = [
        "# cobweb1999",
        describe_scaling(points),
        describe_replay(1000 if options.short else 8870),
        describe_crawl(0.15 if options.short else 0.5),
    ]
    text = "\n\n".join(parts) + "\n"
    (options.out / "VERDICTS.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
