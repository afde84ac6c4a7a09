"""The store of a Scrapy job's requests keeps what was committed, whatever happens to the process."""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Field, Item

from headway.errors import StoreError
from headway.scrapy.scheduler import DATABASE, RequestStore, pack_request, unpack_request


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


class Found(Item):
    title = Field()


@dataclasses.dataclass
class Seen:
    number: int
    words: tuple[str, ...] = ()


class Plain:
    """No data class: it could do anything when it is made."""


PROJECT = __name__.partition(".")[0]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
        lambda inner: (
            st.lists(inner)
            | st.lists(inner).map(tuple)
            | st.dictionaries(st.text() | st.binary() | st.integers(0, 9), inner)
            | st.sets(st.text() | st.integers())
            | st.frozensets(st.binary())
            | st.builds(Seen, st.integers(), st.lists(st.text()).map(tuple))
        ),
        max_leaves=12,
    )
)
def test_a_request_is_read_as_it_was_stored(value: object) -> None:
    fields = {"url": "http://a.example/", "meta": {"value": value}}
    again = unpack_request(pack_request(fields, PROJECT), PROJECT)
    assert again == fields
    assert repr(again) == repr(fields) or isinstance(value, set | frozenset | list | dict | tuple | Seen)


def test_items_of_the_project_are_stored() -> None:
    fields = {"meta": {"item": Found(title="A")}, "cb_kwargs": {"seen": [Seen(1, ("a",))]}}
    again = unpack_request(pack_request(fields, PROJECT), PROJECT)
    assert again == fields
    assert type(again["meta"]["item"]) is Found


def test_what_could_run_code_is_neither_stored_nor_made() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (Plain(), lambda: None, Plain, deep, {(1, 2): 3}, Path("a")):
        with pytest.raises(ValueError):  # noqa: PT011 - each in its own words
            pack_request({"meta": value}, PROJECT)
    content = pack_request({"meta": Seen(1)}, PROJECT)
    for other in ("subprocess", "os"):
        with pytest.raises(ValueError, match="is no item or dataclass of the project"):
            unpack_request(content, other)


def test_only_classes_of_requests_are_named() -> None:
    form = {"_class": "scrapy.http.request.form.FormRequest"}
    assert unpack_request(pack_request(form, PROJECT), PROJECT) == form
    for path in ("subprocess.Popen", "a.module.that.is.not.there", "Popen"):
        with pytest.raises(ValueError, match="is no class of requests"):
            unpack_request(pack_request({"_class": path}, PROJECT), PROJECT)


def test_a_job_of_another_version_is_refused(tmp_path) -> None:
    RequestStore(tmp_path).close()
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("PRAGMA user_version = 0")
    connection.close()
    with pytest.raises(StoreError, match="stored by another version of headway"):
        RequestStore(tmp_path)
