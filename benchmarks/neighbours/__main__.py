"""`python -m benchmarks.neighbours [--link MBIT] [--round-trip MS] [--only CRAWLER] [--repeat N]`

What users of a link feel of a crawler: the time of their pages, of a call, and the rate of a download, alone
and beside each crawler; and what the crawler gets of the rest.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec
from benchmarks.neighbours.drive import BACK_AT, MOST_BACK_S, Felt, Scene, available
from benchmarks.stolen import Stolen
from experiments.lab import Bottleneck, Link, run, why_not

CRAWLERS = ("alone", "background", "fixed", "bounded", "part", "wget2", "wget-limit", "scrapy")
MOST_PAGE, LEAST_DOWNLOAD, LEAST_USE = 1.25, 0.90, 0.80
LEAST_DOWNLOAD_FAIR = 0.50
"""Behind fair queueing, where a crawl sees no queue but its own."""


def links(sites: int, round_trip_s: float, rate_bytes_per_s: float) -> list[Link]:
    """The servers of the crawler, with round trips from three quarters to five quarters, and the users'."""
    spread = [0.75 + 0.5 * number / max(1, sites - 1) for number in range(sites)]
    return [Link(10 * rate_bytes_per_s, part * round_trip_s) for part in (*spread, 1.0)]


def figures(scene: Scene, felt: Felt, alone: Felt) -> dict[str, float | None]:
    free = scene.link_bytes_per_s - alone.users_calm_bytes_per_s
    back = next(
        (number / 2 for number, rate in enumerate(felt.crawler_by_second) if rate >= BACK_AT * free), None
    )
    return {
        "page": felt.page_p95_s / alone.page_p95_s,
        "download": felt.download_bytes_per_s / alone.download_bytes_per_s if scene.download_s else None,
        "use": felt.crawler_calm_bytes_per_s / free,
        "beside": felt.crawler_beside_download_bytes_per_s / free,
        "back_s": back,
        "last": sum(felt.crawler_by_second[-8:]) / 8 / free,
    }


def met(row: dict[str, float | None], least_download: float = LEAST_DOWNLOAD) -> bool:
    page, download, use, back = row["page"], row["download"], row["use"], row["back_s"]
    assert page is not None
    assert use is not None
    good = page <= MOST_PAGE and use >= LEAST_USE and back is not None and back <= MOST_BACK_S
    return good and (download is None or download >= least_download)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neighbours", description=__doc__)
    parser.add_argument("--link", type=float, default=10.0, help="Mbit/s")
    parser.add_argument("--round-trip", type=float, default=40.0, help="ms")
    parser.add_argument("--buffer", type=float, default=250.0, help="ms")
    parser.add_argument("--fair", action="store_true", help="the link serves the connections in turn")
    parser.add_argument("--congestion", default="bbr", help="of the servers: bbr, reno or cubic")
    parser.add_argument("--sites", type=int, default=12)
    parser.add_argument("--bound", type=float, help="Mbit/s; the link's rate unless given")
    parser.add_argument("--only", action="append", choices=CRAWLERS)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--page-every", type=float, default=0.25)
    parser.add_argument("--no-download", action="store_true")
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--uploads", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calm", type=float, default=20.0)
    parser.add_argument("--log", action="store_true", help="print what the crawler decided")
    parser.add_argument("--option", action="append", default=[], help="a line of the job file's [crawl]")
    parser.add_argument("--processes", type=int, default=1, help="of headway")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    if (reason := why_not()) is not None:
        print(f"This needs network namespaces: {reason}", file=sys.stderr)
        return 1
    rate = options.link * 125_000
    bottleneck = Bottleneck(
        rate, options.buffer / 1000, rate if options.uploads else None, options.fair, options.congestion
    )
    at = links(options.sites, options.round_trip / 1000, rate)
    chosen = ["alone", *(each for each in options.only or CRAWLERS if each != "alone")]
    print(
        f"{options.link:g} Mbit/s, {options.round_trip:g} ms, buffer {options.buffer:g} ms,"
        f" {'fair queueing' if options.fair else 'in order of arrival'}, {options.congestion}"
    )
    print(
        f"{'':14}{'pages p50/p95':>15}{'p95/alone':>10}{'download':>10}{'crawler':>9}{'beside it':>10}"
        f"{'back in':>9}{'last 4 s':>9}{'call p95':>9}{'stolen':>8}"
    )
    least_download = LEAST_DOWNLOAD_FAIR if options.fair else LEAST_DOWNLOAD
    kept, all_met = [], True
    for seed in range(options.seed, options.seed + options.repeat):
        alone: Felt | None = None
        for crawler in chosen:
            if not available(crawler):
                print(f"{crawler:14} not installed")
                continue
            scene = Scene(
                crawler,
                rate,
                calm_s=options.calm,
                download_s=0.0 if options.no_download else 13.0,
                page_every_s=options.page_every,
                seed=seed,
                uploads=options.uploads,
                calls=options.calls,
                bound_bytes_per_s=None if options.bound is None else options.bound * 125_000,
                options=tuple(options.option),
                processes=options.processes,
            )
            stolen = Stolen()
            felt = msgspec.convert(
                run("benchmarks.neighbours.drive:measure", at, scene, bottleneck=bottleneck, timeout_s=200),
                Felt,
            )
            alone = felt if alone is None else alone
            row = figures(scene, felt, alone)
            kept.append({"scene": scene, "felt": felt, "figures": row, "stolen": stolen.share()})
            all_met = all_met and (crawler != "background" or met(row, least_download))
            print(_line(crawler, felt, row) + f"{stolen.share():8.1%}", flush=True)
            if felt.failed_pages or felt.log.startswith("it ended"):
                print(f"    {felt.failed_pages} pages failed; {felt.log[:300]}")
            if options.log:
                print(felt.log)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(kept)))
    return 0 if all_met else 1


def _line(crawler: str, felt: Felt, row: dict[str, float | None]) -> str:
    shares = [_percent(row[name]) for name in ("download", "use", "beside")]
    back = "never" if row["back_s"] is None else f"{row['back_s']:.1f} s"
    call = "" if felt.call_p95_s is None else f"{1000 * felt.call_p95_s:.0f} ms"
    pages = f"{1000 * felt.page_p50_s:.0f}/{1000 * felt.page_p95_s:.0f} ms"
    last = _percent(row["last"])
    if crawler == "alone":
        back = last = ""
    return (
        f"{crawler:14}{pages:>15}{row['page']:10.2f}{shares[0]:>10}{shares[1]:>9}{shares[2]:>10}"
        f"{back:>9}{last:>9}{call:>9}"
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


if __name__ == "__main__":
    sys.exit(main())
