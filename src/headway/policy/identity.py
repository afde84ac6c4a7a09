"""Our name, as rules for robots call us."""

from __future__ import annotations

import functools
import re

_TOKEN = re.compile(r"[^\s/;,()]+")
_COMPATIBLE = re.compile(r"\(\s*compatible\s*;\s*([^\s/;,()]+)", re.IGNORECASE)


@functools.lru_cache(maxsize=64)
def product_token(user_agent: str) -> str:
    """The product token (RFC 9309 2.2.1) of a User-Agent header, in lower case.

    `mybot` of `mybot/1.0 (+https://example.org/bot)`, and of `Mozilla/5.0 (compatible; MyBot/1.0)`, where
    the first name is a disguise.
    """
    match = _COMPATIBLE.search(user_agent)
    if match:
        return match[1].lower()
    match = _TOKEN.search(user_agent)
    return match[0].lower() if match else ""
