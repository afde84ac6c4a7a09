"""How a crawl bears the chaos web.

Without options: rounds of all bad sites and two good ones for half a minute. `--neighbours` measures, group
by group and for each heavy site, how much longer good sites take beside them; `--fuzz` throws inputs at
every parser and counts them. `--detach LOG` starts the same in the background, with the lowest claim on the
machine, and comes back at once: for an hour, `--seconds 3600 --plot soak.png --detach soak.log`.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from benchmarks.notes import write_part
from benchmarks.soak.endurance import Round, endure, judge, plot
from benchmarks.soak.fuzz import fuzz, fuzz_wire
from benchmarks.soak.neighbours import measure, slowdown
from benchmarks.soak.targets import TARGETS
from tests.support.chaos.process import ChaosProcess
from tests.support.chaos.roster import ROOMS

from headway.demoweb import QUICK, ServedProcess, design_web

_MOST_SLOWDOWN = 0.05
_MOST_GROWTH_MIB = 0.5
_TURNS = 3
_DETACHED_NICE = 15
_PAGE = Path(__file__).with_name("README.md")


def _good() -> ServedProcess:
    return ServedProcess(design_web(3, roster=("plain", "plain"), tempo=QUICK))


def _soak(seconds: float, bandwidth: str, picture: Path | None) -> tuple[object, bool]:
    print(
        f"{'s':>6} {'pages':>6} {'failed':>6} {'MB':>7} {'MiB resident':>13} {'good p50 ms':>12} {'p99':>8}"
    )

    def tell(each: Round) -> None:
        print(
            f"{each.ended_s:6.0f} {each.pages:6d} {each.failed:6d} {each.megabytes:7.1f}"
            f" {each.resident_mib:13.1f} {each.good_p50_ms:12.2f} {each.good_p99_ms:8.2f}",
            flush=True,
        )

    with _good() as good, ChaosProcess() as chaos:
        rounds = endure(good, chaos, seconds, bandwidth, tell)
    return _tell(rounds, picture)


def _tell(rounds: list[Round], picture: Path | None, *, keep: bool = False) -> tuple[object, bool]:
    verdict = judge(rounds)
    if picture is not None:
        plot(rounds, picture)
    pages, failed = sum(each.pages for each in rounds), sum(each.failed for each in rounds)
    told = (
        f"{verdict.rounds} rounds in {rounds[-1].ended_s / 60:.0f} minutes, {pages:,} pages and {failed:,}"
        f" failures: memory"
        f" {verdict.growth_mib_per_round:+.2f} MiB a round over the second half (at most"
        f" {max(each.resident_mib for each in rounds):.0f} MiB), good pages {verdict.latency_ratio:.2f} times"
        " their first median"
    )
    print(told)
    if keep:
        plot(rounds, _PAGE.parent / "soak.png")
        write_part(_PAGE, "soak", f"{told}.\n\n![memory and latency](soak.png)")
    return {"rounds": rounds, "verdict": verdict}, not verdict.growth_mib_per_round > _MOST_GROWTH_MIB


def _rounds(path: Path) -> list[Round]:
    """Of a soak that was measured before; JSON has no word for what is no number."""
    rounds = msgspec.json.decode(path.read_bytes())["rounds"]
    return [
        Round(**{key: math.nan if value is None else value for key, value in each.items()}) for each in rounds
    ]


def _groups() -> Iterator[tuple[str, list[str]]]:
    for room, sites in ROOMS.items():
        if light := [site.name for site in sites if not site.is_heavy]:
            yield f"{room} ({len(light)})", light
    for sites in ROOMS.values():
        for site in sites:
            if site.is_heavy:
                yield site.name, [site.name]


def _neighbours(only: list[str] | None) -> tuple[object, bool]:
    print(f"{'beside':28} {'alone s':>8} {'beside s':>9} {'slower':>7}")
    kept: dict[str, object] = {}
    met = True
    with _good() as good:
        for name, sites in _groups():
            if only and name.partition(" ")[0] not in only:
                continue
            with ChaosProcess(sites) as chaos:
                turns = measure(good.urls, chaos, _TURNS)
            slower = slowdown(turns)
            met = met and slower <= _MOST_SLOWDOWN
            alone_s, beside_s = min(t.alone_s for t in turns), min(t.beside_s for t in turns)
            print(f"{name:28} {alone_s:8.3f} {beside_s:9.3f} {slower:+7.1%}", flush=True)
            kept[name] = turns
    return kept, met


def _fuzz(inputs: int, only: list[str] | None) -> tuple[object, bool]:
    print(f"{'target':16} {'inputs':>9} {'seconds':>8}  found")
    kept = []
    for name in (*TARGETS, "socket"):
        if only and name not in only:
            continue
        fuzzed = fuzz(name, inputs) if name in TARGETS else fuzz_wire(max(1, inputs // 10))
        print(
            f"{name:16} {fuzzed.inputs:9,d} {fuzzed.seconds:8.1f}  {fuzzed.problem or 'nothing'}", flush=True
        )
        kept.append(fuzzed)
    print(f"{sum(fuzzed.inputs for fuzzed in kept):,d} inputs in all")
    return kept, not any(fuzzed.problem for fuzzed in kept)


def _detach(log: Path) -> int:
    arguments = sys.argv[1:]
    at = next(number for number, word in enumerate(arguments) if word.startswith("--detach"))
    del arguments[at : at + (1 if "=" in arguments[at] else 2)]
    with log.open("wb") as file:
        child = subprocess.Popen(
            ["nice", "-n", str(_DETACHED_NICE), sys.executable, "-m", "benchmarks.soak", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    print(f"process {child.pid} writes to {log}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to soak (an hour: 3600)")
    parser.add_argument("--bandwidth", default="50 MB/s", help="the bound while soaking")
    parser.add_argument("--plot", type=Path, help="draw memory and latency over time here")
    parser.add_argument("--neighbours", action="store_true", help="time good sites beside each kind of bad")
    parser.add_argument("--fuzz", action="store_true", help="throw inputs at the parsers")
    parser.add_argument("--inputs", type=int, default=2000, help="how many a target")
    parser.add_argument("--only", action="append", help="only this group or target (may be repeated)")
    parser.add_argument("--json", type=Path, help="write what was measured here")
    parser.add_argument("--keep", type=Path, metavar="JSON", help="a soak measured before, into README.md")
    parser.add_argument("--detach", type=Path, metavar="LOG", help="go on in the background, and write here")
    options = parser.parse_args()
    if options.detach is not None:
        return _detach(options.detach)
    if options.keep is not None:
        return 0 if _tell(_rounds(options.keep), None, keep=True)[1] else 1
    if options.fuzz:
        measured, met = _fuzz(options.inputs, options.only)
    elif options.neighbours:
        measured, met = _neighbours(options.only)
    else:
        measured, met = _soak(options.seconds, options.bandwidth, options.plot)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(measured)))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
