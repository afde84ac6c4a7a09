"""What all subcommands share: errors without tracebacks, exit codes, and how much is said."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
from rich.console import Console

from headway import __version__
from headway.errors import HeadwayError

INTERRUPTED = 11
DEADLINES_MISSED = 3


def stderr() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def stdout() -> Console:
    return Console(highlight=False)


class Frame(click.Group):
    """A group whose commands end with headway's exit codes and one clear line instead of a traceback."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        try:
            sys.exit(super().main(*args, standalone_mode=False, **extra) or 0)
        except click.Abort:
            sys.exit(INTERRUPTED)
        except click.ClickException as problem:
            problem.show()
            sys.exit(problem.exit_code)
        except HeadwayError as problem:
            stderr().print(f"[red]headway:[/] {_escaped(str(problem))}")
            sys.exit(problem.exit_code)
        except BrokenPipeError:
            # Whoever read our output has gone; nothing is wrong, and Python must not complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")


@click.group(cls=Frame, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="headway")
def headway() -> None:
    """A web crawler that meets its deadlines inside its bandwidth."""
