"""Page work: from bytes to links, canonical URLs, directives, digests and extracted items.

The inner loops exist in C (`_fast.c`, `_sha1.c`). `fast` and `sha1` are these modules, or None if headway was
built without a compiler; the same is then done in Python, more slowly.
"""

from __future__ import annotations

import importlib
from threading import get_ident, main_thread
from time import sleep
from types import ModuleType


def _load(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"headway.pages.{name}")
    except ImportError:
        return None


fast = _load("_fast")
sha1 = _load("_sha1")

LET_OTHERS_EVERY = 100
"""Links or elements between two calls of `let_others`: some 0.1 ms."""


def let_others() -> None:
    """In a thread, let others run. Compiled code does not release the GIL by itself: without this, parsing a
    page with 200,000 links in a thread would stop the event loop. What is parsed on the main thread is short,
    and a busy machine may take the core away for 0.1 ms each time."""
    if get_ident() != _MAIN_THREAD:
        sleep(0)


_MAIN_THREAD = main_thread().ident


LONGEST_READ_BYTES = 16 * 1024 * 1024
"""Of a page, read for links and directives: the HTML standard on one page has 13 MB. The rest is archived
only."""

MOST_WORK = 50_000_000
"""Units of work for one page: `LONGEST_READ_BYTES`, 50,000 links and 100,000 character references fit in.
Some 0.3 s on a core of 2.5 GHz."""

MOST_WORK_OF_LIST = 200_000_000
"""Units of work for a sitemap or feed: 50 MB with 1.5 million elements fit in. Some 3 s."""

WORK_IN_PLACE = 400_000
"""Units of work on the event loop: a page of 64 KB with 500 links fits in. Some 4 ms."""

OF_LINK = 400
"""Units for resolving a link, in addition to one for each character of its URL."""
OF_REFERENCE = 100
"""Units for resolving a character reference."""


class TooMuchWorkError(Exception):
    """Work that was to be done on the event loop is too much for it. It is to be done again in a thread."""


class Work:
    """The work that reading one page may cost, and has cost so far.

    Units are counted, not timed, so that the same page is read as far on every machine. A unit is a byte
    scanned; what takes longer counts as more.
    """

    __slots__ = ("_in_place", "_most", "problem", "spent")

    def __init__(self, most: int = MOST_WORK, *, in_place: bool = False) -> None:
        """`in_place`: more work than this raises TooMuchWorkError; otherwise it ends the reading."""
        self._most = most
        self._in_place = in_place
        self.spent = 0
        self.problem = ""
        """Why the rest was not read; empty if all was."""

    def spend(self, units: int) -> bool:
        """Count units of work; False if no more may be done."""
        self.spent += units
        if self.spent <= self._most:
            return True
        if self._in_place:
            raise TooMuchWorkError
        self.stop(f"reading it would take more than {self._most:,} units of work")
        return False

    def allow(self, most: int) -> None:
        """Let the work cost more, unless it is done on the event loop."""
        if not self._in_place:
            self._most = max(self._most, most)

    def stop(self, why: str) -> None:
        """Note why the rest of the page is not read."""
        self.problem = self.problem or f"read in part: {why}"
