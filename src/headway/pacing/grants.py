"""Grants bytes to sites so that the link stays under its bound: the pacer without clock or sockets.

One theoretical arrival time (GCRA) spaces all grants at the bound, start-time fair queueing decides whose
turn it is, and `PeakGuard` checks the second in which the bytes will arrive. A site with a rate is guaranteed
it; what it does not use goes to other sites at once. Every method takes `now`, in seconds on any clock that
never goes back.

No second may exceed the bound, neither the last one nor the next. A grant is entered at the time when its
bytes should arrive, a round trip later. `observe` reports what really arrived, so that bursts, late responses
and bytes without a grant count when they arrive.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

SLOT_S = 0.01
_WINDOW_SLOTS = 101  # one more than a second has, since a second rarely begins where a slot does
_AHEAD_SLOTS = 100
_SLOTS = _WINDOW_SLOTS + _AHEAD_SLOTS
_LARGE_PART = 0.1
"""A larger part of a second's bytes may exceed the bound alone; see `PeakGuard.fits`."""
_MAX_LATE_S = 0.3
"""Late bytes count for this part of a second's bytes at most."""
_LATE_FOR_S = 1.0
"""Late bytes are dropped if nothing was observed for this long."""
PACKET_BYTES = 1514
_PART_OF_PIECE = 0.8


def most_in_a_second(bound_bytes_per_s: float, tolerance: float) -> float:
    """The most bytes for any second. One packet is subtracted from the tolerance, since a second measured
    elsewhere may begin or end with one more. On a slow link the tolerance is less than two packets; there a
    second may have one more than the bound, or the link would be idle while there is no room for a whole
    one."""
    return bound_bytes_per_s + max(tolerance * bound_bytes_per_s - PACKET_BYTES, PACKET_BYTES)


class PeakGuard:
    """Two rings of 10 ms slots: bytes that arrived in the last second, and bytes expected in the next."""

    def __init__(self, now: float, bound_bytes_per_s: float, tolerance: float) -> None:
        self._tolerance = tolerance
        self._bound = self._limit = math.inf
        self._arrived = [0.0] * _SLOTS
        self._coming = [0.0] * _SLOTS
        self._arrived_bytes = 0.0
        self._coming_bytes = 0.0
        self._late_bytes = 0.0
        """Expected before now and not observed yet: they may arrive at any time."""
        self._slot = math.floor(now / SLOT_S)
        """The slot of `now`. A slot's place in a ring is its number modulo the ring's length."""
        self._slot_ends_at = (self._slot + 1) * SLOT_S
        self._last = self._slot
        self._observed_in = self._slot
        self.set_bound(bound_bytes_per_s)

    def set_bound(self, bound_bytes_per_s: float) -> None:
        if 0.0 < bound_bytes_per_s < self._bound < math.inf:
            # What arrived under the higher bound must not block the link for a second.
            self._arrived = [arrived * bound_bytes_per_s / self._bound for arrived in self._arrived]
            self._arrived_bytes = sum(self._arrived, 0.0)
        self._bound = bound_bytes_per_s
        self._limit = most_in_a_second(bound_bytes_per_s, self._tolerance)

    def reserve(self, now: float, arrives_at: float, size_bytes: float) -> None:
        """Enter bytes that were granted."""
        self._advance(now)
        self._reserve_in(self._slot_of(arrives_at), size_bytes)

    def reserve_if_quiet(self, now: float, arrives_at: float, size_bytes: float) -> bool:
        """Reserve if all bytes of both rings are below the limit, which is quick to check."""
        if now >= self._slot_ends_at:
            self._advance(now)
        if self._arrived_bytes + self._coming_bytes + self._late_bytes + size_bytes > self._limit:
            return False
        slot = self._slot
        if arrives_at >= self._slot_ends_at:
            slot = self._slot_of(arrives_at)
            self._last = max(self._last, slot)
        self._coming[slot % _SLOTS] += size_bytes
        self._coming_bytes += size_bytes
        return True

    def observe(self, now: float, arrived_bytes: float, outstanding_bytes: float) -> None:
        """Report the bytes that arrived since the last call, and those granted that have not arrived."""
        self._advance(now)
        self._arrived[self._slot % _SLOTS] += arrived_bytes
        self._arrived_bytes += arrived_bytes
        self._observed_in = self._slot
        self._late_bytes = max(0.0, outstanding_bytes - self._coming_bytes)
        early = self._coming_bytes - outstanding_bytes
        slot = self._slot
        while early > 0.0 and slot <= self._last:
            taken = min(early, self._coming[slot % _SLOTS])
            self._coming[slot % _SLOTS] -= taken
            self._coming_bytes -= taken
            early -= taken
            slot += 1

    def fits(self, now: float, arrives_at: float, size_bytes: float) -> bool:
        """Whether the bytes fit into every second that would contain them."""
        if math.isinf(self._limit):
            return True
        self._advance(now)
        late_bytes = min(self._late_bytes, _MAX_LATE_S * self._bound)
        if self._arrived_bytes + self._coming_bytes + late_bytes + size_bytes <= self._limit:
            return True
        # On a slow link a single packet may be a large part of a second's bytes. No second can be filled with
        # such pieces and stay below the bound, so a second may exceed it by a packet, or two if a piece has
        # several; one that is more than a second's bytes needs a second of its own.
        is_large = size_bytes > _LARGE_PART * self._bound
        over = max(PACKET_BYTES, min(_PART_OF_PIECE * size_bytes, 2 * PACKET_BYTES))
        most = self._bound + over if is_large else self._limit
        room = max(0.0, most - size_bytes - late_bytes)
        arrived, coming = self._arrived, self._coming
        slot = self._slot_of(arrives_at)
        second = sum(
            (arrived[index % _SLOTS] for index in range(slot - _WINDOW_SLOTS + 1, self._slot + 1)), 0.0
        )
        second += sum((coming[index % _SLOTS] for index in range(self._slot, slot + 1)), 0.0)
        while second <= room:
            if slot >= self._last:
                return True
            slot += 1
            second += coming[slot % _SLOTS] - arrived[(slot - _WINDOW_SLOTS) % _SLOTS]
        return False

    def _reserve_in(self, slot: int, size_bytes: float) -> None:
        self._coming[slot % _SLOTS] += size_bytes
        self._coming_bytes += size_bytes
        self._last = max(self._last, slot)

    def _slot_of(self, arrives_at: float) -> int:
        slot = math.floor(arrives_at / SLOT_S)
        return min(max(slot, self._slot), self._slot + _AHEAD_SLOTS)

    def _advance(self, now: float) -> None:
        """Move to the slot of `now`. Bytes expected before it are late until observed; after a gap longer
        than the rings all slots are empty."""
        slot = math.floor(now / SLOT_S)
        steps = slot - self._slot
        if steps <= 0:
            return
        if steps >= _SLOTS:
            self._late_bytes += self._coming_bytes
            self._arrived, self._coming = [0.0] * _SLOTS, [0.0] * _SLOTS
        else:
            for passed in range(self._slot, slot):
                self._late_bytes += self._coming[passed % _SLOTS]
                self._coming[passed % _SLOTS] = 0.0
                self._arrived[(passed - _WINDOW_SLOTS + 1) % _SLOTS] = 0.0
        self._arrived_bytes = sum(self._arrived, 0.0)
        self._coming_bytes = sum(self._coming, 0.0)
        self._slot = slot
        self._slot_ends_at = (slot + 1) * SLOT_S
        self._last = max(self._last, slot)
        if slot - self._observed_in > _LATE_FOR_S / SLOT_S:
            self._late_bytes = 0.0


Key = TypeVar("Key", bound=Hashable)


class GrantRequest(Generic[Key]):
    """A request that `cost_bytes` may arrive."""

    __slots__ = (
        "asked_at",
        "cost_bytes",
        "expected_bytes",
        "granted",
        "key",
        "latency_s",
        "min_latency_s",
        "withdrawn",
    )

    def __init__(self, asked_at: float, key: Key, cost_bytes: float, latency_s: float) -> None:
        self.asked_at = asked_at
        self.key = key
        self.cost_bytes = cost_bytes
        self.latency_s = self.min_latency_s = latency_s
        """Seconds from the grant to the arrival of its bytes: as expected, and at least."""
        self.expected_bytes = cost_bytes
        """Bytes that the grant makes arrive: with bytes granted before, or none yet. May change until
        then."""
        self.granted = False
        self.withdrawn = False


class Flow:
    """A site's state in the fair queue. `guaranteed` is its guaranteed rate in bytes/s, or 0."""

    __slots__ = ("active", "finish_tag", "guaranteed", "last_cost_bytes")

    def __init__(self, guaranteed: float, finish_tag: float) -> None:
        self.guaranteed = guaranteed
        self.finish_tag = finish_tag
        self.last_cost_bytes = 0.0
        self.active = False


_SMALL_LINK_BYTES_PER_S = 2_000_000
_MIN_COMMON_SHARE = 0.01
"""The part of the link for sites without a guaranteed rate, even if the guaranteed rates need all of it."""
_MAX_CREDIT_S = 0.3
_CREDIT_PACKETS = 4
"""The least of it: on a slow link the guard defers a grant for longer, since a few packets are a second."""
_MAX_PACED_CREDIT_S = 0.0
"""The same for a crawl that yields: bytes that are made up for are a queue for the other users, and its rate
grows anyway as long as there is none."""
_CREDIT_LASTS_S = 1.0
_CATCH_UP_FACTOR = 1.5
"""Lost time is made up for at this multiple of the rate. At once, it would be the next burst."""
_SLOW_LINK_BYTES_PER_S = 100 * PACKET_BYTES
_SLOW_CATCH_UP_FACTOR = 3.0
"""There the guard defers grants often, since a packet is much of a second; it prevents a burst, too."""
_PACED_CATCH_UP_S = 0.004
_FEW_SITES_CATCH_UP_S = 0.25
_MANY_SITES = 12.0
_CHECK_AGAIN_S = 0.004
_MAX_LAG_S = 1.0
"""Seconds that a site may fall behind its share while it waits for the network, and still catch up."""


class GrantScheduler(Generic[Key]):
    """The queue of requests, and what was granted on the link."""

    def __init__(
        self,
        now: float,
        capacity_bytes_per_s: float,
        *,
        catch_up_s: float = 0.02,
        peak_tolerance: float = 0.025,
        max_debt_s: float = 1.0,
        aim: float | None = None,
    ) -> None:
        self._usual_catch_up_s = self._catch_up_s = catch_up_s
        self._max_debt_s = max_debt_s
        self._fixed_aim = aim
        self._capacity = math.inf
        self._pace = math.inf
        self._rate = math.inf
        """The rate at which bytes are granted: a little below the capacity."""
        self._peak = PeakGuard(now, math.inf, peak_tolerance)
        self._credit_bytes = 0.0
        self._credit_until = now
        """Bytes that were granted and did not arrive; they may be granted again until this time."""
        self._clear_at = now
        """GCRA's theoretical arrival time: when the link has had time for all that was granted."""
        self._virtual = 0.0
        self._flows: dict[Key, Flow] = {}
        self._rates: dict[Key, float] = {}
        self.active = 0
        """Sites that share the link now."""
        self.usual_active = _MANY_SITES
        """The same as a moving average. At the start it is not known how many will come."""
        self._active_rates = 0.0
        self._active_without_rate = 0
        self._common_weight = 1.0
        self._purge_at = 256
        self._queue: list[tuple[float, int, GrantRequest[Key]]] = []
        self._serial = 0
        self.waiting = 0
        self._blocked_until = self._closed_until = -math.inf
        self.set_capacity(now, capacity_bytes_per_s)

    @property
    def capacity_bytes_per_s(self) -> float:
        return self._capacity

    def set_capacity(self, now: float, capacity_bytes_per_s: float) -> None:
        """Change the bound from `now` on. Bytes granted before count for a second at most."""
        old, new = self._capacity, max(0.0, capacity_bytes_per_s)
        debt_s = max(0.0, self._clear_at - now)
        if math.isfinite(old) and math.isfinite(new) and new > 0 and old > 0:
            debt_s = min(debt_s * old / new, self._max_debt_s)
        else:
            debt_s = 0.0
        self._clear_at = now + debt_s
        self._capacity = new
        self._rate = self._aimed_rate()
        self._peak.set_bound(new)
        self._blocked_until = -math.inf
        self._reweigh()

    def set_pace(self, now: float, pace_bytes_per_s: float) -> None:
        """Grant at most at this rate, below the bound, from `now` on. It may change many times a second: the
        shares of the sites keep their proportions, so no flow is touched."""
        old, self._pace = self._rate, max(0.0, pace_bytes_per_s)
        self._rate = new = self._aimed_rate()
        if 0.0 < new < math.inf and 0.0 < old < math.inf and self._clear_at > now:
            self._clear_at = now + min((self._clear_at - now) * old / new, self._max_debt_s)
        if self._pace < math.inf:
            self._credit_bytes = min(self._credit_bytes, _MAX_PACED_CREDIT_S * new)
        self._choose_catch_up()

    def observe_active(self, part: float) -> None:
        """Take the number of sites that share the link now into its moving average, with this weight."""
        self.usual_active += part * (self.active - self.usual_active)
        self._choose_catch_up()

    def _choose_catch_up(self) -> None:
        """How far grants may lag behind the bound and still catch up at once. With few sites the link is idle
        while their servers are asked, and that time would be lost; the peak guard still holds each second."""
        if self._pace < math.inf:
            self._catch_up_s = min(self._usual_catch_up_s, _PACED_CATCH_UP_S)
        else:
            few = max(1.0, self.usual_active, self.active)
            self._catch_up_s = self._usual_catch_up_s + _FEW_SITES_CATCH_UP_S / few**2

    def close_until(self, at: float) -> None:
        """Grant nothing before this time, for a reason of another bound."""
        self._closed_until = at

    def set_rates(self, rates_bytes_per_s: Mapping[Key, float]) -> None:
        """Guarantee rates to sites. The other sites share the rest of the link."""
        self._rates = {key: rate for key, rate in rates_bytes_per_s.items() if rate > 0}
        self._reweigh()

    def guaranteed_bytes_per_s(self, key: Key) -> float:
        """The rate from `set_rates`, or 0."""
        return self._guaranteed(key)

    def share_bytes_per_s(self, key: Key) -> float:
        """The site's rate while all active sites could use more."""
        if math.isinf(self._capacity):
            return math.inf
        if guaranteed := self._guaranteed(key):
            return guaranteed
        flow = self._flows.get(key)
        newcomer = flow is None or not flow.active
        others = self._active_without_rate
        return self._common_weight * max(1, others) / max(1, others + newcomer)

    def enter(self, key: Key) -> None:
        """Count the site as sharing the link."""
        flow = self._flow(key)
        if not flow.active:
            flow.active = True
            self.active += 1
            self._count(flow, 1)

    def leave(self, key: Key) -> None:
        """Stop counting the site, until it enters again."""
        flow = self._flows.get(key)
        if flow is not None and flow.active:
            flow.active = False
            self.active -= 1
            self._count(flow, -1)

    def ask(
        self,
        now: float,
        key: Key,
        cost_bytes: float,
        latency_s: float = 0.0,
        *,
        min_latency_s: float | None = None,
        expected_bytes: float | None = None,
    ) -> GrantRequest[Key]:
        """Queue a request; `grant_due` returns it when it is granted. `expected_bytes` is `cost_bytes` unless
        given."""
        flow = self._flow(key)
        request = GrantRequest(now, key, max(0.0, cost_bytes), latency_s)
        if min_latency_s is not None:
            request.min_latency_s = min_latency_s
        if expected_bytes is not None:
            request.expected_bytes = expected_bytes
        self._serial += 1
        start_tag = max(self._virtual - _MAX_LAG_S, flow.finish_tag)
        heapq.heappush(self._queue, (start_tag, self._serial, request))
        # Requests of one site follow each other, so each advances the tag from which the next starts.
        flow.finish_tag = start_tag + request.cost_bytes / self._weight(flow)
        flow.last_cost_bytes = request.cost_bytes
        self.waiting += 1
        return request

    def try_at_once(self, now: float, key: Key, cost_bytes: float, latency_s: float = 0.0) -> bool:
        """Grant at once if no request waits and the link is free. Cheaper than `ask` and `grant_due`."""
        if self.waiting:
            return False
        flow = self._flows.get(key) or self._flow(key)
        quiet = self._blocked_until <= self._clear_at <= now and 0 < self._capacity < math.inf
        if self._closed_until > now:
            return False
        if quiet and self._peak.reserve_if_quiet(now, now + latency_s, cost_bytes):
            # By far the most frequent case (each page, thousands per second), so `_spend` is inlined.
            earliest = now - self._catch_up_s
            begins_at = max(earliest, self._clear_at)
            self._clear_at = begins_at + cost_bytes / self._rate
        elif not self._may_grant(now, cost_bytes, latency_s):
            return False
        elif math.isfinite(self._capacity):
            self._spend(now, cost_bytes, now)
            self._peak.reserve(now, now + latency_s, cost_bytes)
        lagging = self._virtual - _MAX_LAG_S
        start_tag = max(lagging, flow.finish_tag)
        self._virtual = max(self._virtual, start_tag)
        flow.finish_tag = start_tag + cost_bytes / (flow.guaranteed or self._common_weight)
        flow.last_cost_bytes = cost_bytes
        return True

    def withdraw(self, now: float, request: GrantRequest[Key]) -> None:
        """Cancel a request. If it was granted, its bytes are available to others again."""
        if request.withdrawn:
            return
        request.withdrawn = True
        if request.granted:
            self.charge(now, request.key, -request.cost_bytes)
        else:
            self.waiting -= 1
            self._return_tag(request.key, request.cost_bytes)

    def charge(self, now: float, key: Key, wire_bytes: float) -> None:
        """Charge bytes that arrived without a grant, or (negative) return granted bytes that did not
        arrive."""
        if math.isinf(self._capacity) or not wire_bytes or not self._capacity:
            return
        moved = self._clear_at + wire_bytes / self._rate
        if wire_bytes > 0:
            self._clear_at = min(moved, max(self._clear_at, now + self._max_debt_s))
        else:
            # Only these bytes can be granted again, not the time in which there was no request.
            self._clear_at = max(moved, min(self._clear_at, now - self._catch_up_s))
            if moved < self._clear_at:
                self._credit(now, (self._clear_at - moved) * self._rate)
            self._blocked_until = -math.inf
        self._return_tag(key, -wire_bytes)

    def observe(self, now: float, arrived_bytes: float, outstanding_bytes: float) -> None:
        """Report the bytes that arrived since the last call, and those granted that have not arrived."""
        if self._capacity < math.inf:
            self._peak.observe(now, arrived_bytes, outstanding_bytes)

    def grant_due(self, now: float) -> list[GrantRequest[Key]]:
        """Grant the requests that are due, and return them in order."""
        granted: list[GrantRequest[Key]] = []
        while self._queue:
            tag, _serial, request = self._queue[0]
            if request.withdrawn:
                heapq.heappop(self._queue)
                continue
            if not self._may_grant(now, request.expected_bytes, request.min_latency_s):
                break
            heapq.heappop(self._queue)
            self.waiting -= 1
            request.granted = True
            self._virtual = max(self._virtual, tag)
            if math.isfinite(self._capacity):
                self._spend(now, request.cost_bytes, request.asked_at)
                self._peak.reserve(now, now + request.latency_s, request.expected_bytes)
            granted.append(request)
        return granted

    def next_at(self, now: float) -> float:
        """When to call `grant_due` again; infinity if no request waits, or the link is closed."""
        if not self.waiting or not self._capacity:
            return math.inf
        return max(now, self._clear_at, self._blocked_until, self._closed_until)

    def _may_grant(self, now: float, expected_bytes: float, min_latency_s: float) -> bool:
        if math.isinf(self._capacity):
            return True
        if not self._capacity or self._clear_at > now or self._closed_until > now:
            return False
        fits = not expected_bytes or self._peak.fits(now, now + min_latency_s, expected_bytes)
        if not fits:
            self._blocked_until = now + _CHECK_AGAIN_S
        return fits

    def _spend(self, now: float, cost_bytes: float, asked_at: float) -> None:
        """Advance the theoretical arrival time. Time lost because the guard or a busy machine delayed a
        request becomes credit; time without a request does not."""
        on_time = now - self._catch_up_s
        if (missed_s := on_time - self._clear_at) > 0.0:
            if self._blocked_until > self._clear_at:
                self._credit(now, missed_s * self._rate)
            elif asked_at < on_time and missed_s < _MAX_CREDIT_S:  # longer: the machine was suspended
                self._credit(now, min(missed_s, on_time - asked_at) * self._rate)
            self._clear_at += missed_s
        factor = _SLOW_CATCH_UP_FACTOR if self._capacity < _SLOW_LINK_BYTES_PER_S else _CATCH_UP_FACTOR
        made_up_bytes = min(self._credit_left(now), cost_bytes * (1.0 - 1.0 / factor))
        self._credit_bytes -= made_up_bytes
        self._clear_at += (cost_bytes - made_up_bytes) / self._rate

    def _credit(self, now: float, unused_bytes: float) -> None:
        most_bytes = self._rate * _MAX_PACED_CREDIT_S
        if self._pace == math.inf:
            most_bytes = max(self._rate * _MAX_CREDIT_S, _CREDIT_PACKETS * PACKET_BYTES)
        self._credit_bytes = min(self._credit_left(now) + unused_bytes, most_bytes)
        self._credit_until = now + _CREDIT_LASTS_S

    def _credit_left(self, now: float) -> float:
        return self._credit_bytes if now < self._credit_until else 0.0

    def _aimed_rate(self) -> float:
        """A little less than the bound, and less still on a small link: name lookups and retransmissions are
        not counted here."""
        aim = self._fixed_aim
        if aim is None:
            aim = 0.985 if self._capacity < _SMALL_LINK_BYTES_PER_S else 0.995
        return min(aim * self._capacity, self._pace)

    def _flow(self, key: Key) -> Flow:
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= self._purge_at:
                self._purge()
            self._flows[key] = flow = Flow(self._guaranteed(key), self._virtual)
        return flow

    def _purge(self) -> None:
        """Remove the sites whose state is that of a new site."""
        waiting = {request.key for _tag, _serial, request in self._queue}
        self._flows = {
            key: flow
            for key, flow in self._flows.items()
            if flow.active or flow.finish_tag > self._virtual or key in waiting
        }
        self._purge_at = 2 * len(self._flows) + 256

    def _count(self, flow: Flow, sign: int) -> None:
        if flow.guaranteed:
            self._active_rates = max(0.0, self._active_rates + sign * flow.guaranteed)
        else:
            self._active_without_rate += sign
        self._common_weight = self._weigh_common()

    def _guaranteed(self, key: Key) -> float:
        return min(self._rates.get(key, 0.0), self._capacity, 1e15)

    def _weight(self, flow: Flow) -> float:
        return flow.guaranteed or self._common_weight

    def _weigh_common(self) -> float:
        """The weight of a site without a guaranteed rate: its part of what those rates leave, at least a
        little."""
        basis = self._capacity if 0 < self._capacity < math.inf else max(1.0, self._active_rates)
        left = max(basis - self._active_rates, _MIN_COMMON_SHARE * max(basis, self._active_rates))
        return left / max(1, self._active_without_rate)

    def _reweigh(self) -> None:
        """Apply new guaranteed rates. Each tag keeps its lead over the virtual time in bytes, so that a
        higher rate takes effect at once.

        The weight of a site without a guaranteed rate changes whenever a site becomes active or idle, so its
        lead in bytes could be far more than it ever requested. It is limited to the size of its last request.
        """
        leads = {
            key: min(max(0.0, flow.finish_tag - self._virtual) * self._weight(flow), flow.last_cost_bytes)
            for key, flow in self._flows.items()
        }
        self._active_rates, self._active_without_rate = 0.0, 0
        self._common_weight = self._weigh_common()
        for key, flow in self._flows.items():
            flow.guaranteed = self._guaranteed(key)
            if flow.active:
                self._count(flow, 1)
        for key, flow in self._flows.items():
            flow.finish_tag = self._virtual + leads[key] / self._weight(flow)
        self._requeue()

    def _requeue(self) -> None:
        """Give queued requests the tags that they would have with the new weights, in the same order."""
        waiting = [entry for entry in sorted(self._queue) if not entry[2].withdrawn]
        to_come: dict[Key, float] = {}
        for _tag, _serial, request in waiting:
            to_come[request.key] = to_come.get(request.key, 0.0) + request.cost_bytes
        self._queue = []
        for _tag, serial, request in waiting:
            flow = self._flows[request.key]
            tag = max(self._virtual - _MAX_LAG_S, flow.finish_tag - to_come[request.key] / self._weight(flow))
            to_come[request.key] -= request.cost_bytes
            self._queue.append((tag, serial, request))
        heapq.heapify(self._queue)

    def _return_tag(self, key: Key, cost_bytes: float) -> None:
        flow = self._flows.get(key)
        if flow is not None:
            tag = flow.finish_tag - cost_bytes / self._weight(flow)
            flow.finish_tag = max(self._virtual - _MAX_LAG_S, tag)
