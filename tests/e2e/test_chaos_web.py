"""A crawl of the chaos web comes to its end, and every page of it is settled as its site's design says."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.chaos.process import ChaosProcess
from tests.support.chaos.roster import ROSTER
from warcio.archiveiterator import ArchiveIterator

from headway.store.reader import RunReader

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.soak.crawling import (  # noqa: E402
    Settled,
    build,
    chaos_sites,
    crawl,
    settled_by_site,
    write_authority,
)


@pytest.fixture(scope="module")
def chaos() -> Iterator[ChaosProcess]:
    with ChaosProcess() as served:
        yield served


@pytest.fixture(scope="module")
def run(chaos: ChaosProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chaos")
    # Fewer at a time than there are sites, so that a busy machine keeps within the short time-outs.
    job = build(chaos_sites(chaos), ca_file=write_authority(chaos, folder), max_connections=48)
    crawl(job, folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def settled(chaos: ChaosProcess, run: Path) -> dict[str, dict[str, Settled]]:
    by_origin = settled_by_site(run, chaos.origins.values())
    return {name: by_origin[origin] for name, origin in chaos.origins.items()}


@pytest.mark.parametrize("name", ROSTER)
def test_each_page_ends_as_its_kind_of_trouble_should(
    name: str, settled: dict[str, dict[str, Settled]]
) -> None:
    assert {path: page.kind for path, page in settled[name].items()} == ROSTER[name].expected


@pytest.mark.parametrize("name", [site.name for site in ROSTER.values() if site.because is not None])
def test_the_reason_for_missing_rules_is_reported(name: str, settled: dict[str, dict[str, Settled]]) -> None:
    because = ROSTER[name].because
    assert {page.detail.partition(":")[0] for page in settled[name].values()} == {because}


def test_nothing_is_left_waiting(run: Path) -> None:
    with RunReader(run) as reader:
        assert reader.totals().waiting == 0


def test_the_archive_is_valid_whatever_the_servers_sent(run: Path) -> None:
    records = 0
    for path in sorted((run / "archive").iterdir()):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                record.content_stream().read()
                records += 1
    assert records > len(ROSTER)


def test_logs_are_one_line_an_entry_whatever_the_servers_sent(run: Path) -> None:
    lines = (run / "crawl.log").read_bytes().splitlines()
    assert len(lines) > 50
    assert all(len(line.split(None, 10)) == 11 for line in lines)
    assert not any(octet < 32 for line in lines for octet in line)
    for line in (run / "pages.jsonl").read_text().splitlines():
        assert json.loads(line)["url"].isascii()
