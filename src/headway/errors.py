"""The exceptions that headway raises to its caller.

A page that fails is an `Outcome`, never an exception. These exceptions stop a command, so every message
says what is wrong, where, and what to do. Each class has the exit code of the command.
"""

from __future__ import annotations

import errno
import json
import shlex
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit


class HeadwayError(Exception):
    """An error that the user can act on."""

    exit_code = 1


class UnitError(HeadwayError, ValueError):
    """A quantity that cannot be parsed, or has no unit."""

    exit_code = 4


class JobError(HeadwayError):
    """A job file, or the options that replace one, that is not valid."""

    exit_code = 4


class SiteListError(JobError):
    """Wrong lines in a list of sites."""

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__("\n".join([title, *lines]))
        self.title = title
        self.lines = lines


class StoreError(HeadwayError):
    """The run folder or database cannot be read or written (disk full, no permission, wrong version)."""

    exit_code = 5


class OutOfMemoryError(HeadwayError):
    """The system gave no more memory."""

    exit_code = 5

    def __init__(self) -> None:
        super().__init__(
            "the system gave no more memory (see ulimit -v); set a lower 'memory' or 'max_connections' under"
            " [crawl], or free some, then run the same command again: the crawl resumes where it stopped"
        )


_NO_MEMORY = ("can't start new thread", "failed to map segment", "cannot allocate memory")


def lacks_memory(problem: BaseException | None) -> bool:
    """Whether the system gave no more memory: Python says so in several ways."""
    if isinstance(problem, MemoryError) or (isinstance(problem, OSError) and problem.errno == errno.ENOMEM):
        return True
    is_vague = isinstance(problem, RuntimeError | ImportError)
    return is_vague and any(words in str(problem).lower() for words in _NO_MEMORY)


def install_command(extra: str) -> str:
    """The command that adds an extra to this headway, from the checkout it runs in or was installed from."""
    sources = Path(__file__).parents[2]
    if not (sources / "pyproject.toml").is_file():
        try:
            origin = metadata.distribution("headway").read_text("direct_url.json")
        except metadata.PackageNotFoundError:
            origin = None
        url = urlsplit(json.loads(origin or "{}").get("url", ""))
        sources = Path(unquote(url.path)) if url.scheme == "file" else sources
    # The name alone works only where headway came from an index.
    target = str(sources) if (sources / "pyproject.toml").is_file() else "headway"
    return f"pip install {shlex.quote(f'{target}[{extra}]')}"
