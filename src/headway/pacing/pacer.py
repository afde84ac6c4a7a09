"""Keeps all connections of a process under the bound, in real time.

`GrantScheduler` decides; this module gives it the event loop's clock and timers, polls the kernel about the
transfers in progress, and keeps the measurements of each site.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headway.model.page import Site
from headway.pacing.background import BackgroundPacing
from headway.pacing.grants import GrantRequest, GrantScheduler
from headway.pacing.wire import SEGMENT_PAYLOAD_BYTES, SiteReadings, buffer_for

if TYPE_CHECKING:
    from headway.pacing.meter import Meter  # which imports this module

_CHUNKS_PER_SECOND = 600
_LARGEST_CHUNK_BYTES = 64 * 1024
_CORRECT_EVERY_BYTES = 128 * 1024
_FIRST_SHARE = 0.25  # start small: a buffer grows more easily than it shrinks
_GROWTH = 1.5
_PROMPT_PART = 0.25
_LARGEST_LUMP_S = 0.015
_UP_CATCH_UP_S = 0.02
_NO_BOUND_BYTES_PER_S = 1.25e10
"""The bound on what arrives if there is none but that on what is sent: faster than any link of a crawler."""
_FEW_SITES_S = 0.06
_PAGES_AT_ONCE = 1.5
_LARGE_PAGE = 3.0
_MOST_ASKED_PART = 0.35
_LEAST_PACED_SEGMENTS = 3
"""With fewer, a server waits for delayed acknowledgements and the rate cannot grow."""
_LEAST_LENT_SEGMENTS = 4
"""The same while the link is idle: packets are of full size, and every other one is acknowledged at once."""
_DELAYED_ACK_S = 0.04
_IDLE_BELOW = 0.2
"""If requests waited for less than this part of recent time, the link has room for all of them."""
_CONTENTION_OVER_S = 0.5
_MAX_POLL_S = 0.05
_SLACK_S = 0.005
_HEADROOM = 1.15
_GUARANTEED_HEADROOM = 1.3
_GUARANTEED_SLACK_S = 0.01
_INACTIVE_AFTER_S = 0.25
_MAX_SITES = 8192
# Polling takes about a microsecond per transfer in progress; with many of them it is done less often.
_POLL_SOON_S = 0.003
_POLL_EVERY_S = 0.02
_POLL_COST_S = 1e-4

OnGranted = Callable[[], None]


class Pacer:
    """Calls back when a request is granted; never blocks."""

    def __init__(
        self,
        capacity_bytes_per_s: float = math.inf,
        *,
        charge_uploads: bool = False,
        yields: bool = False,
        up_bytes_per_s: float = math.inf,
    ) -> None:
        """`yields`: pace below the bound so that other users of the link do not have to wait.
        `up_bytes_per_s`: the bound on what is sent, requests and acknowledgements."""
        self._up_bytes_per_s = up_bytes_per_s
        self._up_clear_at = 0.0
        """When the link has had time for all that was sent."""
        self.bounded = False
        self.background = BackgroundPacing(self._set_pace) if yields else None
        self._pace = math.inf
        self.chunk_bytes = _LARGEST_CHUNK_BYTES
        """Bytes of a usual grant: what the link carries in 1/600 s, in whole segments."""
        self.correct_every_bytes = _CORRECT_EVERY_BYTES
        """How often a meter compares its estimate with the kernel's counts during a response."""
        self.version = 0
        """Increases with each change of the bound or of the rates, so that meters adapt their buffers at
        once."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.arrived_bytes = 0.0
        """Observed by meters since the last poll, and not yet reported to the scheduler."""
        self.charge_uploads = charge_uploads
        self.asks_until = math.inf
        """No request is sent after this time of the loop's clock, even one that waits for its grant then."""
        self._capacity = capacity_bytes_per_s
        self._scheduler: GrantScheduler[Site] | None = None
        self._rates: Mapping[Site, float] = {}
        self._inactive: dict[Site, SiteReadings] = {}
        """Sites without an exchange in progress that still count as sharing the link."""
        self._meters: set[Meter] = set()
        self._contention = 1.0
        """The part of recent time in which a request waited for a grant: a moving average."""
        self._poll_at = self._poll_soon_at = self._polled_at = 0.0
        self._sweep_at = 0.0
        self._callbacks: dict[GrantRequest[Site], OnGranted] = {}
        self._readings: dict[Site, SiteReadings] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._loop: asyncio.AbstractEventLoop | None = None
        self._apply_capacity(capacity_bytes_per_s)
        if self.background is not None:
            self.background.set_bound(capacity_bytes_per_s)

    @property
    def capacity_bytes_per_s(self) -> float:
        return self._capacity

    def set_capacity(self, capacity_bytes_per_s: float) -> None:
        self._apply_capacity(capacity_bytes_per_s)
        if self.background is not None:
            self.background.set_bound(capacity_bytes_per_s)
        if self._scheduler is not None:
            self._scheduler.set_capacity(self._now(), self._capacity)
            self._grant_due()

    def set_rates(self, rates_bytes_per_s: Mapping[Site, float]) -> None:
        self._rates = dict(rates_bytes_per_s)
        self.version += 1
        if self._scheduler is not None:
            self._scheduler.set_rates(self._rates)
            self._grant_due()

    def readings(self, site: Site) -> SiteReadings:
        """The measurements of a site: those of all sites in use, and of the last ones that were."""
        readings = self._readings.get(site)
        if readings is None:
            if len(self._readings) >= _MAX_SITES:
                oldest = next(iter(self._readings))
                unused = self._readings.pop(oldest)
                if unused.is_sharing:
                    self._readings[oldest] = unused
            self._readings[site] = readings = SiteReadings()
        return readings

    def buffer_bytes(self, site: Site) -> int:
        """The receive buffer with which a connection can use the site's share, or the rate lent to it.

        If the site has several exchanges in progress, each gets an equal part of the share.
        """
        readings = self.readings(site)
        scheduler = self._get_scheduler()
        share = scheduler.share_bytes_per_s(site) / max(1, readings.active)
        path_s = readings.round_trip_s + _SLACK_S
        if self._pace < math.inf and self._capacity > 0.0:
            # Whatever is on its way beyond this is a queue that other users of the link wait for.
            paced_share = share * min(1.0, self._pace / self._capacity)
            # A page must come faster than the share, since nothing comes while the next one is asked for.
            asked_part = min(paced_share * readings.round_trip_s / readings.page_bytes, _MOST_ASKED_PART)
            flowing_bytes = paced_share / (1.0 - asked_part) * path_s
            return buffer_for(max(flowing_bytes, _LEAST_PACED_SEGMENTS * SEGMENT_PAYLOAD_BYTES))
        # On a busy link small windows cost nothing, since other sites use the rest, and they fill it evenly.
        largest_bytes = self._capacity * (_LARGEST_LUMP_S if self._contention > 0.5 else path_s)
        if scheduler.guaranteed_bytes_per_s(site):
            flowing_bytes = _GUARANTEED_HEADROOM * share * (readings.round_trip_s + _GUARANTEED_SLACK_S)
        else:
            part = share / self._capacity if 0.0 < self._capacity < math.inf else 0.0
            before = readings.smoothed_share
            readings.smoothed_share += 0.2 * (part - before) if before else _FIRST_SHARE * part
            flowing_bytes = min(_HEADROOM * readings.smoothed_share * path_s * self._capacity, largest_bytes)
        if readings.prompt > 0.5:
            # Its requests are granted at once, so only the buffer limits it: lend it more. The rate through a
            # window of a packet or two is low because of delayed acknowledgements, and says nothing.
            lent_bytes = _HEADROOM * _GROWTH * readings.rate_bytes_per_s * path_s
            if self._contention < _IDLE_BELOW:
                even_bytes = self._capacity * (path_s + _DELAYED_ACK_S) / self._sites(scheduler)
                lent_bytes = max(lent_bytes, min(_LEAST_LENT_SEGMENTS * SEGMENT_PAYLOAD_BYTES, even_bytes))
            flowing_bytes = max(flowing_bytes, min(lent_bytes, largest_bytes))
        if self._capacity < math.inf:
            # While a request is on its way to the server, the link carries what other sites send. With few of
            # them it would be idle, so a page must then come faster than at the site's share.
            few_bytes = _FEW_SITES_S * self._capacity / self._sites(scheduler) ** 2
            flowing_bytes = max(flowing_bytes, min(_PAGES_AT_ONCE * readings.page_bytes, few_bytes))
        return buffer_for(flowing_bytes)

    def first_bytes(self, readings: SiteReadings) -> float:
        """How much of the next response should be granted before it is asked for, as far as its window lets
        it arrive at once. With few sites, whose windows are large, that of a large page: what it does not
        need is returned when it ends, and no other site has to wait."""
        few = _FEW_SITES_S / _LARGEST_LUMP_S / self._sites(self._get_scheduler()) ** 2
        return readings.page_bytes * min(max(1.0, few), _LARGE_PAGE)

    @staticmethod
    def _sites(scheduler: GrantScheduler[Site]) -> float:
        return max(1.0, scheduler.active, scheduler.usual_active)

    def share_bytes_per_s(self, site: Site) -> float:
        """The site's rate while all active sites could use more."""
        return self._get_scheduler().share_bytes_per_s(site)

    def enter(self, now: float, site: Site, readings: SiteReadings, meter: Meter) -> None:
        """Start an exchange: the site shares the link from now on."""
        self._meters.add(meter)
        # The least recently used site comes first.
        self._readings.pop(site, None)
        self._readings[site] = readings
        readings.active += 1
        if not readings.is_sharing:
            readings.is_sharing = True
            self._get_scheduler().enter(site)
        if now >= self._sweep_at:
            self._sweep(now)

    def leave(self, now: float, site: Site, readings: SiteReadings, meter: Meter) -> None:
        """End an exchange. The site keeps its share for a moment, since most send the next request soon."""
        self._meters.discard(meter)
        readings.active -= 1
        if not readings.active:
            readings.idle_since = now
            self._inactive[site] = readings

    def try_at_once(self, now: float, site: Site, readings: SiteReadings, wire_bytes: float) -> bool:
        """Grant the bytes if no request waits and the link is free."""
        scheduler = self._scheduler or self._get_scheduler()
        if now >= self._poll_at:
            self._poll(now)
        if scheduler.try_at_once(now, site, wire_bytes, readings.delay_s):
            readings.prompt += 0.1 * (1.0 - readings.prompt)
            return True
        return False

    def ask(
        self, site: Site, wire_bytes: float, on_granted: OnGranted, expected_bytes: float | None = None
    ) -> GrantRequest[Site] | None:
        """Request a grant. None if granted at once; else `on_granted` is called later, unless withdrawn."""
        scheduler, now, readings = self._get_scheduler(), self._now(), self.readings(site)
        if now >= self._poll_soon_at:
            self._poll(now)
        request = scheduler.ask(
            now,
            site,
            wire_bytes,
            readings.delay_s,
            min_latency_s=readings.round_trip_s,
            expected_bytes=expected_bytes,
        )
        if not self._timer:
            for granted in scheduler.grant_due(now):
                if granted is not request:
                    self._call(now, granted)
            if request.granted:
                readings.prompt += 0.1 * (1.0 - readings.prompt)
                self._set_timer(now)
                return None
        self._callbacks[request] = on_granted
        self._set_timer(now)
        return request

    def wait(self, site: Site, wire_bytes: float) -> asyncio.Future[None]:
        """A future that is done when the bytes may arrive. Cancelling it withdraws the request."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request = self.ask(site, wire_bytes, lambda: None if waiter.done() else waiter.set_result(None))
        if request is None:
            waiter.set_result(None)
        else:
            waiter.add_done_callback(lambda done: self.withdraw(request) if done.cancelled() else None)
        return waiter

    def withdraw(self, request: GrantRequest[Site]) -> None:
        self._callbacks.pop(request, None)
        self._get_scheduler().withdraw(self._now(), request)
        self._grant_due()

    def charge(self, site: Site, wire_bytes: float) -> None:
        """Charge bytes that no grant covered, or (negative) return granted bytes."""
        if self.bounded:
            self._get_scheduler().charge(self._now(), site, wire_bytes)
            if self._callbacks and wire_bytes < 0:
                self._grant_due()

    def note_sent(self, site: Site, wire_bytes: int) -> None:
        """Count sent requests and acknowledgements; charge them if the bound counts both directions."""
        self.sent_bytes += wire_bytes
        if self._up_bytes_per_s < math.inf:
            # What is sent follows from what arrives, so no more may arrive until the link is free again.
            now = self._now()
            self._up_clear_at = (
                max(self._up_clear_at, now - _UP_CATCH_UP_S) + wire_bytes / self._up_bytes_per_s
            )
            self._get_scheduler().close_until(self._up_clear_at)
        if self.charge_uploads:
            self.arrived_bytes += wire_bytes
            self.charge(site, wire_bytes)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._callbacks.clear()
        if self.background is not None:
            self.background.close()

    def _set_pace(self, pace_bytes_per_s: float) -> None:
        self._pace = pace_bytes_per_s
        if self._scheduler is not None:
            self._scheduler.set_pace(self._now(), pace_bytes_per_s)
            self._set_timer(self._now())

    def _apply_capacity(self, capacity_bytes_per_s: float) -> None:
        if self._up_bytes_per_s < math.inf:
            capacity_bytes_per_s = min(capacity_bytes_per_s, _NO_BOUND_BYTES_PER_S)
        self._capacity = capacity_bytes_per_s
        self.version += 1
        self.bounded = math.isfinite(capacity_bytes_per_s)
        if self.bounded:
            segments = round(capacity_bytes_per_s / _CHUNKS_PER_SECOND / SEGMENT_PAYLOAD_BYTES)
            self.correct_every_bytes = min(
                max(int(capacity_bytes_per_s / 8), 11 * SEGMENT_PAYLOAD_BYTES), _CORRECT_EVERY_BYTES
            )
            self.chunk_bytes = min(max(1, segments) * SEGMENT_PAYLOAD_BYTES, _LARGEST_CHUNK_BYTES)

    def _sweep(self, now: float) -> None:
        self._sweep_at = now + _INACTIVE_AFTER_S
        for site, readings in list(self._inactive.items()):
            if readings.active:
                del self._inactive[site]
            elif readings.idle_since < now - _INACTIVE_AFTER_S:
                del self._inactive[site]
                readings.is_sharing = False
                self._get_scheduler().leave(site)

    def _get_scheduler(self) -> GrantScheduler[Site]:
        """The scheduler, made on first use: by then there is an event loop with a clock."""
        if self._scheduler is None:
            self._loop = asyncio.get_running_loop()
            self._scheduler = self._make_scheduler(self._loop.time())
            if self._pace < math.inf:
                self._scheduler.set_pace(self._loop.time(), self._pace)
            self._scheduler.set_rates(self._rates)
        return self._scheduler

    def _make_scheduler(self, now: float) -> GrantScheduler[Site]:
        return GrantScheduler(now, self._capacity)

    def _now(self) -> float:
        loop = self._loop or asyncio.get_running_loop()
        return loop.time()

    def _grant_due(self) -> None:
        self._timer = None
        scheduler, now = self._get_scheduler(), self._now()
        if now >= self._poll_soon_at:
            self._poll(now)
        for granted in scheduler.grant_due(now):
            self._call(now, granted)
        self._set_timer(now)

    def _poll(self, now: float) -> None:
        """Ask the kernel what has arrived on all transfers in progress, and report it to the scheduler."""
        lasted_s, self._polled_at = now - self._polled_at, now
        part = min(lasted_s, _MAX_POLL_S) / _CONTENTION_OVER_S
        self._get_scheduler().observe_active(part)
        self._contention += part * ((self._get_scheduler().waiting > 0) - self._contention)
        self._poll_soon_at = now + max(_POLL_SOON_S, _POLL_COST_S * len(self._meters))
        self._poll_at = self._poll_soon_at + _POLL_EVERY_S
        if not self.bounded:
            return
        arrived, outstanding = self.arrived_bytes, 0.0
        self.arrived_bytes = 0.0
        for meter in self._meters:
            newly_arrived, still_outstanding = meter.poll(now, lasted_s)
            arrived += newly_arrived
            outstanding += still_outstanding
        self._get_scheduler().observe(now, arrived, outstanding)

    def _call(self, now: float, granted: GrantRequest[Site]) -> None:
        callback = self._callbacks.pop(granted, None)
        if callback is not None:
            readings = self.readings(granted.key)
            turn_bytes = (now - granted.asked_at) * self._get_scheduler().share_bytes_per_s(granted.key)
            readings.prompt += 0.1 * ((turn_bytes < _PROMPT_PART * granted.cost_bytes) - readings.prompt)
            callback()

    def _set_timer(self, now: float) -> None:
        """Set the timer to the time of the next grant, unless it is set to it already."""
        due_at = self._get_scheduler().next_at(now)
        if self._timer is not None:
            if self._timer_at == due_at:
                return
            self._timer.cancel()
            self._timer = None
        if due_at < math.inf and self._loop is not None:
            self._timer_at = due_at
            self._timer = self._loop.call_at(due_at, self._grant_due)
