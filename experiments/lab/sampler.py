"""Writes the counters of an interface to a file a hundred times a second, until its input ends: one line
is the monotonic time, the bytes received and the bytes sent. A process of its own, so that a busy crawler
cannot delay the measure of itself."""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path

EVERY_S = 0.01


def read_counters(statistics: int, interface: bytes) -> tuple[float, int, int]:
    text = os.pread(statistics, 65536, 0)
    now = time.monotonic()
    fields = text.split(interface + b":", 1)[1].split(b"\n", 1)[0].split()
    return now, int(fields[0]), int(fields[8])


def main() -> None:
    interface, path = sys.argv[1].encode(), Path(sys.argv[2])
    statistics = os.open("/proc/self/net/dev", os.O_RDONLY)
    with path.open("w", buffering=1) as record:
        print("up", flush=True)
        due = time.monotonic()
        while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
            at_s, received, sent = read_counters(statistics, interface)
            record.write(f"{at_s:.6f} {received} {sent}\n")
            due = max(due + EVERY_S, time.monotonic())


if __name__ == "__main__":
    main()
