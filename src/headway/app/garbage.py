"""How often Python looks for garbage that refers to itself in a circle.

A crawl makes hardly any, and what it holds for long (rules, queues, modules) would be looked through each
time: three per cent of the CPU of a page.
"""

from __future__ import annotations

import gc

_AFTER_NEW_OBJECTS = 5_000
_OF_WHICH_FOR_OLDER_ONES = 20


def look_for_garbage_seldom() -> None:
    """What there is by now is left out for good, and new objects are looked at by the thousand.

    It holds for the whole process, so it is for a program's start, not for a library to do unasked.
    """
    gc.freeze()
    gc.set_threshold(_AFTER_NEW_OBJECTS, _OF_WHICH_FOR_OLDER_ONES, _OF_WHICH_FOR_OLDER_ONES)
