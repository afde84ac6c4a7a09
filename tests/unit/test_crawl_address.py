"""The address of a crawl on a server, as it is shown in messages and logs."""

from __future__ import annotations

import pytest

from headway.store.postgres.connection import Address


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me@db/crawls", "postgresql://me@db/crawls#crawl"),
        ("postgresql://db:5432/crawls", "postgresql://db:5432/crawls#crawl"),
        ("postgresql://me:hunter2@db/crawls", "postgresql://me:***@db/crawls#crawl"),
        ("postgresql://me:hun:ter2@db/crawls#news", "postgresql://me:***@db/crawls#news"),
        ("postgresql://me:hun@ter2@db/crawls", "postgresql://me:***@db/crawls#crawl"),
        (
            "postgresql://db/crawls?user=me&password=hunter2",
            "postgresql://db/crawls?user=me&password=***#crawl",
        ),
        (
            "postgresql://db/crawls?password=hunter2&sslmode=require#news",
            "postgresql://db/crawls?password=***&sslmode=require#news",
        ),
    ],
)
def test_the_password_is_never_shown(url: str, shown: str) -> None:
    assert Address.parse(url).shown == shown
