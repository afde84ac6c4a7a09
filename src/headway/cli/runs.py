"""How a run is named on the command line: by its folder or the database in it, or by its address on a
PostgreSQL server."""

from __future__ import annotations

from pathlib import Path

import click

from headway.store.postgres.address import is_address
from headway.store.reader import DATABASE


class RunType(click.ParamType):  # type: ignore[type-arg]  # older ones take none
    name = "run"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        text = str(value)
        if is_address(text):
            return text
        path = Path(text)
        return path.parent if path.name == DATABASE else path
