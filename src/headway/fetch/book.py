"""What is learned of a site while it is read; all of it are guesses that later measurements replace."""

from __future__ import annotations

from headway.fetch.wire import OVERHEAD_FACTOR

_UNKNOWN_PAGE_BYTES = 16 * 1024
_UNKNOWN_ROUND_TRIP_S = 0.02
_RATE_OVER_S = 1.0
_DELAY_OVER_S = 0.5
_MOST_DELAY_S = 0.5


class SiteBook:
    """Kept by the pacer, told by the meters."""

    __slots__ = (
        "_bytes",
        "_flowing",
        "_outstanding",
        "_since",
        "at_once",
        "delay_s",
        "inside",
        "is_sharing",
        "left_at",
        "overhead_factor",
        "page_bytes",
        "rate_bytes_per_s",
        "round_trip_s",
        "share",
    )

    def __init__(self) -> None:
        self.page_bytes = float(_UNKNOWN_PAGE_BYTES)
        """What an answer brings, on average of late."""
        self.round_trip_s = _UNKNOWN_ROUND_TRIP_S
        self.delay_s = _UNKNOWN_ROUND_TRIP_S
        """From a grant to the arrival of its bytes: a round trip, and what the server and its link take."""
        self._flowing = self._outstanding = 0.0
        self.overhead_factor = OVERHEAD_FACTOR
        """Wire bytes for one byte of the TCP stream."""
        self.rate_bytes_per_s = 0.0
        """What it delivered over the last second or so."""
        self._since = 0.0
        self._bytes = 0
        self.at_once = 0.0
        """The part of its asks, of late, that had to wait for a small part of their turn at most."""
        self.inside = 0
        """How many of its connections are at work."""
        self.is_sharing = False
        """Whether it is counted among those that share the link; for a while after the last has stopped."""
        self.left_at = 0.0
        self.share = 0.0
        """Its part of the link, smoothed: the others come and go with every page."""

    def saw(self, lasted_s: float, arrived_bytes: float, outstanding_bytes: float) -> float:
        """Little's law: what is on its way, by what arrives a second, is how long it is on its way.

        Returns how much of it may well arrive soon: a slow server's bytes come one after another.
        """
        part = min(1.0, lasted_s / _DELAY_OVER_S)
        self._flowing += part * (arrived_bytes / lasted_s - self._flowing)
        self._outstanding += part * (outstanding_bytes - self._outstanding)
        if self._flowing > 0.0:
            delay_s = self._outstanding / self._flowing
            most_s = self.round_trip_s + _MOST_DELAY_S
            self.delay_s = min(max(delay_s, self.round_trip_s), most_s)
            if delay_s > most_s:
                return outstanding_bytes * most_s / delay_s
        return outstanding_bytes

    def learn(self, now: float, stream_bytes: int, wire_bytes: int, round_trip_s: float | None) -> None:
        if stream_bytes > 0:
            factor = min(max(wire_bytes / stream_bytes, 1.0), 3.0)
            self.overhead_factor += 0.25 * (factor - self.overhead_factor)
            self._bytes += stream_bytes
            if (lasted_s := now - self._since) >= _RATE_OVER_S:
                self.rate_bytes_per_s = self._bytes / lasted_s
                self._since, self._bytes = now, 0
        if round_trip_s is not None:
            self.round_trip_s = round_trip_s
