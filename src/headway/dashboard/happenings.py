"""What a person wants to know of the decision log: orders, foreseen delays, changes of the bound.

The log has a line for every page, so only what is new is read, and of an old log no more than its end.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from headway.dashboard.answers import LogLine
from headway.store.runfolder import DECISIONS
from headway.units import format_duration, format_rate

_READ_BYTES = 8 * 1024 * 1024
_KEPT = 200
_INTERESTING = (b'"foresee-', b'"order-', b'"set-capacity"', b'"finish"')


class LogTail:
    def __init__(self, folder: Path | None) -> None:
        """None: a crawl without a folder, whose collectors keep their logs."""
        self._path = folder / DECISIONS if folder is not None else None
        self._position = 0
        self._lines: deque[LogLine] = deque(maxlen=_KEPT)

    def newest(self, most: int) -> list[LogLine]:
        """The newest first."""
        self._read_on()
        return list(self._lines)[::-1][:most]

    def _read_on(self) -> None:
        if self._path is None:
            return
        try:
            size = self._path.stat().st_size
            if size < self._position:  # cut back when the crawl was taken up again
                self._position = 0
                self._lines.clear()
            if size == self._position:
                return
            with self._path.open("rb") as file:
                skipped = size - self._position > _READ_BYTES
                file.seek(size - _READ_BYTES if skipped else self._position)
                text = file.read()
                end = file.tell()
        except OSError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._position = end - (len(text) - len(whole))
        lines = whole.splitlines()
        for line in lines[1:] if skipped else lines:
            if any(word in line[:80] for word in _INTERESTING) and (told := _told(line)) is not None:
                self._lines.append(told)


def _told(line: bytes) -> LogLine | None:
    try:
        facts: dict[str, Any] = msgspec.json.decode(line)
        return LogLine(facts["at"], facts["decision"], _text(facts), facts.get("site", ""))
    except (msgspec.DecodeError, KeyError, TypeError):
        return None


def _text(facts: dict[str, Any]) -> str:
    refusal = facts.get("reason", "")
    match facts["decision"]:
        case "foresee-late":
            late_s = facts["until"] - facts["deadline_at"]
            needed = facts.get("needed_bytes_per_s")
            cure = f"{format_rate(needed)} would meet all deadlines" if needed else "no bandwidth would help"
            return f"will be about {format_duration(late_s)} late; {cure}"
        case "foresee-on-time":
            return "is foreseen to be on time again"
        case "set-capacity":
            bound = facts.get("capacity_bytes_per_s")
            return f"the bound is {format_rate(bound)}" if bound is not None else "there is no bound"
        case "finish":
            return "the crawl ended"
        case "order-pause":
            return "ordered: pause"
        case "order-resume":
            return "ordered: resume"
        case "order-stop":
            return f"ordered: stop; refused: {refusal}" if refusal else "ordered: stop this site"
        case "order-add":
            return "ordered: add this site"
        case "order-deadline":
            if refusal:
                return f"ordered: another deadline; refused: {refusal}"
            at = facts.get("deadline_at")
            left_s = at - facts["at"] if at is not None else None
            return f"ordered: {format_duration(left_s)} from then" if left_s else "ordered: no deadline"
        case other:
            return str(other)
