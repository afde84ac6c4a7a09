"""A log of lines in the run folder, flushed and committed by its length like the archive."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headway.store.appendfile import AppendFile


class AppendLog:
    def __init__(self, run_folder: Path, name: str) -> None:
        self.name = name
        self._file = AppendFile(run_folder / name)
        self._encoder = msgspec.json.Encoder()

    @property
    def length_bytes(self) -> int:
        return self._file.length_bytes

    def append(self, value: object) -> None:
        """One JSON object as a line."""
        self._file.append(self._encoder.encode(value) + b"\n")

    def append_lines(self, lines: bytes) -> None:
        """Whole lines, as somebody else made them."""
        if lines:
            self._file.append(lines)

    def append_text(self, line: str) -> None:
        self._file.append(line.encode("utf-8", "replace") + b"\n")

    def flush(self) -> int:
        """Hand everything to the system; returns the length to commit."""
        return self._file.flush()

    def cut(self, length_bytes: int) -> None:
        self._file.cut(length_bytes)

    def close(self) -> None:
        self._file.close()
