"""The links of a page that a worker process sent. Apart from `rows`, which is compiled."""

from __future__ import annotations

from typing import Self

from headway.model.page import Page


class PackedLinks(tuple[Page, ...]):  # noqa: SLOT001  slots of a tuple hold nothing
    """Links of which only the blob is to be kept, as `rows.links_blob` made it; to whoever looks for pages
    there are none."""

    blob: bytes

    @classmethod
    def of(cls, blob: bytes) -> Self:
        links = cls()
        links.blob = blob
        return links
