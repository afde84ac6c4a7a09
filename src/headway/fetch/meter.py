"""The books of one connection: what may arrive, what has been read, what it cost on the wire.

The kernel takes in a window's worth unread. So before a read makes room for more, more must have been
granted: what is read plus the window never exceeds what was granted, until the answer is known to be covered.
"""

from __future__ import annotations

import socket

from headway.fetch.pacer import OnGranted, Pacer
from headway.fetch.wire import (
    DEFAULT_BUFFER_BYTES,
    SEGMENT_PAYLOAD_BYTES,
    UNSCALED_BUFFER_BYTES,
    Crossed,
    Wire,
    estimated_wire_bytes,
    held_unread_bytes,
)
from headway.fetch.wishes import Ask
from headway.model.page import Site

_TLS_FACTOR = 1.02
_TLS_ALLOWANCE_BYTES = 64
_UNLIMITED_BYTES = 1 << 62
_GROW_WHEN_OFF_BY = 1.05
_SHRINK_WHEN_OFF_BY = 0.7
_RENEW_WHEN_OFF_BY = 0.25
_RENEW_WHEN_BOUND_FELL = 0.6
_FELL_TO = 0.7
_LOOK_EVERY_S = 0.25
_LEARN_EVERY_S = 0.1
_STALLED_AFTER_S = 0.5
_LARGEST_ASK_CHUNKS = (
    8  # a large one must wait until the second has room for all of it, and all others with it
)


class Meter:
    """An exchange calls `begin`, then `took` and `lacks` after each read, then `settle`."""

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
        self._book = pacer.book(site)
        self._wire = Wire(sock)
        self._scaled = buffer_bytes is None or buffer_bytes >= UNSCALED_BUFFER_BYTES
        self._buffer_bytes = DEFAULT_BUFFER_BYTES if buffer_bytes is None else buffer_bytes
        # A buffer that was never set grows to megabytes by itself. The scale of the window is agreed by now.
        self._grows_by_itself = buffer_bytes is None
        if buffer_bytes is not None and self._scaled:
            self._wire.set_buffer(buffer_bytes)
        self._too_wide = False
        """For a bound or a share that fell since; it shrinks as soon as nothing is on its way."""
        self._buffer_wanted = self._buffer_bytes
        self._buffer_best = self._buffer_bytes
        self._look_at = 0.0
        self._version = pacer.version
        self._capacity = pacer.capacity_bytes_per_s
        """The bound for which the buffer was chosen."""
        self._window_bytes = held_unread_bytes(self._buffer_bytes)
        self._wish: Ask[Site] | None = None
        self._wished_bytes = 0
        """Of the stream: what the wish is for."""
        self._entered = False
        self.secure = False
        # All counts are of stream bytes since the connection was opened, but for those that say wire.
        self._granted = 0
        self._read = 0
        self._read_at_begin = 0
        self._read_when_settled = 0
        self._wire_when_settled = 0
        self._sent_when_settled = 0
        self._wire_charged = charged_bytes
        self._learn_at = 0.0
        self._stream_when_learned = self._wire_when_learned = 0
        self._wire_seen = self._stream_seen = 0
        self._offered = _UNLIMITED_BYTES
        self._moved_at = 0.0
        """When bytes were last granted or seen to arrive."""
        self._reported = 0
        self._wire_so_far = 0
        self._learn_distance()

    @property
    def bounded(self) -> bool:
        return self._pacer.bounded

    @property
    def misfit(self) -> bool:
        """Whether a new connection would serve better: a buffer shrinks badly, a small one grows badly."""
        if not self._pacer.bounded:
            return not self._scaled
        if self._version != self._pacer.version:
            self._buffer_best = self._pacer.buffer_bytes(self._site)
        wanted = self._buffer_best
        too_small = not self._scaled and wanted >= UNSCALED_BUFFER_BYTES
        return too_small or wanted < self._renewed_when_off_by() * self._buffer_bytes

    def begin(self, now: float) -> int:
        """How much of the answer must be granted before the request goes out."""
        self._read_at_begin = self._read
        pacer = self._pacer
        if not pacer.bounded:
            return 0
        self._entered = True
        pacer.enter(now, self._site, self._book, self)
        if now >= self._look_at or self._version != pacer.version:
            self._resize(self._better_buffer(now))
        self._buffer_wanted = self._buffer_bytes
        first_bytes = self._window_bytes + pacer.chunk_bytes
        if self._book.page_bytes < first_bytes:
            first_bytes = int(self._book.page_bytes)
        largest_bytes = _LARGEST_ASK_CHUNKS * pacer.chunk_bytes
        if first_bytes > largest_bytes:
            # The kernel offers a part of a wide window first, and the rest only when that has come.
            crossed = self._wire.crossed()
            if crossed is not None and crossed.offered_bytes is not None:
                return min(first_bytes, max(largest_bytes, crossed.offered_bytes + pacer.chunk_bytes))
        return first_bytes

    def may_ask(self, now: float) -> bool:
        return now < self._pacer.asks_until

    def ask(self, now: float, stream_bytes: int, on_granted: OnGranted) -> bool:
        """True when granted at once; else `on_granted` is called when it is."""
        book = self._book
        self._moved_at = now
        wire_bytes = stream_bytes * book.overhead_factor
        if self._pacer.try_at_once(now, self._site, book, wire_bytes):
            self._note_grant(stream_bytes, wire_bytes)
            return True

        def granted() -> None:
            self._wish = None
            self._note_grant(stream_bytes, wire_bytes)
            on_granted()

        self._wished_bytes = stream_bytes
        self._wish = self._pacer.ask(self._site, wire_bytes, granted, self._brings(stream_bytes, wire_bytes))
        if self._wish is None:
            self._note_grant(stream_bytes, wire_bytes)
            return True
        return False

    def room(self, limit_bytes: int) -> int:
        """How much the next read may take."""
        if not self._pacer.bounded:
            return limit_bytes
        spare = max(self._granted - self._read - self._window_bytes, self._pacer.chunk_bytes)
        return min(limit_bytes, spare)

    def took(self, stream_bytes: int) -> None:
        self._read += stream_bytes
        self._reported += stream_bytes
        self._pacer.received_bytes += stream_bytes

    def lacks(self, now: float, remaining_bytes: int | None) -> int:
        """What must be granted before the next read; so much of the answer is still to come, if known."""
        if not self._pacer.bounded:
            return 0
        if not self._entered:  # the bound came while this was under way
            self.look(now, 1.0)
            self._entered = True
            self._pacer.enter(now, self._site, self._book, self)
        if self._read - self._read_when_settled >= self._pacer.correct_every_bytes:
            self._wire_so_far += self._compare(now, more_to_come=True)
            self._buffer_wanted = self._better_buffer(now)
        elif now >= self._look_at or self._too_wide or self._version != self._pacer.version:
            self._buffer_wanted = self._better_buffer(now)
        remaining = _UNLIMITED_BYTES
        if remaining_bytes is not None:
            remaining = remaining_bytes
            if self.secure:
                remaining = int(remaining_bytes * _TLS_FACTOR) + _TLS_ALLOWANCE_BYTES
        ahead = max(0, self._granted - self._read)
        if ahead > self._window_bytes or ahead >= remaining:
            return 0
        window_bytes = max(self._window_bytes, held_unread_bytes(self._buffer_wanted))
        lacking = min(window_bytes + self._pacer.chunk_bytes, remaining) - ahead
        return min(lacking, _LARGEST_ASK_CHUNKS * self._pacer.chunk_bytes)

    def settle(self, now: float) -> int:
        """Nothing more is to come for now. Returns the wire bytes since the last time."""
        if self._wish is not None:
            self._pacer.withdraw(self._wish)
            self._wish = None
        wire_bytes = self._wire_so_far + self._compare(now, more_to_come=False)
        self._wire_so_far = 0
        if self._entered and (answer_bytes := self._read - self._read_at_begin):
            self._book.page_bytes += 0.3 * (answer_bytes - self._book.page_bytes)
            self._read_at_begin = self._read
        if self._entered:
            self._entered = False
            self._pacer.leave(now, self._site, self._book, self)
        return wire_bytes

    def look(self, now: float, lasted_s: float) -> tuple[float, float]:
        """Wire bytes that have arrived since the last look, and those granted that are still to come."""
        crossed = self._wire.crossed()
        if crossed is None:
            return 0.0, 0.0
        arrived = crossed.received_bytes - self._wire_seen
        self._wire_seen = crossed.received_bytes
        if arrived:
            self._moved_at = now
        elif now > self._moved_at + _STALLED_AFTER_S + self._book.round_trip_s:
            return 0.0, 0.0
        self._stream_seen = crossed.stream_bytes
        if crossed.offered_bytes is not None:
            self._offered = crossed.offered_bytes
        if self._wish is not None:
            # The buffer fills while the wish waits, so what its read will bring is known only now.
            self._wish.brings_bytes = self._brings(self._wished_bytes, self._wish.cost_bytes)
        # While something is unread, no more can come than the window that the kernel offered with it.
        to_come = max(0, self._granted - crossed.stream_bytes)
        if crossed.offered_bytes is not None and crossed.stream_bytes > self._read:
            to_come = min(to_come, crossed.offered_bytes)
        outstanding = to_come * self._book.overhead_factor
        return arrived, self._book.saw(lasted_s, arrived, outstanding)

    def _brings(self, stream_bytes: int, wire_bytes: float) -> float:
        """What a grant makes arrive, which is not always what it is for.

        The kernel shuts its window on a full buffer, and opens it again when that has been read empty: until
        then a read brings nothing, and then all comes that was granted meanwhile.
        """
        unread = self._stream_seen - self._read
        if self._offered >= SEGMENT_PAYLOAD_BYTES or unread <= 0:
            return wire_bytes
        if unread > self._pacer.chunk_bytes + SEGMENT_PAYLOAD_BYTES // 2:
            return 0.0
        return max(0, self._granted + stream_bytes - self._stream_seen) * self._book.overhead_factor

    def _note_grant(self, stream_bytes: int, wire_bytes: float) -> None:
        # A grant covers what comes next, also where more had come already than was granted before.
        self._granted = max(self._read, self._granted) + stream_bytes
        self._wire_charged += wire_bytes
        if self._buffer_wanted != self._buffer_bytes:
            self._resize(self._buffer_wanted)

    def _compare(self, now: float, *, more_to_come: bool) -> int:
        """Put the kernel's count in the place of our reckoning, and learn from the difference."""
        crossed = self._wire.crossed()
        read = self._read - self._read_when_settled
        self._read_when_settled = self._read
        outstanding = 0
        if crossed is None:
            wire_bytes = estimated_wire_bytes(read)
        else:
            wire_bytes = crossed.received_bytes - self._wire_when_settled
            sent_bytes = crossed.sent_bytes - self._sent_when_settled
            self._wire_when_settled = crossed.received_bytes
            self._sent_when_settled = crossed.sent_bytes
            seen, self._wire_seen = self._wire_seen, crossed.received_bytes
            self._pacer.note_sent(self._site, sent_bytes)
            if self._pacer.bounded:
                self._pacer.arrived_bytes += crossed.received_bytes - seen
                outstanding = max(0, self._granted - crossed.stream_bytes)
                if now >= self._learn_at:
                    self._learn(now, crossed)
        self._pacer.received_bytes += wire_bytes - self._reported
        self._reported = 0
        if not more_to_come:
            self._granted = self._read
            outstanding = 0
        if not self._pacer.bounded:
            self._wire_charged = 0.0
            return wire_bytes
        still_charged = outstanding * self._book.overhead_factor
        difference = wire_bytes + still_charged - self._wire_charged
        self._wire_charged = still_charged
        if abs(difference) < self._pacer.chunk_bytes / 8:
            self._wire_charged -= difference  # it is put right with the next page
        else:
            self._pacer.charge(self._site, difference)
        return wire_bytes

    def _learn(self, now: float, crossed: Crossed) -> None:
        self._learn_at = now + _LEARN_EVERY_S
        stream_bytes = crossed.stream_bytes - self._stream_when_learned
        wire_bytes = crossed.received_bytes - self._wire_when_learned
        self._stream_when_learned, self._wire_when_learned = crossed.stream_bytes, crossed.received_bytes
        self._book.learn(now, stream_bytes, wire_bytes, crossed.round_trip_s)

    def _learn_distance(self) -> None:
        crossed = self._wire.crossed()
        if crossed is not None and crossed.round_trip_s is not None:
            self._book.round_trip_s = crossed.round_trip_s

    def _better_buffer(self, now: float) -> int:
        """Larger as soon as it helps. Shrinking loses packets on their way, so it waits until none are."""
        self._look_at = now + _LOOK_EVERY_S
        self._buffer_best = wanted = self._pacer.buffer_bytes(self._site)
        if not self._scaled:
            wanted = min(wanted, UNSCALED_BUFFER_BYTES)
        changed, self._version = self._version != self._pacer.version, self._pacer.version
        if wanted > _GROW_WHEN_OFF_BY * self._buffer_bytes:
            return wanted if changed else min(wanted, 2 * self._buffer_bytes)
        self._too_wide = wanted < _SHRINK_WHEN_OFF_BY * self._buffer_bytes
        if self._too_wide and self._wire.is_shut():
            self._resize(wanted)
        # The kernel lets its own buffer grow without end; that one must be tied down, whatever it costs.
        return wanted if self._grows_by_itself else self._buffer_bytes

    def _renewed_when_off_by(self) -> float:
        """A bound that fell makes of a window that suited it a burst; else a new connection costs more."""
        fell = self._pacer.capacity_bytes_per_s < _FELL_TO * self._capacity
        return _RENEW_WHEN_BOUND_FELL if fell else _RENEW_WHEN_OFF_BY

    def _resize(self, buffer_bytes: int) -> None:
        """A larger buffer lets more arrive at once, so between reads this waits for the grant."""
        if buffer_bytes != self._buffer_bytes:
            self._grows_by_itself = self._too_wide = False
            self._buffer_bytes = self._buffer_wanted = buffer_bytes
            self._capacity = self._pacer.capacity_bytes_per_s
            self._window_bytes = held_unread_bytes(buffer_bytes)
            self._wire.set_buffer(buffer_bytes)
