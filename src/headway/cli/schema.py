"""`headway schema`: what a job file may say, for editors."""

from __future__ import annotations

import click
import msgspec

from headway.config.jsonschema import job_schema


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of job files.

    Many editors complete and check TOML files that begin with

        #:schema job.schema.json
    """
    click.echo(msgspec.json.format(msgspec.json.encode(job_schema()), indent=2).decode())
