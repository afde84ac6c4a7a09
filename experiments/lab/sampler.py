"""Writes counters of interfaces to a file a hundred times a second, until its input ends: a line is the
monotonic time and the bytes of each counter asked for (`wire:rx`, `server_1:tx`). A process of its own,
so that a busy crawler cannot delay the measure of itself."""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path

EVERY_S = 0.01
FIELDS = {"rx": 0, "tx": 8}


def read_counters(statistics: int, wanted: list[tuple[str, int]]) -> str:
    # The kernel gives a page of memory at a time: some thirty interfaces.
    parts: list[bytes] = []
    at = 0
    while part := os.pread(statistics, 65536, at):
        parts.append(part)
        at += len(part)
    text = b"".join(parts).decode()
    now = time.monotonic()
    rows = (line.partition(":") for line in text.splitlines())
    fields = {name.strip(): counters.split() for name, _, counters in rows}
    return f"{now:.6f} " + " ".join(fields[name][column] for name, column in wanted)


def main() -> None:
    path = Path(sys.argv[1])
    named = [argument.split(":") for argument in sys.argv[2:]]
    wanted = [(name, FIELDS[direction]) for name, direction in named]
    statistics = os.open("/proc/self/net/dev", os.O_RDONLY)
    with path.open("w", buffering=1) as record:
        print("up", flush=True)
        due = time.monotonic()
        while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
            record.write(read_counters(statistics, wanted) + "\n")
            due = max(due + EVERY_S, time.monotonic())


if __name__ == "__main__":
    main()
