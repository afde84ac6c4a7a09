"""What waits for the link: the asks, and the place of each site among them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Ask(Generic[Key]):
    """One wish for `cost_bytes` to arrive; `granted` until withdrawn."""

    __slots__ = (
        "asked_at",
        "brings_bytes",
        "cost_bytes",
        "granted",
        "key",
        "latency_s",
        "soonest_s",
        "withdrawn",
    )

    def __init__(self, asked_at: float, key: Key, cost_bytes: float, latency_s: float) -> None:
        self.asked_at = asked_at
        self.key = key
        self.cost_bytes = cost_bytes
        self.latency_s = self.soonest_s = latency_s
        """How long after it is granted its bytes should arrive, and could."""
        self.brings_bytes = cost_bytes
        """What will arrive then: with what was granted before, or nothing yet. May change while it waits."""
        self.granted = False
        self.withdrawn = False


class Flow:
    """A site's place in the queue: `claim` is its guaranteed rate, 0 where it has none of its own."""

    __slots__ = ("active", "claim", "finish_tag", "last_cost_bytes")

    def __init__(self, claim: float, finish_tag: float) -> None:
        self.claim = claim
        self.finish_tag = finish_tag
        self.last_cost_bytes = 0.0
        self.active = False
