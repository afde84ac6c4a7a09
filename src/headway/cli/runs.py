"""How a run is named on the command line: by its folder, or by its address on a PostgreSQL server."""

from __future__ import annotations

from pathlib import Path

import click

from headway.store.postgres.address import is_address


class RunType(click.ParamType):  # type: ignore[type-arg]  # older ones take none
    name = "run"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        text = str(value)
        return text if is_address(text) else Path(text)
