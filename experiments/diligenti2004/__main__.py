"""`python -m experiments.diligenti2004 [--out DIR] [--short] [--no-lab] [--resume] [--most-runs N]`

About sixteen minutes in full. Each run in the lab is kept as it ends; `--resume` takes up what an earlier
call left, and `--most-runs` ends a call after so many.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import msgspec
from experiments.diligenti2004 import live as live_crawls
from experiments.diligenti2004.figures import draw, draw_live, write_samples
from experiments.diligenti2004.live import SLOW_BOUND_BYTES_PER_S, LiveOutcome
from experiments.diligenti2004.managers import BoundedManager, NaiveManager
from experiments.diligenti2004.outcome import Outcome
from experiments.diligenti2004.queue import BOUND_BYTES_PER_S, SERVERS, make_links, make_queue
from experiments.diligenti2004.simulate import simulate, simulate_paced
from experiments.diligenti2004.verdicts import report
from experiments.lab import run, why_not

MANAGERS = ("maxd 6", "maxd 2", "naive")


def in_the_simulation(warm_up_s: int, seconds: int) -> list[Outcome]:
    links = make_links()
    managers = (BoundedManager(make_queue(), 6), BoundedManager(make_queue(), 2), NaiveManager(make_queue()))
    outcomes = [
        simulate(manager, name, links, warm_up_s, seconds)
        for name, manager in zip(MANAGERS, managers, strict=True)
    ]
    return [*outcomes, simulate_paced(make_queue(), links, warm_up_s, seconds)]


def in_the_lab(
    warm_up_s: int, seconds: int, folder: Path, *, resume: bool, most_runs: int | None
) -> list[Outcome] | None:
    """One outcome a manager; None when there are runs left to do."""
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = []
    done = 0
    for name in (*MANAGERS, "headway"):
        kept = folder / f"{name.replace(' ', '-')}-{seconds}s.json"
        if not (resume and kept.exists()):
            if done == most_runs:
                return None
            print(f"lab: {name}", flush=True)
            kept.write_bytes(msgspec.json.encode(_run_in_the_lab(name, warm_up_s, seconds)))
            done += 1
        outcomes.append(msgspec.json.decode(kept.read_bytes(), type=Outcome))
    return outcomes


def _run_in_the_lab(name: str, warm_up_s: int, seconds: int) -> Outcome:
    function = "paced" if name == "headway" else "managed"
    argument = {"manager": name, "warm_up_s": warm_up_s, "seconds": seconds}
    result = run(f"experiments.diligenti2004.lab_runs:{function}", make_links(), argument)
    return msgspec.convert(result, Outcome)


def live_in_the_lab(
    warm_up_s: int, seconds: int, folder: Path, *, resume: bool
) -> tuple[list[LiveOutcome], LiveOutcome]:
    """Crawls with the admission to depths 6 and 2 and without it; and one under 100 kbit/s."""
    outcomes = []
    for depth, bound in (
        (6, BOUND_BYTES_PER_S),
        (2, BOUND_BYTES_PER_S),
        (None, BOUND_BYTES_PER_S),
        (6, SLOW_BOUND_BYTES_PER_S),
    ):
        kept = folder / f"live-{depth}-{bound:.0f}-{seconds}s.json"
        if not (resume and kept.exists()):
            print(f"live: admission_depth {depth}, {bound / 1000:g} KB/s", flush=True)
            # A download takes seconds under 100 kbit/s, and a site may wait for half a minute.
            longer = seconds if bound == BOUND_BYTES_PER_S else max(seconds, 70)
            kept.write_bytes(msgspec.json.encode(live_crawls.in_the_lab(depth, bound, warm_up_s, longer)))
        outcomes.append(msgspec.json.decode(kept.read_bytes(), type=LiveOutcome))
    return outcomes[:3], outcomes[3]


_HEAD = """# diligenti2004
*Diligenti, Maggini, Pucci, Scarselli: Design of a crawler with bounded bandwidth (2004)*, rerun in the lab
and in the simulation, with headway's own admission and its pacer beside it.
`make reproduce PAPER=diligenti2004` does it again (sixteen minutes); `ARGS=--keep` writes this page.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.diligenti2004", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/diligenti2004"))
    parser.add_argument("--short", action="store_true", help="12 s a run instead of 100 s")
    parser.add_argument("--no-lab", action="store_true", help="only the simulation")
    parser.add_argument("--resume", action="store_true", help="keep the runs in the lab of an earlier call")
    parser.add_argument("--most-runs", type=int, help="end after so many runs in the lab")
    parser.add_argument("--keep", action="store_true", help="write verdicts and figures into this folder")
    options = parser.parse_args()
    # Forty seconds are drawn, as in the paper; means over so few would be a matter of luck.
    warm_up_s, seconds = (6, 12) if options.short else (20, 100)
    options.out.mkdir(parents=True, exist_ok=True)
    conditions = (
        f"L = 140 KB/s, k = 0.3, sigma = 120 min, one-second samples over {seconds} s after {warm_up_s} s of "
        f"learning; {SERVERS} servers of 10 to 200 KB/s with round trips of 5 to 150 ms; one fixed queue."
    )
    outcomes: list[Outcome] = []
    live: list[LiveOutcome] = []
    slow: LiveOutcome | None = None
    if not options.no_lab:
        reason = why_not()
        if reason is not None:
            conditions += f" The lab was the loopback interface, without round-trip times: {reason}."
        measured = in_the_lab(
            warm_up_s, seconds, options.out / "runs", resume=options.resume, most_runs=options.most_runs
        )
        if measured is None:
            print("There are runs left: call again with --resume.")
            return
        outcomes = measured
        live, slow = live_in_the_lab(warm_up_s, seconds, options.out / "runs", resume=options.resume)
        naive = next(outcome for outcome in measured if outcome.manager == "naive")
        draw_live(*live, naive, options.out)
    outcomes = [*in_the_simulation(warm_up_s, seconds), *outcomes]
    for where in dict.fromkeys(outcome.where for outcome in outcomes):
        draw({outcome.manager: outcome for outcome in outcomes if outcome.where == where}, where, options.out)
    write_samples(outcomes, options.out / "samples.csv")
    text = report(outcomes, conditions, live, slow)
    (options.out / "VERDICTS.md").write_text(text)
    print(text)
    if options.keep:
        here = Path(__file__).parent
        for figure in options.out.glob("figures-*.png"):
            shutil.copy(figure, here / figure.name)
        (here / "README.md").write_text(text.replace("# Verdicts: diligenti2004\n", _HEAD, 1))


if __name__ == "__main__":
    main()
