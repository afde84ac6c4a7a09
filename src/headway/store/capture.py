"""What the archive tells the store of a capture, beside its place: enough to index and to refer to it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headway.units import Instant


class CaptureNote(msgspec.Struct, frozen=True, gc=False):
    """What the index must know of a capture beyond its place."""

    captured_at: Instant
    payload_digest: str
    record_type: str
    """response, revisit or resource."""


Notes = Mapping[tuple[str, int], CaptureNote]
"""By file and offset."""
