"""From what the parts have kept to RESULTS.md and its figures."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import msgspec
from benchmarks.whole.figures import draw_limits, draw_peers
from benchmarks.whole.frontpage import write_front_page
from benchmarks.whole.limits import Held
from benchmarks.whole.parts import KEPT, PARTS, Part
from benchmarks.whole.peers import Peer, Peers
from benchmarks.whole.resume import Resumed

RESULTS = Path(__file__).parents[1] / "RESULTS.md"
IMAGES = Path(__file__).parents[1] / "images"
_MOST_LINES = 120
_HEAD = """# Side by side
Written by `make bench`, which installs the peers, serves the same web to all, and runs every comparison one
after the other. Nothing here was typed in by hand. Ratios count: absolute figures move with the machine.
"""


def write_results() -> None:
    machine = json.loads((KEPT / "machine.json").read_text()) if (KEPT / "machine.json").exists() else {}
    lines = [_HEAD, ", ".join(f"{name} {version}" for name, version in machine.items()) + ".", ""]
    lines += _overview()
    for part in PARTS:
        if (KEPT / f"{part.name}.ended").exists():
            lines += ["", f"## {part.title[0].upper()}{part.title[1:]}", *_section(part)]
    RESULTS.write_text("\n".join(lines).rstrip() + "\n")
    write_front_page()


def _ended(part: Part) -> dict[str, object]:
    ended: dict[str, object] = json.loads((KEPT / f"{part.name}.ended").read_text())
    return ended


def _overview() -> list[str]:
    lines = ["| part | | how it ended | s | measured |", "|---|---|---|---|---|"]
    for part in PARTS:
        kept = KEPT / f"{part.name}.ended"
        if not kept.exists():
            lines.append(f"| `{part.name}` | {part.title} | not run | | |")
            continue
        ended = _ended(part)
        day = dt.datetime.fromtimestamp(kept.stat().st_mtime, dt.UTC).strftime("%Y-%m-%d")
        form = ", quick form" if ended["quick"] else ""
        verdict = part.verdict(ended["exit_code"])  # type: ignore[arg-type]
        lines.append(f"| `{part.name}` | {part.title} | {verdict} | {ended['seconds']} | {day}{form} |")
    return lines


def _section(part: Part) -> list[str]:
    ended = _ended(part)
    lines = [f"`{ended['command']}`", ""]
    verdict = part.verdict(ended["exit_code"])  # type: ignore[arg-type]
    if verdict in {"failed", "out of time"}:
        what = "failed" if verdict == "failed" else "took too long and was stopped"
        lines += [f"**This part {what}.** Its last words:", ""]
    figures = KEPT / f"{part.name}.json"
    if verdict.startswith("done") and figures.exists() and part.name in _TELLERS:
        return [*lines, *_TELLERS[part.name](figures.read_bytes())]
    said = (KEPT / f"{part.name}.txt").read_text(errors="replace").rstrip().splitlines()[-_MOST_LINES:]
    if any(re.match(r"\|[-|: ]+\|$", line) for line in said):
        return [*lines, *(line if not line.startswith("## ") else f"#{line}" for line in said)]
    return [*lines, "```text", *(line.rstrip() for line in said), "```"]


def _tell_peers(kept: bytes) -> list[str]:
    told = msgspec.json.decode(kept, type=Peers)
    scrapy = next((peer for peer in told.peers if peer.name == "Scrapy" and not peer.problem), None)
    draw_peers(told, IMAGES / "peers.png")
    kilobytes = told.bytes_per_file / 1000
    lines = [
        f"{told.sites} sites of Debian's documentation, {told.files:,} files of {kilobytes:.1f} KB each,",
        "by nginx on one core; each crawler has the other. Settings: `benchmarks/crawl/README.md`.",
        "",
        "| crawler | pages | pages/s | Scrapy = 1 | CPU ms a page | peak MB | keeps |",
        "|---|---|---|---|---|---|---|",
    ]
    for peer in told.peers:
        spread = ""
        if peer.fastest_pages_per_s > 1.02 * peer.slowest_pages_per_s:
            spread = f" ({peer.slowest_pages_per_s:,.0f} to {peer.fastest_pages_per_s:,.0f})"
        ratio = f"{peer.pages_per_s / scrapy.pages_per_s:.1f}" if scrapy else ""
        name = f"{peer.name} {peer.version}" + (", both cores" if peer.cores > 1 else "")
        cells = (
            name,
            f"{peer.pages:,}",
            f"{peer.pages_per_s:,.0f}{spread}",
            ratio,
            f"{peer.cpu_ms_per_page:.2f}",
            f"{peer.peak_bytes / 1e6:.0f}",
            peer.keeps,
        )
        lines.append(_row(*cells))
    lines += ["", "![Pages a second and CPU a page](images/peers.png)", ""]
    lines += [f"Left out: {each}" for each in told.left_out]
    return lines + _tell_coverage(told)


def _tell_coverage(told: Peers) -> list[str]:
    lines = [
        "### Coverage",
        f"Whoever found a page, it counts: together {told.found:,} addresses were served whole.",
        "",
        "| crawler | found | lacks | why |",
        "|---|---|---|---|",
    ]
    ordered = sorted(told.peers, key=lambda peer: -peer.pages)
    lacks = {peer.name: f"{told.found - peer.pages:,}" for peer in ordered}
    return lines + [_row(peer.name, f"{peer.pages:,}", lacks[peer.name], _reasons(peer)) for peer in ordered]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _reasons(peer: Peer) -> str:
    if peer.problem:
        return peer.problem.replace("\n", " ")[:120]
    return "; ".join(f"{each.pages:,}: {each.why} (`{_path(each.example)}`)" for each in peer.missing)


def _path(url: str) -> str:
    return "/" + url.split("/", 3)[3]


def _tell_limits(kept: bytes) -> list[str]:
    told = msgspec.json.decode(kept, type=list[Held])
    draw_limits(told, IMAGES / "limits.png")
    lines = [
        f"Eight servers, bound {told[0].bound_bytes_per_s / 1000:.0f} KB/s, bytes counted on the wire.",
        "",
        "| program | use of the bound | highest second |",
        "|---|---|---|",
    ]
    lines += [_row(each.name, f"{each.use:.2f}", f"{each.over:+.1%} {each.problem}") for each in told]
    return [*lines, "", "![Bytes of each second under the bound](images/limits.png)"]


def _tell_resume(kept: bytes) -> list[str]:
    lines = [
        "Killed about halfway; the server's log says what was asked for before and after.",
        "",
        "| crawler | pages of the web | had at the kill | lost for good | fetched twice |",
        "|---|---|---|---|---|",
    ]
    for each in msgspec.json.decode(kept, type=list[Resumed]):
        counts = [f"{count:,}" for count in (each.pages, each.before_kill, each.lost, each.twice)]
        lines.append(_row(each.name, *counts[:3], f"{counts[3]} {each.problem}".strip()))
    return lines


_TELLERS = {"peers": _tell_peers, "limits": _tell_limits, "resume": _tell_resume}
