"""After a crash: bring the files of a run folder back to what the store committed.

What was written after the last commit belongs to pages that the store still holds as waiting; they are
fetched again, so their first traces go.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from headway.errors import StoreError
from headway.store.failures import clear_errors
from headway.store.warc import ARCHIVE_FOLDER, WARC_PATTERN


def cut_back(run_folder: Path, committed_lengths: Mapping[str, int], logs: Iterable[str] = ()) -> None:
    """Cut each file to its committed length; files of ours that the store does not know are removed."""
    for name, length_bytes in committed_lengths.items():
        path = inside(run_folder, name)
        with clear_errors(path):
            actual_bytes = path.stat().st_size if path.exists() else 0
            if actual_bytes < length_bytes:
                raise StoreError(
                    f"{path}: {length_bytes - actual_bytes} bytes are missing that the store counts on; "
                    f"put the file back from a copy, or crawl into a new folder"
                )
            if actual_bytes > length_bytes:
                os.truncate(path, length_bytes)
    with clear_errors(run_folder):
        for path in (run_folder / ARCHIVE_FOLDER).glob(WARC_PATTERN):
            if f"{ARCHIVE_FOLDER}/{path.name}" not in committed_lengths:
                path.unlink()
        for name in logs:
            if name not in committed_lengths and (run_folder / name).exists():
                os.truncate(run_folder / name, 0)


def inside(run_folder: Path, name: str) -> Path:
    """A name from the database may not lead out of the folder: somebody else may have written it."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise StoreError(
            f"{run_folder}: the store names a file outside the folder ({name!r}); it was tampered with"
        )
    return run_folder / pure
