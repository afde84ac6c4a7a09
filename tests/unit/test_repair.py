"""What a power cut took from the files is fetched again, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from headway.model.command import PageState, SaveFound, SaveSettled
from headway.model.page import Kind, Outcome, Page, PageKey, Site
from headway.ports import Original, Response
from headway.store.reader import RunReader
from headway.store.run_folder import RunFolder
from headway.units import Instant, Seconds

SITE = Site("http://a.example")
NOW = Instant(1_800_000_000.0)
PAGES = [Page(f"{SITE}/{number}", SITE, PageKey(number), 1) for number in range(1, 9)]


def fetch(folder: RunFolder, page: Page, *, copy_of: Page | None = None) -> SaveSettled:
    body = os.urandom(2000) if copy_of is None else b"the same"
    digest = f"sha256:{(copy_of or page).key}"
    response = Response(
        Kind.FETCHED,
        page.url,
        NOW,
        Seconds(0.1),
        200,
        head=b"HTTP/1.1 200 OK\r\n\r\n",
        payload=body,
        body=body,
    )
    original = Original(copy_of.url, NOW) if copy_of is not None and copy_of is not page else None
    capture = folder.archive.write(response, digest=digest, revisit_of=original)
    kind = Kind.DUPLICATE if original else Kind.FETCHED
    outcome = Outcome(kind, 200, 2100, Seconds(0.1), "text/html", len(body), digest)
    return SaveSettled(page, outcome, PageState.DONE, 0, NOW, capture=capture)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Eight pages; the last is a copy of the seventh."""
    with RunFolder.open(tmp_path / "run", {}, NOW) as folder:
        folder.save([SaveFound(tuple(PAGES))])
        for page in PAGES[:6]:
            folder.save([fetch(folder, page)])
        folder.save([fetch(folder, PAGES[6], copy_of=PAGES[6])])
        folder.save([fetch(folder, PAGES[7], copy_of=PAGES[6])])
    return tmp_path / "run"


def captures(run: Path) -> dict[str, tuple[int, int]]:
    with RunReader(run) as reader:
        return {row.url: (row.warc_offset or 0, row.warc_length or 0) for row in reader.captures()}


def archive_of(run: Path) -> Path:
    return next((run / "archive").iterdir())


def archived(run: Path) -> list[str]:
    urls = []
    for path in (run / "archive").iterdir():
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                record.content_stream().read()
                if record.rec_type in {"response", "revisit"}:
                    urls.append(record.rec_headers.get_header("WARC-Target-URI"))
    return urls


def listed(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "pages.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kept", range(9))
def test_pages_whose_captures_were_lost_wait_again_and_no_others(run: Path, kept: int) -> None:
    offset, length = list(captures(run).values())[kept] if kept < 8 else (archive_of(run).stat().st_size, 0)
    os.truncate(archive_of(run), offset + length // 2)
    with RunFolder.open(run, {}, NOW) as folder:
        assert folder.snapshot is not None
        waiting = {record.page.url for record in folder.snapshot.waiting}
        assert bool(folder.repaired) == bool(waiting)
        assert waiting == {page.url for page in PAGES[kept:]}
        batch = [fetch(folder, page) for page in PAGES if page.url in waiting]
        folder.save(batch)
    urls = sorted(page.url for page in PAGES)
    assert sorted(archived(run)) == urls
    assert sorted(str(line["url"]) for line in listed(run)) == urls
    with RunReader(run) as reader:
        assert (reader.totals().done, reader.totals().waiting) == (8, 0)
    assert {str(line["url"]): line["warc_offset"] for line in listed(run)} == {
        url: offset for url, (offset, _) in captures(run).items()
    }


def test_a_list_of_pages_that_lost_its_end_is_written_again(run: Path) -> None:
    before = (run / "pages.jsonl").read_bytes()
    os.truncate(run / "pages.jsonl", 300)
    os.truncate(run / "crawl.log", 150)
    with RunFolder.open(run, {}, NOW) as folder:
        assert "pages.jsonl" in folder.repaired
        assert folder.snapshot is not None
        assert not folder.snapshot.waiting
    assert (run / "pages.jsonl").read_bytes() == before
    assert (run / "crawl.log").read_bytes().endswith(b"\n") or not (run / "crawl.log").stat().st_size


def test_a_copy_of_what_was_lost_is_fetched_again_as_well(run: Path) -> None:
    """Its record says only that it is the same as the lost one."""
    offset, _ = captures(run)[PAGES[6].url]
    os.truncate(archive_of(run), offset)
    with RunFolder.open(run, {}, NOW) as folder:
        assert folder.snapshot is not None
        assert {record.page.url for record in folder.snapshot.waiting} == {PAGES[6].url, PAGES[7].url}
        assert folder.store.find_digest("sha256:7") is None
