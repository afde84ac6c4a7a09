"""How often Python looks for garbage in a crawl."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from headway.runtime.process import look_for_garbage_seldom

before = gc.get_threshold()
look_for_garbage_seldom()
assert gc.isenabled()
assert all(now > was for now, was in zip(gc.get_threshold(), before)), (before, gc.get_threshold())
assert gc.get_freeze_count() > 0

class Circle:
    pass

import weakref
circle = Circle()
circle.itself, gone = circle, weakref.ref(circle)
del circle
new = [[] for _ in range(2 * gc.get_threshold()[0])]
assert gone() is None, "what refers to itself is never found"
"""


def test_it_is_looked_for_less_often_and_still_found() -> None:
    # In a process of its own: it holds for all that the process does afterwards.
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
