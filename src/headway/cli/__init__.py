"""The command line: one module for each subcommand, imported when it is called."""

from headway.cli.frame import main

__all__ = ["main"]
