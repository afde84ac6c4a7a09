"""The name of a page's content, by which copies are recognised."""

from __future__ import annotations

import hashlib


def content_digest(content: bytes) -> str:
    """`sha256:` and the sum in hex, which `sha256sum` on the saved content prints as well.

    It is taken of the content with its coding removed: the same page may be compressed anew, and
    differently, at every request.
    """
    return "sha256:" + hashlib.sha256(content).hexdigest()
