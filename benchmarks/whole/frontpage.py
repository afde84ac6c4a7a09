"""The comparison on the front page, from the same figures as RESULTS.md."""

from __future__ import annotations

from pathlib import Path

import msgspec
from benchmarks.notes import write_part
from benchmarks.whole.limits import Held
from benchmarks.whole.parts import KEPT
from benchmarks.whole.peers import Peers
from benchmarks.whole.resume import Resumed

README = Path(__file__).parents[2] / "README.md"
ROWS = (
    # title, as in peers, as in limits, as in resume
    ("headway", "headway", "headway", "headway"),
    ("Scrapy", "Scrapy", "Scrapy with AutoThrottle (has no such option)", "Scrapy, JOBDIR"),
    ("... with headway's add-on", "", "Scrapy with headway's add-on", "Scrapy, JOBDIR, headway's add-on"),
    ("Crawlee for Python", "Crawlee for Python", "", ""),
    ("HTTrack", "HTTrack", "HTTrack -A", "HTTrack --continue"),
    ("wget2", "wget2 -r", "", "wget2 -r --timestamping"),
    ("aria2", "", "aria2 --max-overall-download-limit", ""),
)


def write_front_page() -> None:
    """Only when all that it shows has been measured."""
    kept = {name: KEPT / f"{name}.json" for name in ("peers", "limits", "resume")}
    if not all(path.exists() for path in kept.values()):
        return
    peers = {peer.name: peer for peer in msgspec.json.decode(kept["peers"].read_bytes(), type=Peers).peers}
    limits = {held.name: held for held in msgspec.json.decode(kept["limits"].read_bytes(), type=list[Held])}
    resumed = {
        each.name: each for each in msgspec.json.decode(kept["resume"].read_bytes(), type=list[Resumed])
    }
    scrapy = peers.get("Scrapy")
    lines = [
        "| | pages/s, Scrapy = 1 | CPU a page | use of a bound | highest second | lost by kill -9 |",
        "|---|---|---|---|---|---|",
    ]
    for title, in_peers, in_limits, in_resume in ROWS:
        peer, held, one = peers.get(in_peers), limits.get(in_limits), resumed.get(in_resume)
        speed = cost = use = over = lost = ""
        if peer is not None and scrapy is not None and not peer.problem:
            speed = f"{peer.pages_per_s / scrapy.pages_per_s:.1f}"
            cost = f"{peer.cpu_ms_per_page / scrapy.cpu_ms_per_page:.2f}"
        if "no such option" in in_limits:
            use = over = "has none"
        elif held is not None:
            use, over = f"{held.use:.2f}", f"{held.over:+.0%}"
        if one is not None and not one.problem:
            lost = f"{one.lost / one.pages:.0%}" if one.lost else "nothing"
        lines.append(f"| {title} | {speed} | {cost} | {use} | {over} | {lost} |")
    write_part(README, "comparison", "\n".join(lines))
