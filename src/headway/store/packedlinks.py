"""Links that come packed. Apart from `rows`, which is compiled: there, nothing can be derived from bytes."""

from __future__ import annotations


class PackedLinks(bytes):
    """Links of a page of which only this is to be kept, as `rows.links_blob` made it."""
