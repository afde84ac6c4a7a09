"""A small file that is there whole: written beside its place and renamed into it."""

from __future__ import annotations

import os
from pathlib import Path


def put_in_place(path: Path, data: bytes, mode: int = 0o644) -> None:
    """No more open than `mode`, also where the umask is careless."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
    fresh.replace(path)
