"""What a run folder remembers of its job can be read by others."""

from __future__ import annotations

from pathlib import Path

import pytest

import headway as hw
from headway.runtime.crawling import CrawlRun
from headway.store.reader import RunReader
from headway.store.sqlite import SqliteStore
from headway.units import Instant


def test_the_proxys_login_is_not_kept(tmp_path: Path) -> None:
    plan = hw.Plan(tasks=[hw.Task("https://example.org/")], proxy="http://me:my-password@proxy.test:3128")
    CrawlRun(plan.job, tmp_path / "run").folder.close()
    with RunReader(tmp_path / "run") as reader:
        assert "my-password" not in str(reader.job)
        assert "proxy.test:3128" in str(reader.job)
    assert b"my-password" not in (tmp_path / "run" / "crawl.sqlite").read_bytes()


def test_nor_is_it_by_run_scrapy(tmp_path: Path) -> None:
    mastering = pytest.importorskip("headway.scrapy.running")
    job = hw.Plan(tasks=[hw.Task("https://example.org/")], proxy="http://me:my-password@proxy.test:3128").job
    store = SqliteStore(tmp_path / "crawl.sqlite")
    try:
        mastering.configure(Instant(1.0), job, {job.sites[0].site: []}, {}, store)
    finally:
        store.close()
    with RunReader(tmp_path) as reader:
        assert reader.job["crawl"]["proxy"] == "http://proxy.test:3128"
    assert b"my-password" not in (tmp_path / "crawl.sqlite").read_bytes()
