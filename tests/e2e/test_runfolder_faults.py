"""A disk that is really full or really read-only: one clear message, nothing lost, and it goes on after.

A small disk of our own needs a mount namespace; where the system gives none to an ordinary user the tests
are skipped, and those with simulated faults in tests/unit remain.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

CRAWL = """
import os, subprocess, sys
from headway.errors import StoreError
from headway.model.command import PageState, SaveFound, SaveSettled
from headway.model.page import Kind, Outcome
from headway.model.page import Page
from headway.ports import Response
from headway.store.reader import RunReader
from headway.store.run_folder import RunFolder
from warcio.cli import main as warcio_main

SITE = "http://www.example.org"

def fetch(folder, number):
    page = Page(f"{SITE}/{number}", SITE, number)
    body = os.urandom(3000)
    head = b"HTTP/1.1 200 OK\\r\\n\\r\\n"
    response = Response(Kind.FETCHED, page.url, 1.0, 0.1, 200, head=head, payload=body)
    capture = folder.archive.write(response, digest=str(number))
    outcome = Outcome(Kind.FETCHED, 200, 3000, 0.1, "text/html", 3000, str(number))
    return SaveSettled(page, outcome, PageState.DONE, 0, 2.0, capture=capture)

def until_it_fails(folder, start):
    number = start
    while True:
        batch = [fetch(folder, number + step) for step in range(10)]
        try:
            folder.save(batch)
        except StoreError as error:
            return number, batch, error
        number += 10

def mount(*options):
    subprocess.run(["mount", *options], check=True)

def check_folder(path, expected):
    with RunReader(path) as reader:
        urls = [page.url for page in reader.captures()]
    assert urls == [f"{SITE}/{number}" for number in range(expected)], (len(urls), expected)
    assert len(open(path + "/pages.jsonl").readlines()) == expected
    for name in os.listdir(path + "/archive"):
        try:
            warcio_main(["check", f"{path}/archive/{name}"])
        except SystemExit as ending:
            assert ending.code == 0, name

disk = sys.argv[1]
mount("-t", "tmpfs", "-o", "size=2m", "none", disk)
run = disk + "/run"
"""

DISK_FULL = (
    CRAWL
    + """
folder = RunFolder.open(run, {}, 1.0)
saved, batch, error = until_it_fails(folder, 0)
assert "the disk is full; free some space" in str(error), error
assert saved > 100, saved
mount("-o", "remount,size=4m", disk)
folder.save(batch)
assert folder.store.load().sites[0].done == saved + 10
saved, batch, error = until_it_fails(folder, saved + 10)
assert "the disk is full" in str(error), error
try:
    folder.close()
except StoreError:
    pass
mount("-o", "remount,size=8m", disk)
with RunFolder.open(run, {}, 1.0) as folder:
    assert folder.snapshot.sites[0].done == saved
    check_folder(run, saved)
    folder.save([fetch(folder, saved + step) for step in range(10)])
    folder.write_index()
check_folder(run, saved + 10)
"""
)

READ_ONLY = (
    CRAWL
    + """
with RunFolder.open(run, {}, 1.0) as folder:
    folder.save([fetch(folder, number) for number in range(10)])
mount("-o", "remount,ro", disk)
for attempt in (lambda: RunFolder.open(run, {}, 1.0), lambda: RunFolder.open(disk + "/new", {}, 1.0)):
    try:
        attempt()
    except StoreError as error:
        assert "no permission; check who owns the folder" in str(error), error
        assert "mounted read-only" in str(error), error
    else:
        raise AssertionError("opened on a read-only disk")
check_folder(run, 10)
mount("-o", "remount,rw", disk)
with RunFolder.open(run, {}, 1.0) as folder:
    assert folder.snapshot.sites[0].done == 10
"""
)


def _has_namespaces():
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


needs_a_disk = pytest.mark.skipif(not _has_namespaces(), reason="no mount namespace for an own small disk")


def _run_with_disk(program, tmp_path):
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", program, tmp_path]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr[-3000:]


@needs_a_disk
def test_a_full_disk_loses_nothing_and_the_crawl_resumes_when_there_is_room(tmp_path):
    _run_with_disk(DISK_FULL, tmp_path)


@needs_a_disk
def test_a_read_only_disk_is_refused_clearly_and_can_still_be_read(tmp_path):
    _run_with_disk(READ_ONLY, tmp_path)
