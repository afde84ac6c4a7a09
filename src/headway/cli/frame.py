"""Parts of all subcommands: the log on stderr, the console, error handling with exit codes, and the group
that imports a subcommand only when it is called.

The log has lines for people, or one JSON object per line. If stderr is closed, logging stops and the command
goes on.
"""

from __future__ import annotations

import difflib
import errno
import functools
import importlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, NoReturn, TypeVar

import click
import msgspec
from rich.console import Console
from rich.text import Text

from headway.archive.records import iso_utc
from headway.errors import (
    HeadwayError,
    OutOfMemoryError,
    SiteListError,
    UnitError,
    install_command,
    lacks_memory,
)
from headway.runtime.process import INTERRUPTS, INTERRUPTS_CODE
from headway.units import Instant
from headway.version import __version__

Facts = Mapping[str, object]


class Screen(Console):
    """A console that raises BrokenPipeError if its reader has gone; Rich's own ends the program."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - called where a BrokenPipeError is being handled


class Log:
    """Writes what a command does to stderr."""

    def __init__(self, *, is_quiet: bool = False, is_verbose: bool = False, as_json: bool = False) -> None:
        self.is_quiet = is_quiet
        self.is_verbose = is_verbose
        self.as_json = as_json
        self.console = Screen(stderr=True, highlight=False, markup=False, soft_wrap=True)
        self.is_open = True
        """False once stderr cannot be written any more."""

    @property
    def is_live(self) -> bool:
        """Whether progress is shown as a display that updates in place, rather than as lines."""
        return self.is_open and self.console.is_terminal and not self.is_quiet and not self.as_json

    def say(
        self, event: str, message: str, facts: Facts | None = None, *, lead: str = "", style: str = ""
    ) -> None:
        """Log an event. `facts` become fields of the JSON line; `lead` is put in front of the message and
        coloured."""
        if not self.is_quiet:
            self._write("info", event, message, facts, lead=lead, style=style)

    def trouble(self, event: str, message: str, facts: Facts | None = None) -> None:
        """Log trouble that does not end the command; also with --quiet."""
        self._write("warning", event, message, facts, style="yellow")

    def detail(self, event: str, message: str, facts: Facts | None = None) -> None:
        """Log an event with --verbose only."""
        if self.is_verbose:
            self._write("debug", event, message, facts, style="dim")

    def problem(self, problem: HeadwayError) -> int:
        """Log the error that ends the command, and return its exit code."""
        facts: dict[str, object] = {"exit_code": problem.exit_code}
        if not isinstance(problem, SiteListError):
            self._write("error", "error", str(problem), facts, lead="headway: ", style="red")
            return problem.exit_code
        facts["lines"] = problem.lines
        self._write("error", "error", problem.title, facts, lead="headway: ", style="red")
        for line in () if self.as_json else problem.lines:
            self._write("error", "error", line, None)
        return problem.exit_code

    def close(self) -> None:
        """Stop logging, because stderr can no longer be written."""
        self.is_open = False
        silence(sys.stderr)

    def _write(
        self, level: str, event: str, message: str, facts: Facts | None, *, lead: str = "", style: str = ""
    ) -> None:
        if not self.is_open:
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
            self.close()


def printable(text: str) -> str:
    """Text without control characters: what a server sends must not reach the terminal as an escape."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def silence(stream: IO[str] | None) -> None:
    """Discard what a broken stream still has in its buffer; Python would print an error for it at exit."""
    if stream is not None:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)


def log_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add -q, -v and --log-json to a command. It gets a `log`, to which its errors are written as well."""

    @click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
    @click.option("-v", "--verbose", is_flag=True, help="Also log each retry and each failed page.")
    @click.option("--log-json", is_flag=True, help="Log to stderr as one JSON object per line.")
    @functools.wraps(command)
    def with_log(*args: Any, quiet: bool, verbose: bool, log_json: bool, **options: Any) -> int:
        if quiet and verbose:
            raise click.UsageError("-q and -v exclude each other; give one of them")
        log = Log(is_quiet=quiet, is_verbose=verbose, as_json=log_json)
        try:
            return command(*args, log=log, **options)
        except HeadwayError as problem:
            return log.problem(problem)

    return with_log


Written = TypeVar("Written")
T = TypeVar("T")

INTERRUPTED = INTERRUPTS_CODE
DEADLINES_MISSED = 3

SUMMARIES = {
    "collect": "Join a crawl on a PostgreSQL server as one more collector.",
    "crawl": "Crawl the sites of a job file, or the given URLs.",
    "demo": "Crawl a small web that headway serves itself.",
    "export": "Export a run as CSV, JSON Lines, Parquet, SQLite, WACZ or files.",
    "init": "Write a job file, with comments.",
    "identity": "Create a key pair that identifies the crawler, and the files to publish.",
    "limit": "Change the bandwidth limit of a crawl.",
    "listen-squid": "Refetch what the users of a Squid proxy request, to keep the copies fresh.",
    "plan": "Check whether the deadlines can be met, and with which bandwidth.",
    "rebuild": "Rebuild the database of a run from its archive and logs.",
    "report": "Write an HTML report of a run, with figures.",
    "run-scrapy": "Run Scrapy spiders by their deadlines under one bandwidth limit.",
    "schema": "Print the JSON Schema of job files.",
    "serve": "Show a run in a browser and control it from there.",
    "service": "Write systemd units, or a crontab line, for a nightly crawl.",
    "simulate": "Simulate a crawl in virtual time.",
    "status": "Show the progress of a run.",
    "verify": "Check a run folder for damage, and repair it.",
}
_MODULES = {
    "collect": "crawl",
    "export": "inspect",
    "init": "setup",
    "limit": "inspect",
    "rebuild": "inspect",
    "identity": "options",
    "report": "inspect",
    "schema": "options",
    "service": "setup",
    "serve": "inspect",
    "status": "inspect",
    "verify": "inspect",
}
"""The module of a command, where it is not called like the command. The function is `NAME_command`, with _
for -."""

_CRAWLERS = frozenset({"collect", "crawl"})

_EXTRAS = {
    "cryptography": "identity",
    "cssselect": "extract",
    "holidays": "holidays",
    "lxml": "extract",
    "numba": "sim",
    "parsel": "extract",
    "prometheus_client": "serve",
    "psycopg": "postgres",
    "pyarrow": "parquet",
    "s3fs": "s3",
    "scrapy": "scrapy",
    "starlette": "serve",
    "uvicorn": "serve",
}
"""The extra of headway that installs an optional package."""

_MIN_COLUMNS = 76
"""On a narrower terminal lines wrap, so that no figure is cut off."""
_FILE_COLUMNS = 160
"""The width of tables that go to a file or a pipe."""


def read_option(option: str, parse: Callable[[Written], T], value: Written) -> T:
    """Parse the value of an option. The error message begins with the option's name."""
    try:
        return parse(value)
    except HeadwayError as problem:
        raise UnitError(f"{option}: {problem}") from None


def stderr() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def stdout(*, is_literal: bool = False) -> Console:
    """With `is_literal`, text in [brackets] is printed as it is, and tables keep a minimum width."""
    console = Screen(highlight=False, markup=not is_literal)
    if is_literal:
        console.width = max(console.width, _MIN_COLUMNS if console.is_terminal else _FILE_COLUMNS)
    return console


def print_lines(console: Console, *lines: str, style: str | None = None) -> None:
    """Print text, wrapped between words on a terminal and not wrapped elsewhere."""
    for line in lines:
        console.print(line, style=style, markup=False, soft_wrap=not console.is_terminal)


@contextmanager
def results() -> Iterator[None]:
    """Around the output at the end of a command: a closed pipe is no error, a full disk is."""
    try:
        yield
    except OSError as problem:
        silence(sys.stdout)
        if problem.errno == errno.ENOSPC:
            raise HeadwayError(
                "the disk of the output file is full; free some space and run the command again"
            ) from None
        if problem.errno not in {errno.EPIPE, errno.EIO}:
            raise


class Frame(click.Group):
    """A group that imports a command only when it is called: `headway --help` need not load SciPy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUMMARIES:
            return None
        if cmd_name in _CRAWLERS:
            # OpenBLAS would start threads that spin, which costs 0.1 s of CPU at each start. Worker processes
            # inherit the setting.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(
            importlib.import_module(f"headway.cli.{_MODULES.get(name, name)}"), f"{name}_command"
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggests the nearest command."""
        name = args[0]
        near = difflib.get_close_matches(name, SUMMARIES, 1)
        if name not in SUMMARIES and near and not name.startswith("-"):
            raise click.UsageError(f"No such command {name!r}. Did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


@click.group(cls=Frame, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="headway")
def headway() -> None:
    """A web crawler that meets its deadlines inside its bandwidth.

    \b
      headway demo                     crawl a small web on this machine
      headway plan job.toml            check whether the deadlines of a job can be met
      headway crawl job.toml -o run    crawl it into the run folder "run"
      headway status run               show the progress
      headway report run --open        write a report and open it in a browser

    "headway COMMAND --help" explains a command.
    """


def _explained(problem: Exception) -> HeadwayError:
    """An unexpected exception as one line: the extra that is not installed, or a bug."""
    if lacks_memory(problem):
        return OutOfMemoryError()
    package = (problem.name or "").partition(".")[0] if isinstance(problem, ModuleNotFoundError) else ""
    if package in _EXTRAS:
        return HeadwayError(f"this needs the package {package}: {install_command(_EXTRAS[package])}")
    return HeadwayError(
        f"a bug in headway: {type(problem).__name__}: {problem}; "
        "run the command again with HEADWAY_TRACEBACK=1 in the environment to get the traceback"
    )


def main(args: list[str] | None = None) -> NoReturn:
    """Run a command and exit with its code. Errors are one line, without a traceback."""
    INTERRUPTS.install()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the terminal may not be UTF-8
    try:
        code: Any = headway.main(args, standalone_mode=False)
    except click.Abort:
        code = INTERRUPTED
    except click.ClickException as problem:
        problem.show()
        code = problem.exit_code
    except HeadwayError as problem:
        code = Log().problem(problem)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as problem:
        if os.environ.get("HEADWAY_TRACEBACK"):
            raise
        code = Log().problem(_explained(problem))
    sys.exit(code or 0)
