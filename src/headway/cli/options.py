"""Command-line options that set keys of the job file, made from the declaration of the keys; `headway
schema`, which prints that declaration; and `headway identity`, which makes the key that a job names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from headway.config.keys import DeclaredKey, Option, Table, all_keys, json_schema
from headway.config.reading import Source
from headway.config.schema import JobFile
from headway.config.values import CONTACT, FLAG, NETWORK, toml
from headway.errors import HeadwayError
from headway.policy.scope import product_token
from headway.store.learnt import LearntStore, default_place
from headway.units import Instant, parse_duration, utc_text

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
        return declared.key.default.replace("`", "")
    value = declared.default
    return value if isinstance(value, str) else "" if value is None else toml(value)


def learning_options(function: Command) -> Command:
    """What a command takes from earlier runs; see `learnt_by`."""
    function = click.option(
        "--forget",
        is_flag=True,
        help="Ignore what earlier runs have learnt about sites and servers; crawl saves nothing new.",
    )(function)
    return click.option(
        "--learn-from",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="RUN",
        help="Prefer the sizes and rates of sites that this earlier run measured.",
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


@click.group("identity")
def identity_command() -> None:
    """Create a key pair that identifies the crawler, and the files to publish.

    Requests are signed with the key by Web Bot Auth (RFC 9421), so that site owners can tell your crawler
    from others that use its name.
    """


@identity_command.command("init", short_help="Create a key, and the files to publish.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--agent", required=True, metavar="URL", help="Where you publish the files: https://bot.example.org"
)
@click.option("--contact", required=True, metavar="CONTACT", help="E-mail address or web page of the owner.")
@click.option("--name", default="headway", show_default=True, help="Your product token in robots.txt.")
@click.option("--range", "ranges", multiple=True, metavar="CIDR", help="Addresses you crawl from.")
@click.option(
    "--valid", default="365 d", show_default=True, metavar="TIME", help="How long the key is valid."
)
@click.option("--rotate", "rotates", is_flag=True, help="Create a new key; the earlier one stays published.")
def init_command(
    folder: Path, *, agent: str, contact: str, name: str, ranges: tuple[str, ...], valid: str, rotates: bool
) -> int:
    """Create a key, and a folder "publish" for your web server: public key, bot page and address ranges."""
    from headway.http.identity import PUBLISHED, check_agent, make_identity

    product = product_token(name)
    if not product:
        raise HeadwayError(f"--name: {name!r} has no product token such as 'mybot'")
    try:
        about = make_identity(
            folder,
            Instant(time.time()),
            agent=check_agent(agent),
            name=name,
            contact=CONTACT.read(contact),
            ranges=[NETWORK.read(each) for each in ranges],
            lasts_s=parse_duration(valid),
            rotates=rotates,
        )
    except OSError as problem:
        raise HeadwayError(f"{folder}: {problem.strerror}") from None
    click.echo(f"key {about.kid} in {folder}; nobody else may read it")
    click.echo(f"publish the files of {folder / PUBLISHED} at {about.agent}/, then write in your job:\n")
    click.echo(f"[crawl]\nuser_agent = {toml(f'{name} (+{about.agent}/bot.html)')}")
    click.echo(f"contact = {toml(about.contact)}\n\n[crawl.identity]\nfolder = {toml(str(folder))}")
    return 0


@identity_command.command("show", short_help="Check a key.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
def show_command(folder: Path) -> int:
    """Check a key, and show its name and its date of expiry."""
    from headway.http.identity import load_signer

    about = load_signer(folder, Instant(time.time())).about
    click.echo(
        f"key      {about.kid}\nagent    {about.agent}\nname     {about.name}\ncontact  {about.contact}"
    )
    click.echo(f"valid    until {utc_text(Instant(about.expires_at))}")
    for each in about.ranges:
        click.echo(f"range    {each}")
    return 0
