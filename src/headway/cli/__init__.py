"""The command line: the module of a subcommand is imported when it is called."""

from headway.cli.frame import main

__all__ = ["main"]
