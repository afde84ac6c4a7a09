"""Start the same crawl again and again, and kill -9 it each time at a random moment."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from headway.errors import StoreError
from headway.store.reader import RunReader

_JOB = """\
[crawl]
interval = "{interval_ms} ms"
allow_private = true
max_attempts = 10
retry_penalty = "500 ms"
backoff = "200 ms"
max_backoff = "1 s"
"""
_STARTUP_SHARE = 0.2
"""So many of the kills fall at any moment from the start of the process on, before the first page too."""
_LONGEST_STARTUP_S = 1.5
_PATIENCE_S = 60.0


class Kill(msgspec.Struct, frozen=True):
    at: float
    """On the monotonic clock."""
    committed: frozenset[str]
    """The pages that the store held after it; they must never be asked for again."""
    was_starting: bool


class Victim:
    """A crawl that is started, killed, and in the end let go."""

    def __init__(self, folder: Path, urls: tuple[str, ...], *, interval_ms: int, seed: int) -> None:
        self.run = folder / "run"
        self._job = folder / "job.toml"
        sites = "".join(f'[[site]]\nurl = "{url}"\n' for url in urls)
        self._job.write_text(_JOB.format(interval_ms=interval_ms) + sites)
        self._complaints = folder / "complaints.txt"
        self._dice = random.Random(seed)

    def kill_once(self, most_pages: int) -> Kill | None:
        """Let it fetch a random number of pages, or not even that; None if it ended before the kill."""
        was_starting = self._dice.random() < _STARTUP_SHARE
        with self.start() as child:
            if was_starting:
                time.sleep(self._dice.uniform(0.0, _LONGEST_STARTUP_S))
            else:
                self._wait_for_pages(child, self._dice.randint(1, most_pages))
                time.sleep(self._dice.uniform(0.0, 0.1))  # any moment between two commits
            child.send_signal(signal.SIGKILL)
            at = time.monotonic()
            code = child.wait()
        if code == 0:
            return None
        if code != -signal.SIGKILL:
            raise RuntimeError(f"the crawl ended with {code}: {self.complaints()}")
        return Kill(at, self._committed(), was_starting)

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headway", "crawl", str(self._job), "-o", str(self.run), "-q"]
        with self._complaints.open("ab") as complaints:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=complaints)

    def finish(self) -> int:
        with self.start() as child:
            return child.wait()

    def complaints(self) -> str:
        return self._complaints.read_text().strip()

    def pages_listed(self) -> int:
        path = self.run / "pages.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def _wait_for_pages(self, child: subprocess.Popen[bytes], count: int) -> None:
        wanted = self.pages_listed() + count
        limit_at = time.monotonic() + _PATIENCE_S
        while child.poll() is None and self.pages_listed() < wanted and time.monotonic() < limit_at:
            time.sleep(0.01)

    def _committed(self) -> frozenset[str]:
        try:
            with RunReader(self.run) as reader:
                return frozenset(page.url for page in reader.pages() if page.state != "waiting")
        except StoreError:
            return frozenset()  # killed before there was a store
