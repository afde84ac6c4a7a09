"""Permissions for bytes to arrive, handed out so that the link's bound holds: the pacer without I/O.

One clock spaces all grants at the bound (GCRA), start-time fair queueing decides whose turn it is, and a
guard looks at the second in which the bytes will arrive. A site's rate is a share that it can always have
back; what it does not use goes to the others at once. Every method takes `now`, in seconds on any clock
that only moves forward.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from headway.fetch.peak import PeakGuard
from headway.fetch.wishes import Ask, Flow

Key = TypeVar("Key", bound=Hashable)

_SMALL_LINK_BYTES_PER_S = 2_000_000
_NO_CLAIM_SHARE = 0.01
_MAX_CREDIT_S = 0.3
_CREDIT_LASTS_S = 1.0
_MAKES_UP_AT = 1.5
"""Held-back time is made up for at this multiple of the rate: all at once, it would be the next lump."""
_LOOK_AGAIN_S = 0.004
_MAY_LAG_S = 1.0
"""How far a site may fall behind its share, waiting for the network, and still make up for it."""


class Grants(Generic[Key]):
    """The queue of asks and the books of the link."""

    def __init__(
        self,
        now: float,
        capacity_bytes_per_s: float,
        *,
        catch_up_s: float = 0.02,
        peak_tolerance: float = 0.035,
        max_debt_s: float = 1.0,
        aim: float | None = None,
    ) -> None:
        self._catch_up_s = catch_up_s
        self._max_debt_s = max_debt_s
        self._fixed_aim = aim
        self._capacity = self._rate = math.inf  # `_rate` is what the clock runs at
        self._peak = PeakGuard(now, math.inf, peak_tolerance)
        self._credit_bytes = 0.0
        self._credit_until = now
        """Bytes that were granted and did not come, to be granted again while the second is still young."""
        self._clear_at = now
        """The theoretical arrival time: when all that was granted will have had its time on the link."""
        self._virtual = 0.0
        self._flows: dict[Key, Flow] = {}
        self._rates: dict[Key, float] = {}
        self._active_claims = 0.0
        self._active_without_claim = 0
        self._common_weight = 1.0
        self._purge_at = 256
        self._queue: list[tuple[float, int, Ask[Key]]] = []
        self._serial = 0
        self.waiting = 0
        self._blocked_until = -math.inf
        self.set_capacity(now, capacity_bytes_per_s)

    @property
    def capacity_bytes_per_s(self) -> float:
        return self._capacity

    def set_capacity(self, now: float, capacity_bytes_per_s: float) -> None:
        """From this moment on; what was granted before is remembered, but for no more than a second."""
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

    def set_rates(self, rates_bytes_per_s: Mapping[Key, float]) -> None:
        """Guaranteed shares; sites that are not named divide what these leave."""
        self._rates = {key: rate for key, rate in rates_bytes_per_s.items() if rate > 0}
        self._reweigh()

    def claim_bytes_per_s(self, key: Key) -> float:
        """What `set_rates` promised the site, 0 for nothing."""
        return self._claim(key)

    def share_bytes_per_s(self, key: Key) -> float:
        """What the site gets when all that are active want more than there is."""
        if math.isinf(self._capacity):
            return math.inf
        if claim := self._claim(key):
            return claim
        flow = self._flows.get(key)
        newcomer = flow is None or not flow.active
        others = self._active_without_claim
        return self._common_weight * max(1, others) / max(1, others + newcomer)

    def enter(self, key: Key) -> None:
        """The site has something under way and counts among those that share the link."""
        flow = self._flow(key)
        if not flow.active:
            flow.active = True
            self._count(flow, 1)

    def leave(self, key: Key) -> None:
        """It has not, for now."""
        flow = self._flows.get(key)
        if flow is not None and flow.active:
            flow.active = False
            self._count(flow, -1)

    def ask(
        self,
        now: float,
        key: Key,
        cost_bytes: float,
        latency_s: float = 0.0,
        *,
        soonest_s: float | None = None,
        brings_bytes: float | None = None,
    ) -> Ask[Key]:
        """Queue a wish; `take` tells when it is granted. It brings what it costs unless otherwise said."""
        flow = self._flow(key)
        wish = Ask(now, key, max(0.0, cost_bytes), latency_s)
        if soonest_s is not None:
            wish.soonest_s = soonest_s
        if brings_bytes is not None:
            wish.brings_bytes = brings_bytes
        self._serial += 1
        start_tag = max(self._virtual - _MAY_LAG_S, flow.finish_tag)
        heapq.heappush(self._queue, (start_tag, self._serial, wish))
        # Several asks of one site follow one another, so each advances the tag from which the next starts.
        flow.finish_tag = start_tag + wish.cost_bytes / self._weight(flow)
        flow.last_cost_bytes = wish.cost_bytes
        self.waiting += 1
        return wish

    def try_at_once(self, now: float, key: Key, cost_bytes: float, latency_s: float = 0.0) -> bool:
        """What `ask` and `take` come to when nobody waits and the link is free, at a fraction of the cost."""
        if self.waiting:
            return False
        flow = self._flows.get(key) or self._flow(key)
        quiet = self._blocked_until <= self._clear_at <= now and 0 < self._capacity < math.inf
        if quiet and self._peak.book_if_quiet(now, now + latency_s, cost_bytes):
            # By far the most frequent case, so it is written out: a page a call, thousands a second.
            earliest = now - self._catch_up_s
            begins_at = max(earliest, self._clear_at)
            self._clear_at = begins_at + cost_bytes / self._rate
        elif not self._may_grant(now, cost_bytes, latency_s):
            return False
        elif math.isfinite(self._capacity):
            self._spend(now, cost_bytes, now)
            self._peak.book(now, now + latency_s, cost_bytes)
        lagging = self._virtual - _MAY_LAG_S
        start_tag = max(lagging, flow.finish_tag)
        self._virtual = max(self._virtual, start_tag)
        flow.finish_tag = start_tag + cost_bytes / (flow.claim or self._common_weight)
        flow.last_cost_bytes = cost_bytes
        return True

    def withdraw(self, now: float, wish: Ask[Key]) -> None:
        """The wish is void: queued, it is dropped; granted, its bytes are given back to the others."""
        if wish.withdrawn:
            return
        wish.withdrawn = True
        if wish.granted:
            self.charge(now, wish.key, -wish.cost_bytes)
        else:
            self.waiting -= 1
            self._return_tag(wish.key, wish.cost_bytes)

    def charge(self, now: float, key: Key, wire_bytes: float) -> None:
        """Correct the books: bytes came that no grant covered, or (negative) did not come though granted."""
        if math.isinf(self._capacity) or not wire_bytes or not self._capacity:
            return
        moved = self._clear_at + wire_bytes / self._rate
        if wire_bytes > 0:
            self._clear_at = min(moved, max(self._clear_at, now + self._max_debt_s))
        else:
            # Only these bytes are had again, not the time in which nobody had asked.
            self._clear_at = max(moved, min(self._clear_at, now))
            if moved < self._clear_at:
                self._credit(now, (self._clear_at - moved) * self._rate)
            self._blocked_until = -math.inf
        self._return_tag(key, -wire_bytes)

    def saw(self, now: float, arrived_bytes: float, outstanding_bytes: float) -> None:
        """What really arrived since this was last told, and what is granted and still to come."""
        if self._capacity < math.inf:
            self._peak.saw(now, arrived_bytes, outstanding_bytes)

    def take(self, now: float) -> list[Ask[Key]]:
        """Those whose turn has come, in order."""
        granted: list[Ask[Key]] = []
        while self._queue:
            tag, _serial, wish = self._queue[0]
            if wish.withdrawn:
                heapq.heappop(self._queue)
                continue
            if not self._may_grant(now, wish.brings_bytes, wish.soonest_s):
                break
            heapq.heappop(self._queue)
            self.waiting -= 1
            wish.granted = True
            self._virtual = max(self._virtual, tag)
            if math.isfinite(self._capacity):
                self._spend(now, wish.cost_bytes, wish.asked_at)
                self._peak.book(now, now + wish.latency_s, wish.brings_bytes)
            granted.append(wish)
        return granted

    def next_at(self, now: float) -> float:
        """When `take` is worth another call; infinity when nobody waits (or the link is shut)."""
        if not self.waiting or not self._capacity:
            return math.inf
        return max(now, self._clear_at, self._blocked_until)

    def _may_grant(self, now: float, brings_bytes: float, soonest_s: float) -> bool:
        if math.isinf(self._capacity):
            return True
        if not self._capacity or self._clear_at > now:
            return False
        fits = not brings_bytes or self._peak.fits(now, now + soonest_s, brings_bytes)
        if not fits:
            self._blocked_until = now + _LOOK_AGAIN_S
        return fits

    def _spend(self, now: float, cost_bytes: float, asked_at: float) -> None:
        """Time in which the guard, or a busy machine, let somebody wait is made up for, and no other."""
        on_time = now - self._catch_up_s
        if (missed_s := on_time - self._clear_at) > 0.0:
            if self._blocked_until > self._clear_at:
                self._credit(now, missed_s * self._rate)
            elif asked_at < on_time and missed_s < _MAX_CREDIT_S:  # any longer, and it was asleep
                self._credit(now, min(missed_s, on_time - asked_at) * self._rate)
            self._clear_at += missed_s
        made_up_bytes = min(self._credit_left(now), cost_bytes * (1.0 - 1.0 / _MAKES_UP_AT))
        self._credit_bytes -= made_up_bytes
        self._clear_at += (cost_bytes - made_up_bytes) / self._rate

    def _credit(self, now: float, unused_bytes: float) -> None:
        self._credit_bytes = min(self._credit_left(now) + unused_bytes, _MAX_CREDIT_S * self._rate)
        self._credit_until = now + _CREDIT_LASTS_S

    def _credit_left(self, now: float) -> float:
        return self._credit_bytes if now < self._credit_until else 0.0

    def _aimed_rate(self) -> float:
        """A little under the bound where it is small: name look-ups and repeats cannot be counted here."""
        if self._fixed_aim is not None:
            return self._fixed_aim * self._capacity
        return (0.985 if self._capacity < _SMALL_LINK_BYTES_PER_S else 0.995) * self._capacity

    def _flow(self, key: Key) -> Flow:
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= self._purge_at:
                self._purge()
            self._flows[key] = flow = Flow(self._claim(key), self._virtual)
        return flow

    def _purge(self) -> None:
        """Forget the sites whose turn would be now anyway: nothing is lost with them."""
        waiting = {wish.key for _tag, _serial, wish in self._queue}
        self._flows = {
            key: flow
            for key, flow in self._flows.items()
            if flow.active or flow.finish_tag > self._virtual or key in waiting
        }
        self._purge_at = 2 * len(self._flows) + 256

    def _count(self, flow: Flow, sign: int) -> None:
        if flow.claim:
            self._active_claims = max(0.0, self._active_claims + sign * flow.claim)
        else:
            self._active_without_claim += sign
        self._common_weight = self._weigh_common()

    def _claim(self, key: Key) -> float:
        return min(self._rates.get(key, 0.0), self._capacity, 1e15)

    def _weight(self, flow: Flow) -> float:
        return flow.claim or self._common_weight

    def _weigh_common(self) -> float:
        """What each site without a claim weighs: its part of what the claims leave, and never nothing."""
        basis = self._capacity if 0 < self._capacity < math.inf else max(1.0, self._active_claims)
        left = max(basis - self._active_claims, _NO_CLAIM_SHARE * max(basis, self._active_claims))
        return left / max(1, self._active_without_claim)

    def _reweigh(self) -> None:
        """New claims. A tag's lead over the virtual time is kept in bytes, so that a raise counts at once.

        The weight of a site without a claim moves with every site that comes or goes, so what its lead is
        worth in bytes now may be far more than it ever asked for; it is never more than its last ask.
        """
        leads = {
            key: min(max(0.0, flow.finish_tag - self._virtual) * self._weight(flow), flow.last_cost_bytes)
            for key, flow in self._flows.items()
        }
        self._active_claims, self._active_without_claim = 0.0, 0
        self._common_weight = self._weigh_common()
        for key, flow in self._flows.items():
            flow.claim = self._claim(key)
            if flow.active:
                self._count(flow, 1)
        for key, flow in self._flows.items():
            flow.finish_tag = self._virtual + leads[key] / self._weight(flow)
        self._requeue()

    def _requeue(self) -> None:
        """Give queued asks the tags that they would have under the new weights, in their old order."""
        waiting = [entry for entry in sorted(self._queue) if not entry[2].withdrawn]
        to_come: dict[Key, float] = {}
        for _tag, _serial, wish in waiting:
            to_come[wish.key] = to_come.get(wish.key, 0.0) + wish.cost_bytes
        self._queue = []
        for _tag, serial, wish in waiting:
            flow = self._flows[wish.key]
            tag = max(self._virtual - _MAY_LAG_S, flow.finish_tag - to_come[wish.key] / self._weight(flow))
            to_come[wish.key] -= wish.cost_bytes
            self._queue.append((tag, serial, wish))
        heapq.heapify(self._queue)

    def _return_tag(self, key: Key, cost_bytes: float) -> None:
        flow = self._flows.get(key)
        if flow is not None:
            tag = flow.finish_tag - cost_bytes / self._weight(flow)
            flow.finish_tag = max(self._virtual - _MAY_LAG_S, tag)
