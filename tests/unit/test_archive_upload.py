"""Finished archive files go to an S3 storage whole and once; what is not finished or not committed stays."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.fleetweb import FleetWeb

from headway.cluster.folder import CollectorFolder, Uploader
from headway.errors import StoreError

s3fs = pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")

FULL, OPEN, EXTRA = (f"archive/headway-{name}.warc.gz" for name in ("full", "open", "extra"))
LENGTHS = {FULL: 3000, OPEN: 100, EXTRA: 50, "pages.jsonl": 0}


@pytest.fixture(scope="module")
def storage():
    server = moto_server.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fs = s3fs.S3FileSystem(skip_instance_cache=True)
        fs.mkdir("crawls")
        yield fs
    server.stop()


@pytest.fixture
def folder(tmp_path):
    claimed = CollectorFolder.claim(tmp_path / "collector", "test")
    for name, length in LENGTHS.items():
        (claimed.path / name).write_bytes(b"w" * length)
    return claimed


def test_what_is_finished_and_committed_is_sent_and_leaves_the_disk(storage, folder):
    uploader = Uploader(folder.path, "s3://crawls/one")
    committed = LENGTHS | {EXTRA: 40}
    assert uploader.send_finished(committed, OPEN) == 1
    storage.invalidate_cache()
    assert storage.ls("crawls/one") == ["crawls/one/headway-full.warc.gz"]
    assert storage.cat("crawls/one/headway-full.warc.gz") == b"w" * 3000
    assert not (folder.path / FULL).exists()
    assert (folder.path / OPEN).stat().st_size == 100
    assert (folder.path / EXTRA).stat().st_size == 50


def test_nothing_is_sent_twice(storage, folder):
    uploader = Uploader(folder.path, "s3://crawls/two")
    assert uploader.send_finished(LENGTHS, None) == 3
    assert uploader.send_finished(LENGTHS, None) == 0


def test_a_folder_whose_files_were_uploaded_is_reused(storage, folder):
    Uploader(folder.path, "s3://crawls/three").send_finished(LENGTHS, OPEN)
    folder.open(LENGTHS | {OPEN: 90})
    folder.close()
    assert (folder.path / OPEN).stat().st_size == 90


def test_a_file_that_was_lost_and_not_sent_is_missed(storage, folder):
    (folder.path / FULL).unlink()
    with pytest.raises(StoreError, match="bytes are missing"):
        folder.open(LENGTHS)


def test_a_missing_storage_is_reported_and_everything_is_kept(storage, folder, monkeypatch):
    uploader = Uploader(folder.path, "s3://crawls/four")
    uploader._root = "no-such-bucket-anywhere/four"
    with pytest.raises(StoreError, match="cannot be used"):
        uploader.send_finished(LENGTHS, None)
    assert (folder.path / FULL).stat().st_size == 3000


def test_a_plain_folder_is_a_storage_too(folder, tmp_path):
    assert Uploader(folder.path, str(tmp_path / "shared")).send_finished(LENGTHS, None) == 3
    assert (tmp_path / "shared" / "headway-full.warc.gz").stat().st_size == 3000


def test_the_index_covers_what_every_collector_has_sent(storage, postgres_store, tmp_path):
    headway = Path(sys.executable).with_name("headway")
    where = ["--store", postgres_store, "--archive", "s3://crawls/fleet", "-q"]
    with FleetWeb(sites=6, pages=20) as web:
        options = ["--allow-private", "--interval", "0.35s", "-o", tmp_path / "crawl"]
        begun = subprocess.Popen([headway, "crawl", *web.seeds, *where, *options])
        while not (tmp_path / "crawl" / "pages.jsonl").exists():
            assert begun.poll() is None
            time.sleep(0.05)
        joined = subprocess.run([headway, "collect", *where, "-o", tmp_path / "collector"], check=False)
        assert (begun.wait(60), joined.returncode) == (0, 0)
    storage.invalidate_cache()
    sent = {path.rpartition("/")[2] for path in storage.ls("crawls/fleet")}
    assert len(sent) == 2
    index = (tmp_path / "crawl" / "indexes" / "index.cdxj").read_text().splitlines()
    lines = [json.loads(line.split(" ", 2)[2]) for line in index]
    assert len(lines) == 120
    assert {line["filename"] for line in lines} == sent
    for line in lines:
        begin = int(line["offset"])
        name = f"crawls/fleet/{line['filename']}"
        assert storage.cat_file(name, start=begin, end=begin + 2) == b"\x1f\x8b"
    assert not list((tmp_path / "crawl" / "archive").glob("*.warc.gz"))
