"""Command-line options that set keys of the job file, made from the declaration of the keys; and
`headway schema`, which prints that declaration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from headway.config.keys import DeclaredKey, Option, Table, all_keys, json_schema
from headway.config.reading import Source
from headway.config.schema import JobFile
from headway.config.values import FLAG, toml
from headway.store.learnt import LearntStore, default_place

Command = TypeVar("Command", bound=Callable[..., Any])


class JobOption(click.Option):
    """An option that sets a key of the job file."""

    declared: DeclaredKey


def job_options(
    command: str, root: type[Table] = JobFile, /, **changes: Mapping[str, Any]
) -> Callable[[Command], Command]:
    """Add all options that keys declare for a command. `changes` has other arguments for `click.option`, by
    the name of the parameter."""

    def with_options(function: Command) -> Command:
        for name, (option, declared) in reversed(declared_options(command, root).items()):
            arguments = {**_arguments(option, declared), **changes.get(name, {})}
            function = click.option(option.name_in(command), name, cls=JobOption, **arguments)(function)
            made: JobOption = function.__click_params__[-1]  # type: ignore[attr-defined]
            made.declared = declared
        return function

    return with_options


def declared_options(command: str, root: type[Table] = JobFile) -> dict[str, tuple[Option, DeclaredKey]]:
    """The options of a command and the keys that they set, by the name of the parameter."""
    return {
        option.name_in(command).removeprefix("--").replace("-", "_"): (option, declared)
        for declared in all_keys(root)
        if (option := declared.key.option) is not None and command in option.commands.split()
    }


def set_options(
    tables: dict[str, Any],
    source: Source,
    command: str,
    options: Mapping[str, Any],
    root: type[Table] = JobFile,
) -> None:
    """Replace values of the job file by those of options. None and () mean that an option was not given."""
    for name, (option, declared) in declared_options(command, root).items():
        value = options.get(name)
        if value is None or value == ():
            continue
        for table in _tables_at(tables, declared.table.path):
            table[declared.name] = option.sets if declared.kind is FLAG else value
        source.overrule(".".join((*declared.table.path, declared.name)), option.name_in(command))


def _tables_at(tables: dict[str, Any], path: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    if not path:
        yield tables
        return
    inner = tables.setdefault(path[0], {})
    for table in inner if isinstance(inner, list | tuple) else [inner]:
        yield from _tables_at(table, path[1:])


def _arguments(option: Option, declared: DeclaredKey) -> dict[str, Any]:
    """The arguments of `click.option`."""
    kind = declared.kind
    assert kind is not None
    arguments: dict[str, Any] = {"help": option.help}
    if kind is FLAG:
        return arguments | {"is_flag": True, "default": None}
    if default := _default(declared):
        arguments["help"] += f"  [default: {default}]"
    if kind.choices:
        return arguments | {"type": click.Choice(kind.choices)}
    return arguments | {
        "metavar": option.usage.partition(" ")[2],
        "type": int if kind.types == (int,) else str,
        "multiple": declared.is_list,
    }


def _default(declared: DeclaredKey) -> str:
    if declared.key.default:
        return declared.key.default.strip("`")
    value = declared.default
    return value if isinstance(value, str) else "" if value is None else toml(value)


def learning_options(function: Command) -> Command:
    """What a command takes from earlier runs; see `learnt_by`."""
    function = click.option(
        "--forget",
        is_flag=True,
        help="Use nothing that earlier runs have learnt of sites and servers; `crawl` keeps nothing either.",
    )(function)
    return click.option(
        "--learn-from",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="RUN",
        help="Take sizes and rates of sites from this earlier run first.",
    )(function)


def learnt_by(learn_from: Path | None, *, forget: bool, warn: Callable[[str], None]) -> LearntStore:
    """What earlier runs of this user have learnt, and the named run."""
    return LearntStore(None if forget else default_place(), warn, learn_from=learn_from)


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of job files.

    Save it as job.schema.json beside a job file; many editors then complete and check TOML files that begin
    with this line:

    \b
        #:schema job.schema.json
    """
    click.echo(msgspec.json.format(msgspec.json.encode(json_schema(JobFile)), indent=2).decode())
