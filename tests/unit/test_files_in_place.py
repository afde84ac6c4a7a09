"""Small files that are put in place whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.runs import make_run

from headway.archive.files import put_in_place
from headway.runtime.control import LIMIT_FILE, write_limit


def test_what_was_there_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "tally.json"
    path.write_bytes(b"old, and longer than the new one")
    put_in_place(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_no_file_is_more_open_than_it_was_meant_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    before = os.umask(0)
    try:
        put_in_place(tmp_path / "file", b"", mode)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_other_users_may_not_change_the_bound(tmp_path: Path) -> None:
    make_run(tmp_path / "run", ["http://a.test"], pages=1)
    before = os.umask(0)
    try:
        write_limit(tmp_path / "run", "2 Mbit/s")
    finally:
        os.umask(before)
    assert (tmp_path / "run" / LIMIT_FILE).stat().st_mode & 0o777 == 0o644
