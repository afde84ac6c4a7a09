"""The crawler's link as a fluid, shared by the transfers in progress; loops compiled by numba if it is
installed."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])

HAS_COMPILER = importlib.util.find_spec("numba") is not None


def compiled(function: F) -> F:
    """Compile a function. It must not create arrays: its arguments are not reference-counted, since with
    dozens of them in a call the counting would cost more than the work."""
    return _compiled(function, _nrt=False)


def compiled_making_arrays(function: F) -> F:
    return _compiled(function)


def _compiled(function: F, **options: bool) -> F:
    if not HAS_COMPILER:
        return function
    numba = importlib.import_module("numba")
    try:
        # Compiled code is cached beside the module, if that folder is writable.
        quick: F = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        quick = numba.njit(**options)(function)
    return quick


# The crawler's link as a fluid, shared by the transfers in progress, none faster than its server.
#
# Each transfer waits for its latency, then receives. The link's capacity is shared max-min fairly by weight:
# a transfer that cannot use a fair share gets what it can use, and the rest is shared among the others. A
# transfer's end is computed again only when its rate changes. The functions work on arrays, so that the plain
# simulation and the compiled one (`sim.accelerator`) use the same arithmetic, bit by bit.

IDLE, LATENT, RECEIVING = 0, 1, 2


class Slots(NamedTuple):
    """A slot for each possible connection."""

    at: NDArray[np.float64]
    """When the slot's latency or transfer ends, at the present rates."""
    stage: NDArray[np.int8]
    left_bytes: NDArray[np.float64]
    since: NDArray[np.float64]
    rate: NDArray[np.float64]
    cap: NDArray[np.float64]
    weight: NDArray[np.float64]
    receiving: NDArray[np.int32]
    """The receiving slots, by cap / weight: slots that a small share satisfies come first."""
    coming: NDArray[np.int32]
    """A heap of the slots in use, by `at`."""
    place: NDArray[np.int32]
    """The position of a slot in that heap."""
    free: NDArray[np.int32]
    finished: NDArray[np.int32]
    counts: NDArray[np.int64]
    """How many slots receive, are free, are in use; and 1 while the link is saturated."""
    wanted: NDArray[np.float64]
    """One cell: the sum of the caps of the receiving slots."""


def new_slots(count: int) -> Slots:
    floats = [np.zeros(count) for _ in range(6)]
    at, left_bytes, since, rate, cap, weight = floats
    numbers = [np.zeros(count, dtype=np.int32) for _ in range(5)]
    receiving, coming, place, free, finished = numbers
    free[:] = np.arange(count - 1, -1, -1)
    stage = np.zeros(count, dtype=np.int8)
    counts = np.array([0, count, 0, 0], dtype=np.int64)
    wanted = np.zeros(1)
    return Slots(
        at,
        stage,
        left_bytes,
        since,
        rate,
        cap,
        weight,
        receiving,
        coming,
        place,
        free,
        finished,
        counts,
        wanted,
    )


@compiled
def begin_transfer(  # noqa: PLR0917  compiled functions take positional arguments
    slots: Slots, now: float, latency_s: float, size_bytes: float, cap: float, weight: float
) -> int:
    """Take a free slot; the caller has checked that there is one."""
    slots.counts[1] -= 1
    slot = int(slots.free[slots.counts[1]])
    slots.stage[slot] = LATENT
    slots.left_bytes[slot] = size_bytes
    slots.since[slot] = now
    slots.rate[slot] = 0.0
    slots.cap[slot] = cap
    slots.weight[slot] = weight
    slots.at[slot] = now + latency_s
    place = slots.counts[2]
    slots.counts[2] += 1
    slots.coming[place] = slot
    slots.place[slot] = place
    _move(slots, slot)
    return slot


@compiled
def next_change_at(slots: Slots) -> float:
    return float(slots.at[slots.coming[0]]) if slots.counts[2] > 0 else math.inf


@compiled
def advance(slots: Slots, now: float, capacity: float) -> int:
    """Process everything that is due; returns how many transfers ended (their slots in `finished`)."""
    ended = 0
    is_unshared = False
    while slots.counts[2] > 0:
        slot = int(slots.coming[0])
        if slots.at[slot] > now:
            break
        if slots.stage[slot] == RECEIVING:
            _leave_line(slots, slot)
            _leave_heap(slots, slot)
            slots.stage[slot] = IDLE
            slots.free[slots.counts[1]] = slot
            slots.counts[1] += 1
            slots.finished[ended] = slot
            ended += 1
        else:
            slots.stage[slot] = RECEIVING
            slots.since[slot] = now
            _join_line(slots, slot)
            # Until the share is known.
            slots.at[slot] = math.inf
            _move(slots, slot)
            if slots.counts[3] == 0 and slots.wanted[0] <= capacity:
                # No other transfer changes while the link has enough for all.
                _set_rate(slots, slot, now, slots.cap[slot])
            else:
                is_unshared = True
    if is_unshared or (ended > 0 and slots.counts[3] == 1):
        share_link(slots, now, capacity)
    return ended


@compiled
def drop_transfer(slots: Slots, slot: int) -> None:
    """End a transfer before its time; `share_link` has to follow."""
    if slots.stage[slot] == RECEIVING:
        _leave_line(slots, slot)
    _leave_heap(slots, slot)
    slots.stage[slot] = IDLE
    slots.free[slots.counts[1]] = slot
    slots.counts[1] += 1


@compiled
def share_link(slots: Slots, now: float, capacity: float) -> None:
    """Give every transfer its max-min fair rate from now on."""
    count = slots.counts[0]
    slots.counts[3] = 1 if slots.wanted[0] > capacity else 0
    weight_left = 0.0
    for place in range(count):
        weight_left += slots.weight[slots.receiving[place]]
    used = 0.0
    level = 0.0
    is_scarce = False
    for place in range(count):
        slot = int(slots.receiving[place])
        if slots.counts[3] == 1 and not is_scarce:
            # The remainder may be rounded below the weight of the last slot.
            level = max(0.0, capacity - used) / max(weight_left, slots.weight[slot])
            is_scarce = slots.cap[slot] > level * slots.weight[slot]
        if is_scarce:
            _set_rate(slots, slot, now, level * slots.weight[slot])
        else:
            _set_rate(slots, slot, now, slots.cap[slot])
            used += slots.cap[slot]
            weight_left -= slots.weight[slot]


@compiled
def set_weight(slots: Slots, slot: int, weight: float) -> None:
    """Change a weight; `share_link` has to follow."""
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
    _move(slots, slot)


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
    slots.wanted[0] += slots.cap[slot]


@compiled
def _leave_line(slots: Slots, slot: int) -> None:
    place = 0
    while slots.receiving[place] != slot:
        place += 1
    slots.counts[0] -= 1
    for later in range(place, slots.counts[0]):
        slots.receiving[later] = slots.receiving[later + 1]
    # An empty link discards accumulated rounding errors.
    slots.wanted[0] = slots.wanted[0] - slots.cap[slot] if slots.counts[0] > 0 else 0.0


@compiled
def _comes_before(slots: Slots, one: int, other: int) -> bool:
    if slots.at[one] != slots.at[other]:
        return bool(slots.at[one] < slots.at[other])
    return one < other


@compiled
def _move(slots: Slots, slot: int) -> None:
    """Move a slot to its place in the heap after its instant has changed."""
    coming, place = slots.coming, int(slots.place[slot])
    begun = place
    while place > 0:
        other = int(coming[(place - 1) >> 1])
        if not _comes_before(slots, slot, other):
            break
        coming[place] = other
        slots.place[other] = place
        place = (place - 1) >> 1
    if place == begun:
        count = slots.counts[2]
        while 2 * place + 1 < count:
            below = 2 * place + 1
            other = int(coming[below])
            if below + 1 < count and _comes_before(slots, int(coming[below + 1]), other):
                below += 1
                other = int(coming[below])
            if not _comes_before(slots, other, slot):
                break
            coming[place] = other
            slots.place[other] = place
            place = below
    coming[place] = slot
    slots.place[slot] = place


@compiled
def _leave_heap(slots: Slots, slot: int) -> None:
    place = slots.place[slot]
    slots.counts[2] -= 1
    last = int(slots.coming[slots.counts[2]])
    if last != slot:
        slots.coming[place] = last
        slots.place[last] = place
        _move(slots, last)
