"""The command line: one file a subcommand, each imported when it is called."""

from headway.cli.frame import main

__all__ = ["main"]
