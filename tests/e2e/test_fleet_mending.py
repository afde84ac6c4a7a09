"""A collector whose files a power cut has shortened takes up its folder; what was lost is fetched again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from headway.store.postgres.reader import PostgresReader
from headway.testing.fleetweb import FleetWeb

HEADWAY = Path(sys.executable).with_name("headway")


def crawl(web, store, out, expected=0):
    options = ["--allow-private", "--interval", "0.02s", "--store", store, "-o", out]
    done = subprocess.run(
        [HEADWAY, "crawl", *web.seeds, *options], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == expected, done.stderr.decode()
    return done.stderr.decode()


def archive_of(out):
    (path,) = (out / "archive").iterdir()
    return path


def test_pages_whose_captures_were_lost_are_fetched_again(postgres_store, tmp_path):
    with FleetWeb(sites=2, pages=10) as web:
        crawl(web, postgres_store, tmp_path / "c")
        asked = len(web.asked)
        archive = archive_of(tmp_path / "c")
        os.truncate(archive, archive.stat().st_size // 2)
        os.truncate(tmp_path / "c" / "pages.jsonl", 100)
        said = crawl(web, postgres_store, tmp_path / "c")
        again = {(each.site, each.path) for each in web.asked[asked:] if each.path != "/robots.txt"}
    assert "lost their ends" in said
    assert 5 < len(again) < 15
    with PostgresReader(postgres_store) as reader:
        kept = {page.url for page in reader.captures()}
        assert reader.totals().waiting == 0
    assert len(kept) == 20
    index = (tmp_path / "c" / "indexes" / "index.cdxj").read_text().splitlines()
    assert len(index) == 20


def test_a_file_that_is_gone_altogether_is_for_a_person_to_decide(postgres_store, tmp_path):
    with FleetWeb(sites=1, pages=3) as web:
        crawl(web, postgres_store, tmp_path / "c")
        archive_of(tmp_path / "c").unlink()
        said = crawl(web, postgres_store, tmp_path / "c", expected=5)
    assert "bytes are missing" in said
    assert "Traceback" not in said
