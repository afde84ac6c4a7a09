"""`python -m benchmarks.fleet.wrong_clock FILE collect ...`: headway on a machine whose clock is wrong.

The file says by how many seconds, and may change at any time. Only the time of day is wrong: how long a
second is machines agree on.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

_true_time = time.time


def _wrong_time() -> float:
    return _true_time() + float(Path(sys.argv[1]).read_text())


def main() -> None:
    time.time = _wrong_time
    from headway.cli import main as headway

    file = sys.argv[1]
    sys.argv = [sys.argv[0], file]
    headway(_arguments)


_arguments = sys.argv[2:]
if __name__ == "__main__":
    main()
