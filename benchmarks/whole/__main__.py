"""`make bench`: every comparison, one after the other, and RESULTS.md.

    python -m benchmarks.whole [--quick] [--only peers,limits] [--again]

Each part is a process of its own with a time limit. One that fails or takes too long is shown as such, and
the others go on. What each said and measured is kept in build/bench; --again only writes RESULTS.md from it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from benchmarks.whole.machine import describe
from benchmarks.whole.parts import KEPT, PARTS, Part
from benchmarks.whole.results import write_results

_APT = {"aria2c": "aria2", "httrack": "httrack", "nginx": "nginx-light", "wget2": "wget2", "wget": "wget"}


def install_programs() -> None:
    """Debian's peers, where root and apt are at hand; those from PyPI come with the part that needs them."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
    missing = [package for program, package in _APT.items() if shutil.which(program, path=path) is None]
    if not missing or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        subprocess.run(["apt-get", *command], check=False, env=environment, stdout=subprocess.DEVNULL)


def run_part(part: Part, *, quick: bool) -> dict[str, object]:
    """How it ended; what it said is in build/bench/NAME.txt."""
    command = [sys.executable, "-m", *(part.quick if quick else part.whole)]
    limit_s = part.quick_limit_s if quick else part.limit_s
    for old in KEPT.glob(f"{part.name}.*"):
        old.unlink()
    began = time.monotonic()
    with (KEPT / f"{part.name}.txt").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code: int | None = process.wait(limit_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as why:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(why, KeyboardInterrupt):
                raise
            code = None
    ended = {
        "command": " ".join(["python", *command[1:]]),
        "exit_code": code,
        "seconds": round(time.monotonic() - began, 1),
        "limit_s": limit_s,
        "quick": quick,
    }
    (KEPT / f"{part.name}.ended").write_text(json.dumps(ended))
    return ended


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.whole", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes: smaller webs, shorter times")
    parser.add_argument(
        "--only", default="", help=f"parts, by comma: {','.join(part.name for part in PARTS)}"
    )
    parser.add_argument("--again", action="store_true", help="only write RESULTS.md")
    options = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    wanted = set(filter(None, options.only.split(",")))
    if unknown := wanted - {part.name for part in PARTS}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    failed = []
    if not options.again:
        install_programs()
        (KEPT / "machine.json").write_text(json.dumps(describe()))
        for part in PARTS:
            if wanted and part.name not in wanted:
                continue
            print(f"{part.name}: {part.title} ...", end=" ", flush=True)
            ended = run_part(part, quick=options.quick)
            verdict = part.verdict(ended["exit_code"])  # type: ignore[arg-type]
            print(f"{verdict}, {ended['seconds']} s", flush=True)
            if verdict in {"failed", "out of time"}:
                failed.append(part.name)
            write_results()
    write_results()
    print("benchmarks/RESULTS.md is written" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
