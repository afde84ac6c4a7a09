"""The few exceptions that headway lets its caller see.

A page that fails is an `Outcome`, never an exception. What is raised here stops a command, so every
message says what was wrong, where, and what to do; the exit code travels with the class.
"""

from __future__ import annotations


class HeadwayError(Exception):
    """Something the user has to know of and can act on."""

    exit_code = 1


class UnitError(HeadwayError, ValueError):
    """A quantity that cannot be read, or lacks its unit."""

    exit_code = 4


class JobError(HeadwayError):
    """A job file, or the options that stand for one, that cannot be carried out."""

    exit_code = 4


class StoreError(HeadwayError):
    """The run folder or database cannot be read or written (disk full, no permission, other version)."""

    exit_code = 5
