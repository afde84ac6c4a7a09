"""What the kills have cost, from four witnesses: the server's log, the store, the archive and pages.jsonl."""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from benchmarks.faults.killing import Kill
from benchmarks.faults.web import Asked
from warcio.archiveiterator import ArchiveIterator

from headway.store.reader import RunReader


class Count(msgspec.Struct, frozen=True):
    expected: int
    lost: int
    unexpected: int
    wrong_size: int
    listed_twice: int
    asked: int
    asked_again: int
    """In flight, or fetched and not yet committed, when a kill came."""
    asked_after_commit: int
    """What must never be."""
    robots_asked_again: int
    warc_files: int
    warc_records: int
    warc_bad: int
    archived_twice: int
    rows_disagreeing: int

    @property
    def is_clean(self) -> bool:
        wrong = (self.lost, self.unexpected, self.wrong_size, self.listed_twice, self.asked_after_commit)
        return not any((*wrong, self.warc_bad, self.archived_twice, self.rows_disagreeing))


def count(
    run: Path, expected_bytes: Mapping[str, int], asked: Iterable[Asked], kills: Sequence[Kill]
) -> Count:
    lines = [json.loads(line) for line in (run / "pages.jsonl").read_text().splitlines()]
    listed = Counter(line["url"] for line in lines)
    robots, pages = _apart(asked)
    archived, bad, files = _archived(run)
    return Count(
        expected=len(expected_bytes),
        lost=len(expected_bytes.keys() - listed.keys()),
        unexpected=len(listed.keys() - expected_bytes.keys()),
        wrong_size=sum(line["bytes"] != expected_bytes.get(line["url"]) for line in lines),
        listed_twice=sum(listed.values()) - len(listed),
        asked=len(pages),
        asked_again=len(pages) - len({request.url for request in pages}),
        asked_after_commit=sum(_was_committed(request, kills) for request in pages),
        robots_asked_again=len(robots) - len({request.url for request in robots}),
        warc_files=files,
        warc_records=sum(archived.values()),
        warc_bad=bad,
        archived_twice=sum(archived.values()) - len(archived),
        rows_disagreeing=_disagreeing(run, listed),
    )


def _apart(asked: Iterable[Asked]) -> tuple[list[Asked], list[Asked]]:
    robots: list[Asked] = []
    pages: list[Asked] = []
    for request in asked:
        (robots if request.url.endswith("/robots.txt") else pages).append(request)
    return robots, pages


def _was_committed(request: Asked, kills: Sequence[Kill]) -> bool:
    """Whether the store held the page already when the process that asks was started."""
    before = bisect_right(kills, request.at, key=lambda kill: kill.at)
    return before > 0 and request.url in kills[before - 1].committed


def _archived(run: Path) -> tuple[Counter[str], int, int]:
    """How often each URL was archived; how many files are not whole; and how many there are."""
    urls: Counter[str] = Counter()
    bad = files = 0
    for path in sorted((run / "archive").iterdir()):
        files += 1
        try:
            with path.open("rb") as file:
                for record in ArchiveIterator(file, check_digests="raise"):
                    record.content_stream().read()
                    if record.rec_type in {"response", "revisit"}:
                        urls[record.rec_headers.get_header("WARC-Target-URI")] += 1
        except Exception as problem:
            print(f"  {path.name}: {problem}")
            bad += 1
    return urls, bad, files


def _disagreeing(run: Path, listed: Counter[str]) -> int:
    """Rows whose place in the archive holds another page, and pages that only rows or pages.jsonl have."""
    wrong = 0
    urls = set()
    with RunReader(run) as reader:
        for row in reader.captures():
            urls.add(row.url)
            assert row.warc_file is not None
            assert row.warc_offset is not None
            with (run / row.warc_file).open("rb") as file:
                file.seek(row.warc_offset)
                record = zlib.decompressobj(31).decompress(file.read(row.warc_length or 0))
            wrong += f"WARC-Target-URI: {row.url}\r\n".encode() not in record
    return wrong + len(urls ^ listed.keys())
