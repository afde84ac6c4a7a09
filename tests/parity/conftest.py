"""The live crawls that the claims are about are made once, beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from live_crawl import Lived, all_crawls


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Lived]:
    return asyncio.run(all_crawls(tmp_path_factory.mktemp("lived"))).__getitem__
