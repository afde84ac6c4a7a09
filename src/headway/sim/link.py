"""The crawler's link as a fluid: shared by the transfers under way, none faster than its server gives.

Each transfer waits for its latency, then receives. The link's capacity is shared max-min fairly by weight:
whoever can take no more than a fair share gets what it can take, and the rest is shared among the others.
A transfer's end is reckoned anew only when its rate changes. The functions work on arrays, so that the
plain simulation and the compiled one (`sim.fast`) reckon with the same arithmetic, bit by bit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.sim.compiled import compiled

IDLE, LATENT, RECEIVING = 0, 1, 2


class Slots(NamedTuple):
    """A slot for each connection that may be under way."""

    at: NDArray[np.float64]
    """When the slot's latency or transfer ends, as things stand."""
    stage: NDArray[np.int8]
    left_bytes: NDArray[np.float64]
    since: NDArray[np.float64]
    rate: NDArray[np.float64]
    cap: NDArray[np.float64]
    weight: NDArray[np.float64]
    receiving: NDArray[np.int32]
    """The slots that receive, by cap / weight: those that a small share satisfies come first."""
    free: NDArray[np.int32]
    finished: NDArray[np.int32]
    counts: NDArray[np.int64]
    """How many slots receive, and how many are free."""


def new_slots(count: int) -> Slots:
    floats = [np.zeros(count) for _ in range(6)]
    floats[0][:] = math.inf
    at, left_bytes, since, rate, cap, weight = floats
    numbers = [np.zeros(count, dtype=np.int32) for _ in range(3)]
    numbers[1][:] = np.arange(count - 1, -1, -1)
    receiving, free, finished = numbers
    stage = np.zeros(count, dtype=np.int8)
    counts = np.array([0, count], dtype=np.int64)
    return Slots(at, stage, left_bytes, since, rate, cap, weight, receiving, free, finished, counts)


@compiled
def begin_transfer(  # noqa: PLR0917  compiled functions take arguments by place
    slots: Slots, now: float, latency_s: float, size_bytes: float, cap: float, weight: float
) -> int:
    """Take a free slot; the caller knows that there is one."""
    slots.counts[1] -= 1
    slot = slots.free[slots.counts[1]]
    slots.at[slot] = now + latency_s
    slots.stage[slot] = LATENT
    slots.left_bytes[slot] = size_bytes
    slots.since[slot] = now
    slots.rate[slot] = 0.0
    slots.cap[slot] = cap
    slots.weight[slot] = weight
    return int(slot)


@compiled
def next_change_at(slots: Slots) -> float:
    earliest = math.inf
    for slot in range(len(slots.at)):
        earliest = min(earliest, slots.at[slot])
    return earliest


@compiled
def advance(slots: Slots, now: float, capacity: float) -> int:
    """Let everything happen that is due; returns how many transfers ended (their slots in `finished`)."""
    ended = 0
    begun = 0
    for slot in range(len(slots.at)):
        if slots.at[slot] <= now:
            if slots.stage[slot] == RECEIVING:
                _leave_line(slots, slot)
                slots.stage[slot] = IDLE
                slots.at[slot] = math.inf
                slots.free[slots.counts[1]] = slot
                slots.counts[1] += 1
                slots.finished[ended] = slot
                ended += 1
            else:
                slots.stage[slot] = RECEIVING
                slots.since[slot] = now
                _join_line(slots, slot)
                # Until the share is known; a transfer of nothing ends at once.
                slots.at[slot] = math.inf
                begun += 1
    if ended or begun:
        share_link(slots, now, capacity)
    return ended


@compiled
def share_link(slots: Slots, now: float, capacity: float) -> None:
    """Give every transfer its max-min fair rate from now on."""
    count = slots.counts[0]
    weight_left = 0.0
    for place in range(count):
        weight_left += slots.weight[slots.receiving[place]]
    used = 0.0
    level = 0.0
    saturated = False
    for place in range(count):
        slot = slots.receiving[place]
        if not saturated:
            # What is left may be rounded below the weight of the one that it is left for.
            level = max(0.0, capacity - used) / max(weight_left, slots.weight[slot])
            saturated = slots.cap[slot] > level * slots.weight[slot]
        if saturated:
            _set_rate(slots, slot, now, level * slots.weight[slot])
        else:
            _set_rate(slots, slot, now, slots.cap[slot])
            used += slots.cap[slot]
            weight_left -= slots.weight[slot]


@compiled
def set_weight(slots: Slots, slot: int, weight: float) -> None:
    """Change a claim; `share_link` has to follow."""
    if slots.stage[slot] == RECEIVING:
        _leave_line(slots, slot)
        slots.weight[slot] = weight
        _join_line(slots, slot)
    else:
        slots.weight[slot] = weight


@compiled
def _set_rate(slots: Slots, slot: int, now: float, rate: float) -> None:
    if rate == slots.rate[slot] and slots.at[slot] < math.inf:
        return
    left = max(0.0, slots.left_bytes[slot] - slots.rate[slot] * (now - slots.since[slot]))
    slots.left_bytes[slot] = left
    slots.since[slot] = now
    slots.rate[slot] = rate
    if left == 0.0:
        slots.at[slot] = now
    elif rate > 0.0:
        slots.at[slot] = now + left / rate
    else:
        slots.at[slot] = math.inf


@compiled
def _join_line(slots: Slots, slot: int) -> None:
    ratio = slots.cap[slot] / slots.weight[slot]
    place = slots.counts[0]
    while place > 0:
        other = slots.receiving[place - 1]
        if slots.cap[other] / slots.weight[other] <= ratio:
            break
        slots.receiving[place] = other
        place -= 1
    slots.receiving[place] = slot
    slots.counts[0] += 1


@compiled
def _leave_line(slots: Slots, slot: int) -> None:
    place = 0
    while slots.receiving[place] != slot:
        place += 1
    slots.counts[0] -= 1
    for later in range(place, slots.counts[0]):
        slots.receiving[later] = slots.receiving[later + 1]
