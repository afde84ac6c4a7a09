"""The store of a Scrapy job's requests keeps what was committed, whatever happens to the process."""

from __future__ import annotations

import shutil

import pytest

from headway.errors import StoreError
from headway.scrapy.scheduler import DATABASE, RequestStore


def test_what_was_committed_is_there_after_a_kill(tmp_path) -> None:
    store = RequestStore(tmp_path / "job")
    for number in range(5):
        store.add("host/0", "host", 0, b"%d" % number)
        store.add_seen(b"%d" % number)
    store.remove([2])
    store.commit()
    store.add("host/0", "host", 0, b"not committed")
    # What a killed process leaves: the files as they are now.
    shutil.copytree(tmp_path / "job", tmp_path / "left")
    store.close()
    again = RequestStore(tmp_path / "left")
    assert [again.content(number) for number in again.waiting("host/0")] == [b"0", b"2", b"3", b"4"]
    assert sorted(again.fingerprints()) == [b"0", b"1", b"2", b"3", b"4"]
    assert list(again.queues()) == [("host", 0)]
    again.close()


def test_new_requests_never_take_an_old_number(tmp_path) -> None:
    store = RequestStore(tmp_path)
    store.add("a", "a", 0, b"1")
    store.commit()
    store.close()
    again = RequestStore(tmp_path)
    again.add("b", "b", 1, b"2")
    assert again.waiting("b")[0] > again.waiting("a")[0]
    again.close()


def test_two_spiders_cannot_have_one_job(tmp_path) -> None:
    store = RequestStore(tmp_path)
    store.add("a", "a", 0, b"1")
    store.commit()
    with pytest.raises(StoreError, match="another spider uses it"):
        RequestStore(tmp_path)
    store.close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path) -> None:
    (tmp_path / DATABASE).write_bytes(b"this is no database at all, but quite a lot of text instead")
    with pytest.raises(StoreError, match=DATABASE):
        RequestStore(tmp_path)
