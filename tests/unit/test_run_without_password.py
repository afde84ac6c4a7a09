"""What a run folder remembers of its job can be read by others."""

from __future__ import annotations

from pathlib import Path

import headway as hw
from headway.app.crawling import CrawlRun
from headway.store.reader import RunReader


def test_the_proxys_login_is_not_kept(tmp_path: Path) -> None:
    plan = hw.Plan(tasks=[hw.Task("https://example.org/")], proxy="http://me:secret@proxy.test:3128")
    CrawlRun(plan.job, tmp_path / "run").folder.close()
    with RunReader(tmp_path / "run") as reader:
        assert "secret" not in str(reader.job)
        assert "proxy.test:3128" in str(reader.job)
    assert b"secret" not in (tmp_path / "run" / "crawl.sqlite").read_bytes()
