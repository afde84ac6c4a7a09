"""What a spider has learnt of servers is known to the next one; a file that is no use costs only that."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("scrapy")

from scrapy.utils.test import get_crawler

from headway.scrapy.link import Link, ServerRates
from headway.units import BytesPerSecond, Instant

NOW = Instant(1_800_000_000.0)
SERVER = "192.0.2.1"


def link_in(folder: Path) -> Link:
    return Link(get_crawler(settings_dict={"HEADWAY_DIR": str(folder), "HEADWAY_BANDWIDTH": "1 MB/s"}))


def test_a_rate_that_one_spider_has_learnt_is_predicted_by_the_next(tmp_path: Path) -> None:
    first, unknown = link_in(tmp_path), link_in(tmp_path).prediction.predict(NOW, SERVER)
    for _ in range(20):
        first.prediction.learn(NOW, SERVER, BytesPerSecond(5_000.0))
    first.save_learned()
    assert link_in(tmp_path).prediction.predict(NOW, SERVER) == first.prediction.predict(NOW, SERVER)
    assert first.prediction.predict(NOW, SERVER) < 0.1 * unknown


@pytest.mark.parametrize("content", [b"", b"this is no database, but some text that is long enough" * 30])
def test_a_file_that_cannot_be_read_is_reported_and_ignored(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "servers.sqlite").write_bytes(content)
    assert ServerRates(tmp_path).load() == []
    assert "the rates of servers are learnt again" in caplog.text
    link_in(tmp_path).save_learned()


def test_a_folder_that_cannot_be_written_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    ServerRates(tmp_path / "file").save([(SERVER, b"x")])
    assert "the rates of servers that were learnt are lost" in caplog.text
