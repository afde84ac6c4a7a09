"""Measures one connection and requests grants for it: bytes granted, bytes read, bytes on the link.

The kernel accepts bytes up to the receive window while nothing is read, and a read opens the window again. So
before each read enough must be granted: the bytes read plus the window never exceed the bytes granted, until
the grants cover the rest of the response.
"""

from __future__ import annotations

import socket

from headway.model.page import Site
from headway.pacing.background import PathReader
from headway.pacing.grants import GrantRequest
from headway.pacing.pacer import OnGranted, Pacer
from headway.pacing.wire import (
    DEFAULT_BUFFER_BYTES,
    SEGMENT_PAYLOAD_BYTES,
    SMALLEST_BUFFER_BYTES,
    UNSCALED_BUFFER_BYTES,
    Arrivals,
    Wire,
    WireTotals,
    estimated_wire_bytes,
    held_unread_bytes,
)

_TLS_FACTOR = 1.02
"""The TLS stream in relation to its plaintext."""
_TLS_ALLOWANCE_BYTES = 64
_UNLIMITED_BYTES = 1 << 62
_GROW_ABOVE = 1.05
"""A buffer grows, shrinks, or is replaced with its connection, when the wanted size is this part of it."""
_SHRINK_BELOW = 0.7
_REPLACE_BELOW = 0.25
_REPLACE_BELOW_AFTER_FALL = 0.6
_BOUND_FELL_TO = 0.7
"""The bound has fallen if it is below this part of the bound for which the buffer was chosen."""
_CHECK_BUFFER_EVERY_S = 0.25
_LEARN_EVERY_S = 0.1
_STALLED_AFTER_S = 0.5
_JUDGE_EVERY_S = 1.0
_JUDGE_ROUND_TRIPS = 10.0
_STALLED_BELOW = 0.25
"""A download that gets less than this part of its share, with bytes granted and no wait of our own, for
longer than its round trips explain, is stalled."""
_SMALL_WINDOW_BYTES = 4 * SEGMENT_PAYLOAD_BYTES
_STALL_BUFFER_S = 0.06
_STALL_BUFFER_BYTES = 4 * SMALLEST_BUFFER_BYTES
"""A stalled connection's buffer grows up to this, or up to what the link carries in `_STALL_BUFFER_S`."""
_STALLS_UNTIL_REPLACED = 3
_LARGE_PART = 0.1
_MAX_REQUEST_CHUNKS = 8
"""A larger request would wait until the second has room for all of it, and all others would wait behind
it."""


class Meter:
    """Call `begin` before a request, `add_read` and `lacking_bytes` after each read, `settle` at the end."""

    def __init__(
        self,
        pacer: Pacer,
        site: Site,
        sock: socket.socket,
        *,
        buffer_bytes: int | None = None,
        charged_bytes: float = 0.0,
    ) -> None:
        self._pacer = pacer
        self._site = site
        self._readings = pacer.readings(site)
        self._wire = Wire(sock)
        self._background = pacer.background
        self.path_reader = PathReader(self._wire.peer())
        self._scaled = buffer_bytes is None or buffer_bytes >= UNSCALED_BUFFER_BYTES
        self._buffer_bytes = DEFAULT_BUFFER_BYTES if buffer_bytes is None else buffer_bytes
        self._is_automatic = buffer_bytes is None
        """The kernel sizes the buffer, up to megabytes, until it is set."""
        if buffer_bytes is not None and self._scaled:
            # Set after connecting: the window scale is negotiated by now.
            self._wire.set_buffer(buffer_bytes)
        self._is_too_large = False
        """The bound or the share has fallen; the buffer shrinks as soon as nothing is on its way."""
        self._least_buffer = 0
        self._buffer_wanted = self._buffer_bytes
        self._buffer_best = self._buffer_bytes
        self._check_buffer_at = 0.0
        self._version = pacer.version
        self._capacity = pacer.capacity_bytes_per_s
        """The bound for which the buffer was chosen."""
        self._window_bytes = held_unread_bytes(self._buffer_bytes)
        self._request: GrantRequest[Site] | None = None
        self._requested_bytes = 0
        """Bytes of the stream that the request is for."""
        self._entered = False
        self.secure = False
        # Counts are bytes of the TCP stream since the connection was opened, or on the link if named "wire".
        self._granted = 0
        self._read = 0
        self._read_at_begin, self._ends_at = 0, _UNLIMITED_BYTES
        """Where the response begins, and where it ends at the latest, if that is known."""
        self._read_when_settled = 0
        self._wire_when_settled = 0
        self._sent_when_settled = 0
        self._wire_charged = charged_bytes
        self._learn_at = 0.0
        self._stream_when_learned = self._wire_when_learned = 0
        self._wire_seen = self._stream_seen = 0
        self._offered = _UNLIMITED_BYTES
        self._judge_at = self._judged_at = 0.0
        self._judged_stream = 0
        self._has_waited = False
        self._stalls = 0
        self.note = ""
        """What was wrong with this connection, and what was done."""
        self._progress_at = 0.0
        """When bytes were last granted or observed to arrive."""
        self._reported = 0
        self._wire_so_far = 0
        self._learn_round_trip()

    @property
    def bounded(self) -> bool:
        return self._pacer.bounded

    @property
    def needs_replacement(self) -> bool:
        """Whether a new connection is better than this one: a large buffer does not shrink well, and a small
        one cannot grow beyond 64 KB."""
        if not self._pacer.bounded:
            return not self._scaled
        if self._version != self._pacer.version:
            self._buffer_best = self._pacer.buffer_bytes(self._site)
        if self._stalls >= _STALLS_UNTIL_REPLACED:
            return True
        wanted = self._buffer_best
        too_small = not self._scaled and wanted >= UNSCALED_BUFFER_BYTES
        return too_small or wanted < self._replace_below() * self._buffer_bytes

    def begin(self, now: float) -> int:
        """The bytes of the response that must be granted before the request is sent."""
        self._read_at_begin = self._read
        self._ends_at = _UNLIMITED_BYTES
        pacer = self._pacer
        if not pacer.bounded:
            return 0
        self._entered = True
        self._judge_at, self._judged_at = now + _JUDGE_EVERY_S, now
        self._judged_stream, self._has_waited, self.note = self._read, False, ""
        pacer.enter(now, self._site, self._readings, self)
        if self._background is not None:
            self._background.begin(self)
        if now >= self._check_buffer_at or self._version != pacer.version:
            self._resize(self._better_buffer(now))
        elif self._buffer_wanted > self._buffer_bytes:
            self._resize(self._buffer_wanted)  # the last response ended before it needed another grant
        self._buffer_wanted = self._buffer_bytes
        first_bytes = self._window_bytes
        if first_bytes + pacer.chunk_bytes < _LARGE_PART * pacer.capacity_bytes_per_s:
            first_bytes += pacer.chunk_bytes  # for the first read; on a slow link that is a grant of its own
        if (expected_bytes := pacer.first_bytes(self._readings)) < first_bytes:
            first_bytes = int(expected_bytes)
        largest_bytes = _MAX_REQUEST_CHUNKS * pacer.chunk_bytes
        if first_bytes > largest_bytes:
            # The kernel first advertises a part of a large window, and the rest when that has arrived.
            totals = self._wire.totals()
            if totals is not None and totals.offered_bytes is not None:
                return min(first_bytes, max(largest_bytes, totals.offered_bytes + pacer.chunk_bytes))
        return first_bytes

    def may_send(self, now: float) -> bool:
        """Whether the lease of the site still holds."""
        return now < self._pacer.asks_until

    def ask(self, now: float, stream_bytes: int, on_granted: OnGranted) -> bool:
        """Request a grant. True if granted at once; else `on_granted` is called later."""
        readings = self._readings
        self._progress_at = now
        wire_bytes = stream_bytes * readings.overhead_factor
        if self._pacer.try_at_once(now, self._site, readings, wire_bytes):
            self._note_grant(stream_bytes, wire_bytes)
            return True

        def granted() -> None:
            self._request = None
            self._note_grant(stream_bytes, wire_bytes)
            on_granted()

        self._requested_bytes, self._has_waited = stream_bytes, True
        self._request = self._pacer.ask(
            self._site, wire_bytes, granted, self._expected_bytes(stream_bytes, wire_bytes)
        )
        if self._request is None:
            self._note_grant(stream_bytes, wire_bytes)
            return True
        return False

    def read_limit(self, limit_bytes: int) -> int:
        """The most bytes that the next read may take."""
        if not self._pacer.bounded or self._granted >= self._ends_at:
            return limit_bytes  # after the rest of a response the server has nothing to send
        spare = max(self._granted - self._read - self._window_bytes, self._pacer.chunk_bytes)
        return min(limit_bytes, spare)

    def add_read(self, stream_bytes: int) -> None:
        self._read += stream_bytes
        self._reported += stream_bytes
        self._pacer.received_bytes += stream_bytes

    def lacking_bytes(self, now: float, remaining_bytes: int | None) -> int:
        """The bytes that must be granted before the next read. `remaining_bytes` of the response are still to
        come, if known."""
        if not self._pacer.bounded:
            return 0
        if not self._entered:  # the bound was set during this response
            self.poll(now, 1.0)
            self._entered = True
            self._pacer.enter(now, self._site, self._readings, self)
        if self._read - self._read_when_settled >= self._pacer.correct_every_bytes:
            self._wire_so_far += self._compare(now, more_to_come=True)
            self._buffer_wanted = self._better_buffer(now)
        elif now >= self._check_buffer_at or self._is_too_large or self._version != self._pacer.version:
            self._buffer_wanted = self._better_buffer(now)
        remaining = _UNLIMITED_BYTES
        if remaining_bytes is not None:
            remaining = remaining_bytes
            if self.secure:
                remaining = int(remaining_bytes * _TLS_FACTOR) + _TLS_ALLOWANCE_BYTES
        self._ends_at = self._read + remaining
        ahead = max(0, self._granted - self._read)
        if ahead >= remaining:
            if self._buffer_wanted > self._buffer_bytes:
                self._resize(self._buffer_wanted)  # lets nothing arrive that is not granted
            return 0
        # With a larger buffer, more has to be granted now: the rest through a small one may take seconds.
        window_bytes = max(self._window_bytes, held_unread_bytes(self._buffer_wanted))
        if ahead > window_bytes:
            return 0
        lacking = min(window_bytes + self._pacer.chunk_bytes, remaining) - ahead
        return min(lacking, _MAX_REQUEST_CHUNKS * self._pacer.chunk_bytes)

    def settle(self, now: float) -> int:
        """End an exchange. Returns the bytes on the link since the last call."""
        if self._request is not None:
            self._pacer.withdraw(self._request)
            self._request = None
        wire_bytes = self._wire_so_far + self._compare(now, more_to_come=False)
        self._wire_so_far = 0
        if self._background is not None:
            self._background.end(now, self)
        if self._entered and (answer_bytes := self._read - self._read_at_begin):
            self._readings.page_bytes += 0.3 * (answer_bytes - self._readings.page_bytes)
            self._read_at_begin = self._read
        if self._entered:
            self._entered = False
            self._pacer.leave(now, self._site, self._readings, self)
        return wire_bytes

    def arrivals(self) -> Arrivals | None:
        return self._wire.arrivals()

    def poll(self, now: float, lasted_s: float) -> tuple[float, float]:
        """Read the kernel's counts. Returns the bytes on the link since the last poll, and those granted that
        have not arrived."""
        totals = self._wire.totals()
        if totals is None:
            return 0.0, 0.0
        arrived = totals.received_bytes - self._wire_seen
        self._wire_seen = totals.received_bytes
        if arrived:
            self._progress_at = now
        elif now > self._progress_at + _STALLED_AFTER_S + self._readings.round_trip_s:
            return 0.0, 0.0
        self._stream_seen = totals.stream_bytes
        if now >= self._judge_at:
            self._judge(now, totals)
        if totals.offered_bytes is not None:
            self._offered = totals.offered_bytes
        if self._request is not None:
            # The buffer fills while the request waits, so what the next read makes arrive changes.
            self._request.expected_bytes = self._expected_bytes(
                self._requested_bytes, self._request.cost_bytes
            )
        # While bytes are unread, no more can arrive than the window that the kernel advertised.
        to_come = max(0, self._granted - totals.stream_bytes)
        if totals.offered_bytes is not None and totals.stream_bytes > self._read:
            to_come = min(to_come, totals.offered_bytes)
        outstanding = to_come * self._readings.overhead_factor
        return arrived, self._readings.observe(lasted_s, arrived, outstanding)

    def _judge(self, now: float, totals: WireTotals) -> None:
        """Look for a stalled download: a receive buffer that is too small for the server's packets makes the
        kernel drop them, and TCP then waits for timers that grow."""
        lasted_s = now - self._judged_at
        round_trip_s = self._readings.round_trip_s
        got, has_waited = totals.stream_bytes - self._judged_stream, self._has_waited
        self._judge_at = now + max(_JUDGE_EVERY_S, _JUDGE_ROUND_TRIPS * round_trip_s)
        self._judged_at, self._judged_stream, self._has_waited = now, totals.stream_bytes, False
        if has_waited or self._request is not None or self._granted <= totals.stream_bytes or not got:
            return  # our own pacing, or a server that is silent, for which there is a time-out
        share = min(self._pacer.share_bytes_per_s(self._site), self._window_bytes / (round_trip_s + 0.01))
        if got >= _STALLED_BELOW * share * lasted_s:
            return
        arrivals = self._wire.arrivals()
        lost = 0 if arrivals is None else arrivals.out_of_order
        if not lost and self._buffer_bytes > _SMALL_WINDOW_BYTES:
            return  # nothing of ours holds it up: the server is slow
        self._stalls += 1
        largest = max(_STALL_BUFFER_BYTES, int(_STALL_BUFFER_S * self._pacer.capacity_bytes_per_s))
        before, wanted = self._buffer_bytes, min(2 * self._buffer_bytes, largest)
        said = (
            f"slow for {lasted_s:.1f} s: {got} bytes came where {share * lasted_s:.0f} could"
            f" (window {totals.offered_bytes}, {lost} packets out of order)"
        )
        if wanted > before:
            self._least_buffer = wanted
            self._resize(wanted)
            said += f"; receive buffer {before} to {wanted} bytes"
        elif self._stalls == _STALLS_UNTIL_REPLACED:
            said += "; the next request gets a new connection"
        if self._stalls <= _STALLS_UNTIL_REPLACED:
            self.note = f"{self.note}; {said}" if self.note else said

    def _expected_bytes(self, stream_bytes: int, wire_bytes: float) -> float:
        """The bytes that a grant makes arrive, which are not always those it is for.

        The kernel closes its window when the buffer is full, and opens it when all has been read. Until then
        a read makes nothing arrive; then everything arrives that was granted meanwhile.
        """
        unread = self._stream_seen - self._read
        if self._offered >= SEGMENT_PAYLOAD_BYTES or unread <= 0:
            return wire_bytes
        if unread > self._pacer.chunk_bytes + SEGMENT_PAYLOAD_BYTES // 2:
            return 0.0
        return max(0, self._granted + stream_bytes - self._stream_seen) * self._readings.overhead_factor

    def _note_grant(self, stream_bytes: int, wire_bytes: float) -> None:
        # A grant covers the next bytes, even if more than was granted had arrived before.
        self._granted = max(self._read, self._granted) + stream_bytes
        self._wire_charged += wire_bytes
        if self._buffer_wanted != self._buffer_bytes:
            self._resize(self._buffer_wanted)

    def _compare(self, now: float, *, more_to_come: bool) -> int:
        """Replace the estimate by the kernel's counts, and charge or return the difference."""
        totals = self._wire.totals()
        read = self._read - self._read_when_settled
        self._read_when_settled = self._read
        outstanding = 0
        if totals is None:
            wire_bytes = estimated_wire_bytes(read)
        else:
            wire_bytes = totals.received_bytes - self._wire_when_settled
            sent_bytes = totals.sent_bytes - self._sent_when_settled
            self._wire_when_settled = totals.received_bytes
            self._sent_when_settled = totals.sent_bytes
            seen, self._wire_seen = self._wire_seen, totals.received_bytes
            self._pacer.note_sent(self._site, sent_bytes)
            if self._pacer.bounded:
                self._pacer.arrived_bytes += totals.received_bytes - seen
                outstanding = max(0, self._granted - totals.stream_bytes)
                if now >= self._learn_at:
                    self._learn(now, totals)
        self._pacer.received_bytes += wire_bytes - self._reported
        self._reported = 0
        if not more_to_come:
            self._granted = self._read
            outstanding = 0
        if not self._pacer.bounded:
            self._wire_charged = 0.0
            return wire_bytes
        still_charged = outstanding * self._readings.overhead_factor
        difference = wire_bytes + still_charged - self._wire_charged
        self._wire_charged = still_charged
        if abs(difference) < self._pacer.chunk_bytes / 8:
            self._wire_charged -= difference  # too small: included in the next comparison
        else:
            self._pacer.charge(self._site, difference)
        return wire_bytes

    def _learn(self, now: float, totals: WireTotals) -> None:
        self._learn_at = now + _LEARN_EVERY_S
        stream_bytes = totals.stream_bytes - self._stream_when_learned
        wire_bytes = totals.received_bytes - self._wire_when_learned
        self._stream_when_learned, self._wire_when_learned = totals.stream_bytes, totals.received_bytes
        self._readings.learn(now, stream_bytes, wire_bytes, totals.round_trip_s)

    def _learn_round_trip(self) -> None:
        totals = self._wire.totals()
        if totals is not None and totals.round_trip_s is not None:
            self._readings.round_trip_s = totals.round_trip_s

    def _better_buffer(self, now: float) -> int:
        """The buffer size to use from now on. It grows as soon as it helps. Shrinking loses packets that are
        on their way, so that waits until there are none."""
        self._check_buffer_at = now + _CHECK_BUFFER_EVERY_S
        self._buffer_best = wanted = max(self._pacer.buffer_bytes(self._site), self._least_buffer)
        if not self._scaled:
            wanted = min(wanted, UNSCALED_BUFFER_BYTES)
        changed, self._version = self._version != self._pacer.version, self._pacer.version
        if wanted > _GROW_ABOVE * self._buffer_bytes:
            # What a change of rates asked for stays wanted until a grant allows it.
            return wanted if changed else min(wanted, max(2 * self._buffer_bytes, self._buffer_wanted))
        self._is_too_large = wanted < _SHRINK_BELOW * self._buffer_bytes
        if self._is_too_large and self._wire.is_shut():
            self._resize(wanted)
        # A buffer sized by the kernel grows to megabytes, so it is set even if that loses packets.
        return wanted if self._is_automatic else self._buffer_bytes

    def _replace_below(self) -> float:
        """After the bound fell, a window that suited it is a burst, so that replacing the connection pays
        earlier."""
        fell = self._pacer.capacity_bytes_per_s < _BOUND_FELL_TO * self._capacity
        return _REPLACE_BELOW_AFTER_FALL if fell else _REPLACE_BELOW

    def _resize(self, buffer_bytes: int) -> None:
        """Set the buffer. A larger one lets more arrive at once, so between reads call this after the
        grant."""
        if buffer_bytes != self._buffer_bytes:
            self._is_automatic = self._is_too_large = False
            self._buffer_bytes = self._buffer_wanted = buffer_bytes
            self._capacity = self._pacer.capacity_bytes_per_s
            self._window_bytes = held_unread_bytes(buffer_bytes)
            self._wire.set_buffer(buffer_bytes)
