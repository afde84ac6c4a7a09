"""kill -9 at random moments: after every reopening rows and files agree, and in the end all is there once."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from headway.store.reader import RunReader
from headway.store.run_folder import RunFolder

KILLS = 6
PAGES = 30_000

CRAWL = """
import sys
from headway.model.command import PageState, SaveFound, SaveSettled
from headway.model.page import Kind, Outcome
from headway.model.page import Page
from headway.ports import Response
from headway.store.run_folder import RunFolder

SITE, PAGES = "http://www.example.org", int(sys.argv[2])

def page(number):
    return Page(f"{SITE}/{number}", SITE, number)

folder = RunFolder.open(sys.argv[1], {}, 1000.0)
folder.archive._max_file_bytes = 200_000
seen = set() if folder.snapshot is None else set(folder.snapshot.seen.tolist())
waiting = [] if folder.snapshot is None else [record.page.key for record in folder.snapshot.waiting]
batch = []
if not seen:
    seen, waiting = {0}, [0]
    batch.append(SaveFound((page(0),)))
print("begun", flush=True)
done = 0
while waiting:
    number = waiting.pop(0)
    links = range(3 * number + 1, 3 * number + 4)
    new = [link for link in links if link < PAGES and link not in seen]
    seen.update(new)
    waiting.extend(new)
    body = b"page %d " % number * 40
    head = b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body)
    request = b"GET /%d HTTP/1.1\\r\\n\\r\\n" % number
    url = page(number).url
    response = Response(Kind.FETCHED, url, 1000.0, 0.1, 200, request_head=request, head=head, payload=body)
    capture = folder.archive.write(response, digest=f"x:{number}")
    outcome = Outcome(Kind.FETCHED, 200, len(body), 0.1, "text/html", len(body), f"x:{number}")
    links = tuple(map(page, new))
    batch += [SaveSettled(page(number), outcome, PageState.DONE, 0, 1001.0, capture=capture, links=links)]
    batch += [SaveFound(links)] if links else []
    folder.decisions.append({"decision": "fetch", "page": number})
    done += 1
    if done % 37 == 0:
        folder.save(batch)
        batch = []
folder.save(batch)
folder.close()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "crawl.py"
    path.write_text(CRAWL)
    return path


def test_after_any_kill_rows_and_files_agree_and_nothing_is_lost_or_doubled(tmp_path, script):
    run, dice = tmp_path / "run", random.Random(20261116)
    cut = []
    for _ in range(KILLS):
        _run_and_kill(script, run, dice.uniform(0.0, 0.25))
        before = _bytes_in(run)
        with RunFolder.open(run, {}, 1000.0):
            cut.append(before - _bytes_in(run))
            _check_rows_and_files_agree(run)
    assert _count_done(run) > 0, "the kills came before the first save; the test shows nothing"
    assert any(cut), "no kill fell between a write and its commit; the test shows nothing"
    subprocess.run(
        [sys.executable, script, run, str(PAGES // 10)], check=True, timeout=60, capture_output=True
    )
    pages = _check_rows_and_files_agree(run)
    assert sorted(pages) == sorted(set(pages))
    assert len(pages) >= PAGES // 10
    _check_tree_is_whole(run)


def test_a_kill_while_the_folder_is_made_leaves_one_that_can_be_opened(tmp_path, script):
    dice = random.Random(4)
    for attempt in range(4):
        run = tmp_path / f"run{attempt}"
        process = subprocess.Popen([sys.executable, script, run, "100"], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not run.exists() and time.monotonic() < deadline:
            time.sleep(0.0005)
        time.sleep(dice.uniform(0, 0.02))
        _kill(process)
        with RunFolder.open(run, {}, 1000.0):
            _check_rows_and_files_agree(run)


def _run_and_kill(script, run, after_s):
    process = subprocess.Popen([sys.executable, script, run, str(PAGES)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    time.sleep(after_s)
    assert process.poll() is None, "the crawl ended before it was killed: give it more pages"
    _kill(process)


def _kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _bytes_in(run):
    return sum(path.stat().st_size for path in run.rglob("*") if path.suffix in {".gz", ".jsonl", ".log"})


def _count_done(run):
    with RunReader(run) as reader:
        return reader.totals().done


def _check_rows_and_files_agree(run: Path) -> list[str]:
    with RunReader(run) as reader:
        rows = list(reader.pages())
        assert reader.totals().done == len(rows)
    _check_archive(run, {row.url for row in rows})
    for row in rows:
        with (run / row.warc_file).open("rb") as file:
            file.seek(row.warc_offset)
            record = zlib.decompressobj(31).decompress(file.read(row.warc_length))
        assert f"WARC-Target-URI: {row.url}\r\n".encode() in record
    lines = [json.loads(line) for line in (run / "pages.jsonl").read_text().splitlines()]
    assert [line["url"] for line in lines] == [row.url for row in rows]
    assert [line["warc_offset"] for line in lines] == [row.warc_offset for row in rows]
    assert len((run / "crawl.log").read_text().splitlines()) == len(rows)
    assert len((run / "decisions.jsonl").read_text().splitlines()) == len(rows)
    return [row.url for row in rows]


def _check_archive(run, urls):
    """Every file is valid to its end and holds each page once, no other."""
    found = []
    for path in (run / "archive").iterdir():
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise"):
                record.raw_stream.read()
                if record.rec_type == "response":
                    found.append(record.rec_headers.get_header("WARC-Target-URI"))
    assert len(found) == len(set(found))
    assert set(found) == urls


def _check_tree_is_whole(run):
    """Every page that a settled page links to is settled or was beyond the last run's end."""
    with RunReader(run) as reader:
        assert reader.totals().waiting == 0
        numbers = {row.key for row in reader.pages()}
    for number in numbers:
        links = [3 * number + 1, 3 * number + 2, 3 * number + 3]
        assert all(link in numbers for link in links if link < PAGES // 10)
