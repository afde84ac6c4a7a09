"""For all tests: no property fails because the machine is busy, and CI draws the same examples each time."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings
from tests.support.postgres import TemporaryPostgres, find_postgres

import headway

settings.register_profile("headway", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("headway")
# Crawls of tests neither use nor leave what this user's crawls have learnt.
os.environ["HEADWAY_LEARNT"] = ""


def _import_warcio_without_brotli() -> None:
    """warcio fails on the module `brotli` that Scrapy brings, and is content without any: no record of ours
    needs it, since the archive keeps what servers sent as they sent it."""
    before = sys.modules.get("brotli")
    sys.modules["brotli"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("warcio.bufferedreaders")
    finally:
        del sys.modules["brotli"]
        if before is not None:
            sys.modules["brotli"] = before


_import_warcio_without_brotli()

SOURCES = Path(headway.__file__).parents[1]


def pytest_configure() -> None:
    """Python takes a compiled module however old it is: then tests would be of another source."""
    old = [
        source.relative_to(SOURCES)
        for source in (SOURCES / "headway").rglob("*.py")
        for built in source.parent.glob(f"{source.stem}.*.so")
        if built.stat().st_mtime < source.stat().st_mtime
    ]
    if old:
        names = ", ".join(map(str, old))
        pytest.exit(f"compiled before the source was last changed: {names}; run `make test`", returncode=4)


_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres_server():
    """A PostgreSQL server on a free port, its data in a temporary folder."""
    pytest.importorskip("psycopg")
    if find_postgres() is None:
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    with TemporaryPostgres() as server:
        yield server


@pytest.fixture
def postgres_store(postgres_server):
    """The address of a store in which there is no crawl yet."""
    return postgres_server.address(f"test{next(_numbers)}")
