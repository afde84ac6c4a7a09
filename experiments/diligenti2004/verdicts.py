"""The paper's claims, one by one, against what the lab and the simulation measured."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, pstdev

import msgspec
from experiments.diligenti2004.outcome import Outcome
from experiments.diligenti2004.queue import BOUND_BYTES_PER_S


class Claim(msgspec.Struct, frozen=True):
    text: str
    found: str
    holds: bool


def claims(runs: dict[str, Outcome]) -> Iterator[Claim]:
    deep, shallow, naive, ours = (runs[name] for name in ("maxd 6", "maxd 2", "naive", "headway"))
    apart = abs(fmean(deep.predicted) / fmean(deep.measured) - 1)
    yield Claim(
        "Fig. 1: the predicted bandwidth is close to the measured (means within 20%)",
        f"{_kb(fmean(deep.predicted))} predicted, {_kb(fmean(deep.measured))} measured, {apart:.0%} apart",
        apart <= 0.2,
    )
    alone = max(deep.predicted)
    yield Claim(
        "Fig. 1: the predicted bandwidth is always below L (but for a starved server, alone)",
        f"highest {_kb(alone)}, {_above(deep.predicted)} above",
        _count_above(deep.predicted) <= len(deep.predicted) * 0.1,
    )
    yield Claim(
        "Fig. 1: the measured bandwidth stays below L, too",
        f"highest {_kb(max(deep.measured))}, {_above(deep.measured)} above",
        max(deep.measured) <= BOUND_BYTES_PER_S,
    )
    gain = fmean(deep.measured) / fmean(shallow.measured) - 1
    yield Claim(
        "Fig. 2: maxd 6 uses more of the link than maxd 2 (paper: 71,788 against 64,562, +11%)",
        f"{_kb(fmean(deep.measured))} against {_kb(fmean(shallow.measured))}, {gain:+.0%}",
        gain > 0,
    )
    yield Claim(
        "Fig. 2: with the larger maxd more pages overtake better ones",
        f"a page overtakes {deep.overtaken():.1f} better ones on average, against {shallow.overtaken():.1f}",
        deep.overtaken() > shallow.overtaken(),
    )
    share = fmean(deep.measured) / BOUND_BYTES_PER_S
    yield Claim(
        "The paper's way leaves much of the link idle (paper: 49%)", f"{1 - share:.0%} idle", share < 0.9
    )
    yield Claim(
        "Fig. 3: the naive controller is less accurate: it goes above L more often",
        f"{_above(naive.measured)}, highest {_kb(max(naive.measured))}; maxd 6: {_above(deep.measured)}",
        _count_above(naive.measured) > _count_above(deep.measured),
    )
    yield Claim(
        "Fig. 3: and it oscillates considerably (standard deviation above 20% of L)",
        f"{_swing(naive)}; maxd 6: {_swing(deep)}; headway: {_swing(ours)}",
        pstdev(naive.measured) > 0.2 * BOUND_BYTES_PER_S,
    )
    if ours.where == "simulation":
        return  # the simulated pacer is ideal, so that it would prove nothing of ours
    use, over = fmean(ours.measured) / BOUND_BYTES_PER_S, max(ours.measured) / BOUND_BYTES_PER_S - 1
    yield Claim(
        "headway: the pacer uses at least 97% of L and no second is more than 5% over it",
        f"use {use:.3f}, highest second {over:+.1%}",
        use >= 0.97 and over <= 0.05,
    )


def report(outcomes: list[Outcome], conditions: str) -> str:
    lines = ["# Verdicts: diligenti2004", "", conditions, ""]
    for where in dict.fromkeys(outcome.where for outcome in outcomes):
        runs = {outcome.manager: outcome for outcome in outcomes if outcome.where == where}
        lines += [f"## In the {where}", "", f"![figures](figures-{where}.png)", ""]
        lines += ["| claim | found | verdict |", "|---|---|---|"]
        lines += [
            f"| {c.text} | {c.found} | {'holds' if c.holds else '**does not hold**'} |" for c in claims(runs)
        ]
        lines.append("")
    return "\n".join(lines)


def _count_above(samples: list[float]) -> int:
    return sum(sample > BOUND_BYTES_PER_S for sample in samples)


def _above(samples: list[float]) -> str:
    return f"{_count_above(samples)} of {len(samples)} s"


def _swing(outcome: Outcome) -> str:
    return _kb(pstdev(outcome.measured))


def _kb(rate: float) -> str:
    return f"{rate / 1000:.1f} KB/s"
