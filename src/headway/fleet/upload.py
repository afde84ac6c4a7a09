"""Archive files that are finished go to a storage that all machines share, such as S3, and leave this disk.

A WARC file is written here first, since such storages do not let a file grow. It is sent when it is full, or
when the collector leaves, and all of it is committed; a collector that died sends what it left when it is
started again. Any storage that fsspec knows will do: s3://bucket/prefix, gs://..., or a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError, StoreError
from headway.store.warc import ARCHIVE_FOLDER, WARC_PATTERN

_SENT = ".sent"


class Uploader:
    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder / ARCHIVE_FOLDER
        self._url = url
        try:
            import fsspec.core
        except ImportError:
            message = "--archive needs the package s3fs; install it with: pip install 'headway[s3]'"
            raise HeadwayError(message) from None
        try:
            self._storage: Any
            self._storage, self._root = fsspec.core.url_to_fs(url)
            self._storage.makedirs(self._root, exist_ok=True)
        except Exception as problem:
            raise self._explain(problem) from problem

    def send_finished(self, committed_lengths: Mapping[str, int], current: str | None) -> int:
        """Send what is complete, but for the file that is being written; returns how many went."""
        sent = 0
        for path in sorted(self._folder.glob(WARC_PATTERN)):
            name = f"{ARCHIVE_FOLDER}/{path.name}"
            size = path.stat().st_size
            if name == current or not size or committed_lengths.get(name) != size:
                continue
            target = f"{self._root}/{path.name}"
            try:
                self._storage.put_file(str(path), target)
                self._storage.invalidate_cache()
                arrived = self._storage.info(target)["size"]
            except Exception as problem:
                raise self._explain(problem) from problem
            if arrived != size:
                raise StoreError(
                    f"{self._url}: {path.name} has {size} bytes and arrived with {arrived}; kept"
                )
            # First the mark, then the file goes: a crash in between sends it once more at worst.
            path.with_name(path.name + _SENT).touch()
            path.unlink()
            sent += 1
        return sent

    def _explain(self, problem: Exception) -> StoreError:
        return StoreError(
            f"{self._url}: the archive's storage cannot be used ({type(problem).__name__}: {problem}); "
            "check the address, the credentials and AWS_ENDPOINT_URL. What is here is kept"
        )


def without_sent(folder: Path, committed_lengths: Mapping[str, int]) -> dict[str, int]:
    """The files that should still be in the folder."""
    return {
        name: length for name, length in committed_lengths.items() if not (folder / (name + _SENT)).exists()
    }
