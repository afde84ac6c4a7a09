"""What all subcommands share: errors without tracebacks, exit codes, and imports put off until needed."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import click
from rich.console import Console

from headway.cli.log import Log, Screen, silence
from headway.errors import HeadwayError, UnitError
from headway.version import __version__

Written = TypeVar("Written")
T = TypeVar("T")

INTERRUPTED = 11
DEADLINES_MISSED = 3

SUMMARIES = {
    "collect": "Work on a crawl together with other machines.",
    "crawl": "Crawl the sites of a job file, or the URLs given.",
    "demo": "Crawl a small web that headway serves itself.",
    "export": "Write the pages of a run as JSON lines, Parquet or CDXJ.",
    "limit": "Set another bound for a crawl, running or not.",
    "listen-squid": "Keep copies fresh with what the users of a Squid proxy ask for.",
    "plan": "Say whether the deadlines can hold, and with which bandwidth they would.",
    "report": "Write a run as one page with figures.",
    "run-scrapy": "Run Scrapy spiders under one bandwidth, so that their deadlines hold.",
    "schema": "Print the JSON Schema of job files, for editors.",
    "serve": "Show a run in a browser, while it crawls or afterwards, and steer it.",
    "simulate": "Crawl a described web in virtual time.",
    "status": "Show how far a crawl has come.",
}
"""The command NAME is `NAME_command` in the module of its name, with _ for -."""

_CRAWLERS = frozenset({"collect", "crawl"})

_EXTRAS = {
    "cssselect": "extract",
    "holidays": "holidays",
    "lxml": "extract",
    "matplotlib": "plot",
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
"""Which extra of headway brings a package that not everybody needs."""

_LEAST_COLUMNS = 76
"""On a narrower screen the lines run over rather than lose their figures."""
_PAPER_COLUMNS = 160
"""Into a file or a pipe nothing need be folded to the width of a screen."""


def read_option(option: str, parse: Callable[[Written], T], value: Written) -> T:
    """A value from the command line; what cannot be read is refused with the option's name."""
    try:
        return parse(value)
    except HeadwayError as problem:
        raise UnitError(f"{option}: {problem}") from None


def stderr() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def stdout(*, is_literal: bool = False) -> Console:
    """With `is_literal`, no [word] is read as a colour, and a table is not squeezed until it says nothing."""
    console = Screen(highlight=False, markup=not is_literal)
    if is_literal:
        console.width = max(console.width, _LEAST_COLUMNS if console.is_terminal else _PAPER_COLUMNS)
    return console


def print_lines(console: Console, *lines: str, style: str | None = None) -> None:
    """On a screen lines break between words; a program reads whole ones."""
    for line in lines:
        console.print(line, style=style, markup=False, soft_wrap=not console.is_terminal)


@contextmanager
def results() -> Iterator[None]:
    """Around what is printed in the end. A reader that has gone makes no difference to what was done."""
    try:
        yield
    except OSError as problem:
        silence(sys.stdout)
        if problem.errno == errno.ENOSPC:
            raise HeadwayError(
                "the disk that the output goes to is full; make room, then ask again"
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
            # NumPy's algebra would else start threads that wait busily, a tenth of a second for each start.
            # A crawl's worker processes inherit it.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"headway.cli.{name}"), f"{name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


@click.group(cls=Frame, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="headway")
def headway() -> None:
    """A web crawler that meets its deadlines inside its bandwidth."""


def _explained(problem: Exception) -> HeadwayError:
    """What nobody has foreseen, in one line; or which extra is not installed."""
    package = (problem.name or "").partition(".")[0] if isinstance(problem, ModuleNotFoundError) else ""
    if package in _EXTRAS:
        command = f"pip install 'headway[{_EXTRAS[package]}]'"
        return HeadwayError(f"this needs the package {package}; install it with: {command}")
    return HeadwayError(
        f"a bug in headway: {type(problem).__name__}: {problem}; "
        "run the command again with HEADWAY_TRACEBACK=1 in the environment to see where"
    )


def main(args: list[str] | None = None) -> NoReturn:
    """Run a command and exit with headway's codes, with one clear line instead of a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name of any alphabet, on a terminal of any age
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
