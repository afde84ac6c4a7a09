"""What a command says while it works: lines for people, or one JSON object a line, on stderr.

Nobody listening is no reason to stop: when stderr can no longer be written, the rest goes unsaid.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, Any

import click
import msgspec
from rich.console import Console
from rich.text import Text

from headway.errors import HeadwayError
from headway.store.times import iso_utc
from headway.units import Instant

Facts = Mapping[str, object]


class Screen(Console):
    """A console that says when its reader has gone. Rich's own would end the program there and then."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - called where a BrokenPipeError is being handled


class Log:
    def __init__(self, *, is_quiet: bool = False, is_verbose: bool = False, as_json: bool = False) -> None:
        self.is_quiet = is_quiet
        self.is_verbose = is_verbose
        self.as_json = as_json
        self.console = Screen(stderr=True, highlight=False, markup=False, soft_wrap=True)
        self.is_heard = True

    @property
    def has_picture(self) -> bool:
        """Whether progress may be drawn, and not only told."""
        return self.is_heard and self.console.is_terminal and not self.is_quiet and not self.as_json

    def say(
        self, event: str, message: str, facts: Facts | None = None, *, lead: str = "", style: str = ""
    ) -> None:
        """`facts` are what a program reads in place of the message; `lead` is the part that is coloured."""
        if not self.is_quiet:
            self._write("info", event, message, facts, lead=lead, style=style)

    def detail(self, event: str, message: str, facts: Facts | None = None) -> None:
        """Only for those who asked for more."""
        if self.is_verbose:
            self._write("debug", event, message, facts, style="dim")

    def problem(self, problem: HeadwayError) -> int:
        """Say what ends the command; returns its exit code."""
        facts = {"exit_code": problem.exit_code}
        self._write("error", "error", str(problem), facts, lead="headway: ", style="red")
        return problem.exit_code

    def unheard(self) -> None:
        """Whoever listened has gone."""
        self.is_heard = False
        silence(sys.stderr)

    def _write(
        self, level: str, event: str, message: str, facts: Facts | None, *, lead: str = "", style: str = ""
    ) -> None:
        if not self.is_heard:
            return
        try:
            if self.as_json:
                at = iso_utc(Instant(time.time()))
                line = {
                    "at": at,
                    "level": level,
                    "event": event,
                    "message": printable(message),
                    **(facts or {}),
                }
                self.console.file.write(msgspec.json.encode(line).decode() + "\n")
                self.console.file.flush()
            else:
                self.console.print(Text.assemble((lead, style), printable(message)))
        except OSError:
            self.unheard()


def printable(text: str) -> str:
    """What a server made us say must not steer the terminal."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def silence(stream: IO[str] | None) -> None:
    """What is still in its buffer must not make Python complain at exit."""
    if stream is not None:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)


def log_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds -q, -v and --log-json; the command gets a `log`, which is also told why the command fails."""

    @click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
    @click.option("-v", "--verbose", is_flag=True, help="Also say which pages are tried again or given up.")
    @click.option("--log-json", is_flag=True, help="Progress and errors as one JSON object a line.")
    @functools.wraps(command)
    def with_log(*args: Any, quiet: bool, verbose: bool, log_json: bool, **options: Any) -> int:
        if quiet and verbose:
            raise click.UsageError("-q asks for silence and -v for more words; give one of them")
        log = Log(is_quiet=quiet, is_verbose=verbose, as_json=log_json)
        try:
            return command(*args, log=log, **options)
        except HeadwayError as problem:
            return log.problem(problem)

    return with_log
