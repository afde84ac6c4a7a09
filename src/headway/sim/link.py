"""The crawler's link as a fluid, shared by the transfers in progress; loops compiled by numba if it is
installed."""

from __future__ import annotations

import heapq
import importlib
import importlib.util
import math
from collections.abc import Callable, Iterable
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


# The same link for a crawl with rates by site: the weight of a transfer is the rate of its site, and all
# transfers of sites without a rate weigh the same, which changes with every request.
#
# A transfer receives either as fast as its server sends (it is capped), or its weight times the level of the
# link (it shares). The work done for one unit of weight since a common beginning is the virtual time of the
# transfers that share: each ends at a fixed virtual time, whatever happens to the level. So a change touches
# only the transfers that begin or cease to be capped by it, and costs O(log n) for each.

_NO_CLAIM_SHARE = 0.01
"""Sites without a rate of their own share what the rates leave of the link, but at least this part of it, as
in `pacing.grants`."""
_MOST_CLAIMED = 1e15


class _Flow:
    __slots__ = (
        "at",
        "cap",
        "claim",
        "kind",
        "left_bytes",
        "number",
        "ratio",
        "serial",
        "since",
        "stage",
        "wish",
    )

    def __init__(self, number: int, wish: float, size_bytes: float, cap: float, at: float) -> None:
        self.number = number
        self.wish = wish
        """The rate of its site; 0 without one."""
        self.claim = 0.0
        """The part of the wish that the link can carry at all."""
        self.left_bytes = size_bytes
        """At `since` if it is capped, and at the beginning of virtual time if it shares."""
        self.cap = cap
        self.at = at
        """When its latency ends; or when it ends: in virtual time if it shares."""
        self.since = 0.0
        self.stage = LATENT
        self.kind = 0
        self.ratio = 0.0
        """The level from which on it is capped, in the units of its kind."""
        self.serial = 0
        """Entries in heaps with another serial number are void."""


_Entry = tuple[float, int, int]
_CLAIMED, _COMMON = 0, 1
SHARING = 3
"""A stage, besides RECEIVING, which here means: as fast as the server sends."""


class _FlowHeap:
    """Flows by a number; entries of flows that have changed since are passed over."""

    def __init__(self, flows: dict[int, _Flow]) -> None:
        self._flows = flows
        self._entries: list[_Entry] = []

    def put(self, key: float, flow: _Flow) -> None:
        heapq.heappush(self._entries, (key, flow.number, flow.serial))
        if len(self._entries) > 2 * len(self._flows) + 64:
            self._entries = [entry for entry in self._entries if self._flow(entry) is not None]
            heapq.heapify(self._entries)

    def _flow(self, entry: _Entry) -> _Flow | None:
        flow = self._flows.get(entry[1])
        return flow if flow is not None and flow.serial == entry[2] else None

    def first(self) -> _Flow | None:
        while self._entries:
            flow = self._flow(self._entries[0])
            if flow is not None:
                return flow
            heapq.heappop(self._entries)
        return None


class _Kind:
    """The transfers that receive with claims of their own, or those without."""

    def __init__(self, flows: dict[int, _Flow]) -> None:
        self.virtual = 0.0
        self.speed = 0.0
        """Of virtual time."""
        self.due_at = math.inf
        """When the first of the sharing transfers ends."""
        self.weight = 0.0
        """Of those that share; without claims, their number."""
        self.count = 0
        self.ends = _FlowHeap(flows)
        self.lowest_sharing = _FlowHeap(flows)
        self.highest_capped = _FlowHeap(flows)


class ClaimedLink:
    """Transfers on a link of which each has the rate of its site, if it has one, as a claim."""

    def __init__(self, now: float, capacity: float) -> None:
        self.touched = 0
        """How many times a transfer was given another place; for tests of what a change costs."""
        self._now = now
        self._capacity = capacity
        self._flows: dict[int, _Flow] = {}
        self._serial = 0
        self._number = 0
        self._claimed = 0.0
        self._without = 0
        self._capped_bytes_per_s = 0.0
        self._level = math.inf
        self._common = 1.0
        self._coming = _FlowHeap(self._flows)
        """Latencies and transfers at the speed of their servers, by when they end."""
        self._kinds = (_Kind(self._flows), _Kind(self._flows))
        self._since_renewal = 0

    @property
    def rate_bytes_per_s(self) -> float:
        claimed, common = self._kinds
        return self._capped_bytes_per_s + claimed.speed * claimed.weight + common.speed * common.count

    def next_at(self) -> float:
        first = self._coming.first()
        at = math.inf if first is None else first.at
        return min(at, self._kinds[_CLAIMED].due_at, self._kinds[_COMMON].due_at)

    def rate_of(self, number: int) -> float:
        flow = self._flows[number]
        if flow.stage == RECEIVING:
            return flow.cap
        return self._kinds[flow.kind].speed * self._weight(flow) if flow.stage == SHARING else 0.0

    def begin(self, now: float, latency_s: float, size_bytes: float, cap: float, wish: float) -> int:
        """Ask for a transfer; returns its number."""
        self._number += 1
        flow = self._flows[self._number] = _Flow(self._number, wish, size_bytes, cap, now + latency_s)
        self._go_to(now)
        self._claim(flow)
        self._coming.put(flow.at, flow)
        self._find_level()
        return flow.number

    def adopt(self, slots: Slots, slot: int, wish: float) -> int:
        """Go on with a transfer that the slots of an unclaimed link have begun."""
        now, left = self._now, float(slots.left_bytes[slot])
        if slots.stage[slot] != RECEIVING:
            return self.begin(now, float(slots.at[slot]) - now, left, float(slots.cap[slot]), wish)
        left -= float(slots.rate[slot]) * (now - float(slots.since[slot]))
        return self.begin(now, 0.0, max(0.0, left), float(slots.cap[slot]), wish)

    def drop(self, now: float, numbers: Iterable[int]) -> None:
        """End transfers before their time."""
        self._go_to(now)
        for number in numbers:
            self._end(self._flows[number])
        self._find_level()

    def set_capacity(self, now: float, capacity: float) -> None:
        self._go_to(now)
        before, self._capacity = self._capacity, capacity
        for flow in self._flows.values():
            if min(before, capacity) < flow.wish:
                self._claim_again(flow, flow.wish)
        self._find_level()

    def set_wishes(self, now: float, wishes: Iterable[tuple[int, float]]) -> None:
        """Change the rates of the sites of these transfers."""
        self._go_to(now)
        for number, wish in wishes:
            flow = self._flows[number]
            if wish != flow.wish:
                self._claim_again(flow, wish)
        self._find_level()

    def advance(self, now: float) -> list[int]:
        """Process everything that is due; returns the transfers that have ended."""
        due = [kind for kind in self._kinds if kind.due_at <= now]
        self._go_to(now)
        ended = []
        for kind in due:
            flow = kind.ends.first()
            if flow is not None:
                # Rounding may leave a little of it.
                kind.virtual = max(kind.virtual, flow.at)
            while flow is not None and flow.at <= kind.virtual:
                ended.append(flow.number)
                self._end(flow)
                flow = kind.ends.first()
        while (flow := self._coming.first()) is not None and flow.at <= now:
            if flow.stage == LATENT and flow.left_bytes > 0.0:
                self._enter(flow)
            else:
                ended.append(flow.number)
                self._end(flow)
        self._find_level()
        return ended

    # -- transfers change places ------------------------------------------------------------------------

    def _go_to(self, now: float) -> None:
        for kind in self._kinds:
            if kind.count == 0:
                kind.virtual = 0.0
            else:
                kind.virtual += kind.speed * (now - self._now)
        self._now = now

    def _claim(self, flow: _Flow) -> None:
        flow.claim = min(flow.wish, self._capacity, _MOST_CLAIMED)
        flow.kind = _CLAIMED if flow.claim else _COMMON
        flow.ratio = flow.cap / self._weight(flow)
        self._claimed += flow.claim
        self._without += not flow.claim

    def _claim_no_more(self, flow: _Flow) -> None:
        self._claimed -= flow.claim
        self._without -= not flow.claim

    def _claim_again(self, flow: _Flow, wish: float) -> None:
        is_receiving = flow.stage != LATENT
        if is_receiving:
            self._take_out(flow)
        self._claim_no_more(flow)
        flow.wish = wish
        self._claim(flow)
        if is_receiving:
            self._enter(flow)

    @staticmethod
    def _weight(flow: _Flow) -> float:
        return flow.claim or 1.0

    def _end(self, flow: _Flow) -> None:
        if flow.stage != LATENT:
            self._take_out(flow)
        self._claim_no_more(flow)
        del self._flows[flow.number]

    def _level_of(self, kind: int) -> float:
        return self._level if kind == _CLAIMED else self._level * self._common

    def _enter(self, flow: _Flow) -> None:
        """Begin to receive, as it seems at the present level."""
        if flow.ratio > self._level_of(flow.kind):
            self._share(flow)
        else:
            self._cap(flow)

    def _cap(self, flow: _Flow) -> None:
        self._renumber(flow)
        flow.stage, flow.since = RECEIVING, self._now
        flow.at = self._now + flow.left_bytes / flow.cap if flow.cap > 0.0 else math.inf
        self._capped_bytes_per_s += flow.cap
        self._coming.put(flow.at, flow)
        self._kinds[flow.kind].highest_capped.put(-flow.ratio, flow)

    def _share(self, flow: _Flow) -> None:
        self._renumber(flow)
        kind, weight = self._kinds[flow.kind], self._weight(flow)
        flow.stage, flow.at = SHARING, kind.virtual + flow.left_bytes / weight
        kind.weight += weight
        kind.count += 1
        kind.ends.put(flow.at, flow)
        kind.lowest_sharing.put(flow.ratio, flow)

    def _take_out(self, flow: _Flow) -> None:
        """Remove a transfer that receives from its place; what it has received until now counts."""
        kind = self._kinds[flow.kind]
        if flow.stage == RECEIVING:
            received = flow.cap * (self._now - flow.since)
            flow.left_bytes = max(0.0, flow.left_bytes - received)
            self._capped_bytes_per_s -= flow.cap
        else:
            weight = self._weight(flow)
            flow.left_bytes = max(0.0, (flow.at - kind.virtual) * weight)
            kind.count -= 1
            kind.weight = kind.weight - weight if kind.count else 0.0
        self._renumber(flow)

    def _renumber(self, flow: _Flow) -> None:
        self._serial += 1
        self.touched += 1
        self._since_renewal += 1
        flow.serial = self._serial

    # -- the level --------------------------------------------------------------------------------------

    def _find_level(self) -> None:
        """Fill the link: the level only rises from here, so each transfer changes its place once at most in
        each of the two loops."""
        if self._since_renewal > 4 * len(self._flows) + 64:
            self._renew()
        self._common = self._weigh_common()
        self._measure_level()
        while (flow := self._highest_capped()) is not None:
            self._take_out(flow)
            self._share(flow)
            self._measure_level()
        while (flow := self._lowest_sharing()) is not None:
            self._take_out(flow)
            self._cap(flow)
            self._measure_level()
        for number, kind in enumerate(self._kinds):
            kind.speed = max(0.0, self._level_of(number)) if kind.count else 0.0
            first = kind.ends.first() if kind.speed > 0.0 else None
            kind.due_at = math.inf
            if first is not None:
                kind.due_at = self._now + max(0.0, first.at - kind.virtual) / kind.speed

    def _weigh_common(self) -> float:
        capacity = self._capacity
        basis = capacity if 0 < capacity < math.inf else max(1.0, self._claimed)
        left = max(basis - self._claimed, _NO_CLAIM_SHARE * max(basis, self._claimed))
        return left / max(1, self._without)

    def _measure_level(self) -> None:
        claimed, common = self._kinds
        room = self._capacity - self._capped_bytes_per_s
        if claimed.count or common.count:
            self._level = room / (claimed.weight + self._common * common.count)
        else:
            self._level = math.inf if room >= 0.0 else -math.inf

    def _highest_capped(self) -> _Flow | None:
        """The transfer that the level slows down most, of those at the speed of their servers."""
        if self._level == math.inf:
            return None
        claimed, common = (kind.highest_capped.first() for kind in self._kinds)
        if claimed is not None and (common is None or claimed.ratio >= common.ratio / self._common):
            return claimed if claimed.ratio > self._level else None
        return common if common is not None and common.ratio > self._level * self._common else None

    def _lowest_sharing(self) -> _Flow | None:
        """A transfer that could receive more at this level than its server sends."""
        for number, kind in enumerate(self._kinds):
            flow = kind.lowest_sharing.first() if kind.count else None
            if flow is not None and flow.ratio <= self._level_of(number):
                return flow
        return None

    def _renew(self) -> None:
        """Clear the sums of rounding errors, and begin virtual time again. Once in as many changes as there
        are transfers."""
        receiving = [flow for flow in self._flows.values() if flow.stage != LATENT]
        for flow in receiving:
            self._take_out(flow)
        self._claimed = math.fsum(flow.claim for flow in self._flows.values())
        self._capped_bytes_per_s = 0.0
        for kind in self._kinds:
            kind.virtual = 0.0
        for flow in receiving:
            self._enter(flow)
        self._since_renewal = 0
