"""`headway verify` and `headway rebuild`: is a run folder whole, and how it becomes whole again."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from headway.cli.frame import Log, log_options, print_lines, results, stdout
from headway.config.job import load_job

_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_DAMAGED = 1


@click.command("verify")
@click.argument("run", type=_FOLDER)
@click.option("--repair", "repairs", is_flag=True, help="Correct what is damaged; queue lost pages again.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@log_options
def verify_command(run: Path, *, repairs: bool, as_json: bool, log: Log) -> int:
    """Check every record, digest, index line and row of a run folder against each other.

    Exits with 1 if anything is damaged and was not repaired. No crawl may be running in the folder.
    """
    from headway.store.verify import verify

    report = verify(run, repairs=repairs)
    with results():
        if as_json:
            click.echo(msgspec.json.encode(report))
        else:
            lines = [f"{finding.kind}: {finding.where}: {finding.what}" for finding in report.findings]
            hidden = sum(report.counts.values()) - len(lines)
            lines += [f"and {hidden} more"] if hidden else []
            print_lines(stdout(is_literal=True), *lines)
    total = sum(report.counts.values())
    checked = f"{report.records} records and {report.pages} pages"
    if not total:
        log.say("verified", f"{checked}; nothing is damaged")
        return 0
    if report.is_repaired:
        log.say("repaired", f"{total} findings in {checked}; {report.queued} pages will be fetched again")
        return 0
    log.say("damaged", f"{total} findings in {checked}; 'headway verify --repair' corrects them")
    return _DAMAGED


@click.command("rebuild")
@click.argument("run", type=_FOLDER)
@click.argument("job", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@log_options
def rebuild_command(run: Path, job: Path | None, *, as_json: bool, log: Log) -> int:
    """Make the database of a run folder again, from its WARC files and logs.

    The old database is renamed. JOB is the job file, for the case that it cannot be read at all.
    """
    from headway.runtime.rebuild import rebuild

    result = rebuild(run, load_job(job) if job is not None else None)
    with results():
        if as_json:
            click.echo(msgspec.json.encode(result))
        else:
            print_lines(stdout(is_literal=True), *result.skipped)
    log.say(
        "rebuilt",
        f"{result.pages} settled pages, {result.captures} captures, {result.waiting} pages wait"
        + (f"; the old database is {result.old_database}" if result.old_database else ""),
    )
    return 0
