"""Long work in a thread of its own lets the loop have its turn.

Compiled code keeps the interpreter until it returns, where Python would hand it on by itself: a page with
200,000 links would stop the crawl of everybody else.
"""

from __future__ import annotations

from time import sleep

LET_OTHERS_EVERY = 100
"""Links or elements: some 0.1 ms."""


def let_others() -> None:
    sleep(0)
