"""The paper's claims, one by one, against what the lab and the simulation measured."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, pstdev

import msgspec
from experiments.diligenti2004.live import LiveOutcome
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


def live_claims(deep: LiveOutcome, shallow: LiveOutcome, alone: LiveOutcome) -> Iterator[Claim]:
    """Of headway's own admission, under the bound of the paper."""
    bound = deep.bound_bytes_per_s
    apart = fmean(deep.predicted) / fmean(deep.measured) - 1
    yield Claim(
        "Fig. 1: CB predicts the measured bandwidth (means within 20%)",
        f"{_kb(fmean(deep.predicted))} predicted, {_kb(fmean(deep.measured))} measured, {apart:+.0%} apart",
        abs(apart) <= 0.2,
    )
    over = sum(each > bound * 1.001 for each in deep.predicted)
    yield Claim(
        "Fig. 1: CB is below L (but for a starved server, alone)",
        f"highest {_kb(max(deep.predicted))}, {over} of {len(deep.predicted)} s above",
        over <= 0.1 * len(deep.predicted),
    )
    highest = max(deep.measured) / bound - 1
    yield Claim(
        "Fig. 1: the measured bandwidth stays below L, but for the 5% that the pacer allows",
        f"highest second {highest:+.1%}",
        highest <= 0.05,
    )
    use, other, paced = deep.use(), shallow.use(), alone.use()
    yield Claim(
        "Fig. 2: maxd 6 uses at least as much of the link as maxd 2",
        f"{use:.3f} against {other:.3f}; downloads at once {fmean(deep.in_progress):.1f} and "
        f"{fmean(shallow.in_progress):.1f}",
        use >= 0.99 * other,
    )
    yield Claim(
        "Fig. 3: no oscillation (standard deviation below 5% of L)",
        f"{_kb(pstdev(deep.measured))}; the pacer alone {_kb(pstdev(alone.measured))}",
        pstdev(deep.measured) < 0.05 * bound,
    )
    yield Claim(
        "use of the link is at least 0.95 of that of the pacer alone",
        f"{use:.3f} against {paced:.3f}: {use / paced:.3f}",
        use >= 0.95 * paced,
    )


def starvation_claim(slow: LiveOutcome) -> Claim:
    return Claim(
        "at 100 kbit/s, with eight servers that are each faster, no server starves",
        f"pages by server {slow.pages}, longest wait for an answer {max(slow.longest_wait_s):.0f} s, "
        f"use {slow.use():.3f}",
        min(slow.pages) > 0 and slow.use() >= 0.9,
    )


def report(
    outcomes: list[Outcome],
    conditions: str,
    live: list[LiveOutcome] | None = None,
    slow: LiveOutcome | None = None,
) -> str:
    lines = ["# Verdicts: diligenti2004", "", conditions, ""]
    if live:
        lines += ["## headway's own admission, live in the lab", "", "![figures](figures-live.png)", ""]
        lines += ["| claim | found | verdict |", "|---|---|---|"]
        found = [*live_claims(*live), *([] if slow is None else [starvation_claim(slow)])]
        lines += [_row(claim) for claim in found]
        lines.append("")
    for where in dict.fromkeys(outcome.where for outcome in outcomes):
        runs = {outcome.manager: outcome for outcome in outcomes if outcome.where == where}
        lines += [f"## In the {where}", "", f"![figures](figures-{where}.png)", ""]
        lines += ["| claim | found | verdict |", "|---|---|---|"]
        lines += [_row(claim) for claim in claims(runs)]
        lines.append("")
    return "\n".join(lines)


def _row(claim: Claim) -> str:
    return f"| {claim.text} | {claim.found} | {'holds' if claim.holds else '**does not hold**'} |"


def _count_above(samples: list[float]) -> int:
    return sum(sample > BOUND_BYTES_PER_S for sample in samples)


def _above(samples: list[float]) -> str:
    return f"{_count_above(samples)} of {len(samples)} s"


def _swing(outcome: Outcome) -> str:
    return _kb(pstdev(outcome.measured))


def _kb(rate: float) -> str:
    return f"{rate / 1000:.1f} KB/s"
