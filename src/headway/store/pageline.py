"""What a line of `pages.jsonl` holds. Apart from `lines`, which is compiled."""

from __future__ import annotations

import msgspec


class PageLine(msgspec.Struct, frozen=True, gc=False):
    url: str
    site: str
    status: int
    content_type: str
    bytes: int
    depth: int
    digest: str
    fetched_at: str
    duration_s: float
    warc_file: str | None
    warc_offset: int | None
