"""`headway init` and `headway service`: a commented job file, and what systemd or cron need to run it every
night."""

from __future__ import annotations

import datetime as dt
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from headway.archive.files import clear_errors, put_in_place
from headway.cli.frame import Log, log_options, results
from headway.config.job import Job, load_job
from headway.config.values import clock_minute, toml
from headway.errors import HeadwayError, JobError, UnitError
from headway.policy.timetable import DAY_MINUTES
from headway.units import Instant

_HINT = "# Every key is in the reference, docs/reference/job-file.md; 'headway plan FILE' checks this file."


@click.command("init")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("job.toml"),
    show_default=True,
    help="The job file to write.",
)
@click.option("--sites", metavar="FILE", help="A list of sites: CSV, or text with a URL on each line.")
@click.option("--bandwidth", metavar="RATE", help="Bandwidth limit, such as 5Mbit/s.")
@click.option("--deadline", metavar="WHEN", help="Deadline of every site: 07:30, or 2h from the start.")
@click.option("--from", "begin", metavar="HH:MM", help="Crawl only from this time of day.")
@click.option("--until", metavar="HH:MM", help="Crawl only until this time of day.")
@click.option("--timezone", metavar="ZONE", help="The time zone of these times, such as Europe/Berlin.")
@click.option("--interval", metavar="TIME", help="Pause between two requests to a site, such as 5s.")
@click.option("--max-pages", type=click.IntRange(min=1), metavar="N", help="At most N pages of each site.")
@click.option("--keep", metavar="ROUNDS|SIZE", help='How much to keep: "30 rounds" or "20 GB".')
@click.option("--email", metavar="ADDRESS", help="Send the result to this address.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@log_options
def init_command(urls: tuple[str, ...], out: Path, *, force: bool, log: Log, **given: object) -> int:
    """Write a job file with comments, from the options or from answers to questions.

    \b
      headway init                                                asks for all values
      headway init https://www.example.org/ --deadline 07:30 --bandwidth 5Mbit/s -o nightly.toml

    Without URLs, on a terminal, it asks for everything that no option gives.
    """
    values = {name: value for name, value in given.items() if value is not None}
    if out.exists() and not force:
        raise click.UsageError(f"{out} is there already; give another file with -o, or --force")
    if not urls and "sites" not in values:
        if not sys.stdin.isatty():
            raise click.UsageError("give the URLs of the sites, or a list of them with --sites")
        urls = _ask(values)
    if ("begin" in values) != ("until" in values):
        raise click.UsageError("a window needs both: --from 22:00 --until 07:30")
    text = _job_text(urls, values)
    with tempfile.TemporaryDirectory() as folder, clear_errors(out):
        draft = Path(folder) / out.name
        draft.write_text(text, encoding="utf-8")
        if "sites" in values and not Path(str(values["sites"])).is_absolute():
            draft.write_text(_with_whole_path(text, out, str(values["sites"])), encoding="utf-8")
        try:
            _checked(draft)
        except JobError as problem:
            raise JobError(_as_said(str(problem), draft)) from None
        put_in_place(out, text.encode())
    log.say("written", f"{out}; check it with: headway plan {out}", {"file": str(out)})
    return 0


def _checked(path: Path) -> Job:
    job = load_job(path)
    now = Instant(dt.datetime.now(dt.UTC).timestamp())
    job.tasks(now)
    return job


def _with_whole_path(text: str, out: Path, sites: str) -> str:
    """A list is looked for beside the job file."""
    whole = (out.absolute().parent / sites).as_posix()
    return text.replace(f"sites_from = {toml(sites)}", f"sites_from = {toml(whole)}", 1)


def _as_said(message: str, draft: Path) -> str:
    """The message without the place in a file that the user has not written."""
    return re.sub(rf"^{re.escape(str(draft))}(?:, line \d+)?: ", "", message)


def _ask(values: dict[str, object]) -> tuple[str, ...]:
    """What no option has given. Empty answers leave a setting out."""
    urls: list[str] = []
    while True:
        url = click.prompt(
            "URL of a site" if not urls else "URL of another site (empty: no more)",
            default="",
            err=True,
            show_default=False,
        ).strip()
        if not url and urls:
            break
        if url:
            urls.append(url if "://" in url else f"https://{url}/")
    for name, question in (
        ("bandwidth", "Bandwidth limit, such as 5Mbit/s (empty: none)"),
        ("deadline", "Deadline of the sites, such as 07:30 or 2h (empty: none)"),
        ("begin", "Crawl only from, such as 22:00 (empty: at any time)"),
        ("until", "Crawl only until, such as 07:30"),
        ("keep", "How much to keep, such as 30 rounds or 20 GB (empty: everything)"),
    ):
        if name in values or (name == "until" and "begin" not in values):
            continue
        answer = click.prompt(question, default="", err=True, show_default=False).strip()
        if answer:
            values[name] = answer
    return tuple(urls)


def _job_text(urls: tuple[str, ...], values: dict[str, object]) -> str:
    def line(key: str, name: str, example: object, comment: str) -> str:
        value = values.get(name)
        mark = "" if value is not None else "# "
        return f"{mark}{key} = {toml(example if value is None else value)}".ljust(35) + f" # {comment}"

    parts = [
        _HINT,
        "",
        "[crawl]",
        line("bandwidth", "bandwidth", "5 Mbit/s", "the most that the crawl may receive"),
        line("interval", "interval", "5 s", "pause between two requests to a site"),
        line("max_pages", "max_pages", 20000, "pages of each site"),
        line("timezone", "timezone", "Europe/Berlin", "of times of day in this file"),
        line("keep", "keep", "30 rounds", "older rounds are removed; or a size, as 20 GB"),
        line("user_agent", "user_agent", "mybot/1.0 (+https://example.org/bot)", "who you are"),
    ]
    if "sites" in values:
        parts.append(line("sites_from", "sites", "sites.csv", "CSV, or a URL on each line"))
    parts += ["", "# When the crawl may run; outside it asks for nothing."]
    mark = "" if "begin" in values else "# "
    parts += [
        f"{mark}[[window]]",
        f"{mark}from = {toml(values.get('begin', '22:00'))}",
        f"{mark}until = {toml(values.get('until', '07:30'))}".ljust(36) + "# on the next day",
        "",
    ]
    for url in urls:
        parts += [
            "[[site]]",
            f"url = {toml(url)}",
            line("deadline", "deadline", "07:30", "a time of day, or 2 h from the start"),
            line("max_pages", "", 5000, "of this site"),
            "",
        ]
    parts += ["# What is done when the crawl has ended.", "[on_end]" if "email" in values else "# [on_end]"]
    email = values.get("email")
    if email is not None:
        parts.append(f"email = [{toml(email)}]")
    else:
        parts.append('# email = ["you@example.org"]')
    parts += ['# command = ["/usr/local/bin/crawl-done"]', '# webhook = "https://example.org/hook"', ""]
    return "\n".join(parts)


# -- service ----------------------------------------------------------------------------------------------

_WEEKDAYS = {"mon": "Mon", "tue": "Tue", "wed": "Wed", "thu": "Thu", "fri": "Fri", "sat": "Sat", "sun": "Sun"}
_CRON_DAYS = {name: number for number, name in enumerate(_WEEKDAYS, 1)}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,60}")
_SAFE = re.compile(r"[A-Za-z0-9_./:@+,=-]+")


class _Service(msgspec.Struct, frozen=True):
    """What is started, and when."""

    name: str
    program: str
    job: Path
    run: Path
    user: str | None
    minute: int
    days: tuple[str, ...]
    """Of the week, by three letters; empty: all."""
    timezone: str | None


@click.command("service")
@click.argument("job_file", type=click.Path(path_type=Path), metavar="JOB.toml")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    default=Path("run"),
    show_default=True,
    help="The run folder.",
)
@click.option("--at", metavar="HH:MM", help="Time of the start.  [default: when the window opens, or 22:00]")
@click.option("--kind", type=click.Choice(["systemd", "cron"]), default="systemd", show_default=True)
@click.option("--user", metavar="NAME", help="User that runs the crawl.  [default: you]")
@click.option("--name", metavar="NAME", help="Name of the units.  [default: headway-JOB]")
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the units into this folder, such as /etc/systemd/system.  [default: print them]",
)
@log_options
def service_command(
    job_file: Path,
    out: Path,
    *,
    at: str | None,
    kind: str,
    user: str | None,
    name: str | None,
    folder: Path | None,
    log: Log,
) -> int:
    """Write systemd units, or a crontab line, that crawl a job every night into one run folder.

    \b
      headway service nightly.toml -o /srv/crawl/run --to /etc/systemd/system
      systemctl daemon-reload && systemctl enable --now headway-nightly.timer

    The units are checked with systemd-analyze if it is installed.
    """
    service = _service_of(job_file, out, at, user, name)
    if kind == "cron":
        files = {service.name: _cron_file(service)} if folder is not None else {}
        if folder is None:
            with results():
                click.echo(_cron_line(service))
            return 0
    else:
        files = {
            f"{service.name}.service": _service_unit(service),
            f"{service.name}.timer": _timer_unit(service),
        }
        _analyze(files, log)
    if folder is None:
        with results():
            for title, text in files.items():
                click.echo(f"# {title}\n{text}")
        return 0
    if not folder.is_dir():
        raise HeadwayError(f"{folder}: there is no such folder")
    for title, text in files.items():
        with clear_errors(folder / title):
            put_in_place(folder / title, text.encode())
        log.say("written", str(folder / title), {"file": str(folder / title)})
    if kind == "systemd":
        log.say("next", f"systemctl daemon-reload && systemctl enable --now {service.name}.timer")
    return 0


def _service_of(job_file: Path, out: Path, at: str | None, user: str | None, name: str | None) -> _Service:
    job = _checked(job_file)
    window = job.file.window[0] if job.file.window else None
    try:
        minute = clock_minute(at if at is not None else "22:00" if window is None else window.begin)
    except UnitError as problem:
        raise UnitError(f"--at: {problem}") from None
    days = () if window is None else _days_of(job)
    for path in (job_file.absolute(), out.absolute()):
        if not str(path).isprintable():
            raise HeadwayError(f"{str(path)!r}: a path with such characters cannot be written into a unit")
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", job_file.stem).strip("-.") or "crawl"
    chosen = name or f"headway-{stem}"
    for option, text in (("--name", chosen), ("--user", user or "root")):
        if not _NAME.fullmatch(text):
            raise click.UsageError(f"{option}: {text!r} is not a name; use letters, digits, _ and -")
    return _Service(
        chosen,
        _program(),
        job_file.absolute(),
        out.absolute(),
        user,
        minute % DAY_MINUTES,
        days,
        job.file.crawl.timezone,
    )


def _days_of(job: Job) -> tuple[str, ...]:
    """The weekdays on which a window opens; empty if it does on all."""
    days = {day for window in job.timetable.windows for day in window.days}
    return () if len(days) == len(_WEEKDAYS) else tuple(name for n, name in enumerate(_WEEKDAYS) if n in days)


def _program() -> str:
    """The installed command, by its whole path."""
    beside = Path(sys.executable).with_name("headway")
    found = beside if beside.exists() else shutil.which("headway")
    return str(found) if found is not None else f"{sys.executable} -m headway"


def _quoted(path: Path) -> str:
    """For a command line of systemd."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return text if _SAFE.fullmatch(text) else f'"{text}"'


def _service_unit(service: _Service) -> str:
    user = service.user or (None if os.geteuid() == 0 else _user_name())
    folder = str(service.job.parent).replace("%", "%%")
    lines = [
        "[Unit]",
        f"Description=Crawl {service.job.name.replace('%', '%%')} with headway",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        "Type=oneshot",
        *([f"User={user}"] if user else []),
        f"WorkingDirectory={folder}",
        f"ExecStart={service.program} crawl {_quoted(service.job)} -q -o {_quoted(service.run)}",
        "# 3: complete, but a deadline was missed.",
        "SuccessExitStatus=3",
        "# After the first SIGINT requests in flight end and are saved. After the time-out systemd sends",
        "# SIGKILL, which loses nothing either.",
        "KillSignal=SIGINT",
        "TimeoutStopSec=60",
        "",
    ]
    return "\n".join(lines)


def _user_name() -> str | None:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None


def _timer_unit(service: _Service) -> str:
    days = ",".join(_WEEKDAYS[day] for day in service.days)
    zone = f" {service.timezone}" if service.timezone else ""
    when = f"{days} " if days else ""
    hour, minute = divmod(service.minute, 60)
    return "\n".join(
        [
            "[Unit]",
            f"Description=Start {service.name}.service",
            "",
            "[Timer]",
            f"OnCalendar={when}*-*-* {hour:02}:{minute:02}:00{zone}",
            "Persistent=true",
            "",
            "[Install]",
            "WantedBy=timers.target",
            "",
        ]
    )


def _shell_quoted(path: Path) -> str:
    """For a line of cron, in which an unescaped % is a new line."""
    return shlex.quote(str(path)).replace("%", "\\%")


def _cron_line(service: _Service, user: str = "") -> str:
    days = ",".join(str(_CRON_DAYS[day]) for day in service.days) or "*"
    hour, minute = divmod(service.minute, 60)
    folder, job, run = map(_shell_quoted, (service.job.parent, service.job, service.run))
    who = f"{user} " if user else ""
    return (
        f"{minute} {hour} * * {days}  {who}cd {folder} && {service.program} crawl {job} -q -o {run}"
        ' || echo "headway ended with $?"'
    )


def _cron_file(service: _Service) -> str:
    """For /etc/cron.d, whose lines name a user."""
    note = "# cron mails what is printed: with -q only what is wrong. Times are those of the machine.\n"
    return f"{note}{_cron_line(service, service.user or _user_name() or 'root')}\n"


def _analyze(files: dict[str, str], log: Log) -> None:
    """Let systemd check the units. HeadwayError with what it finds."""
    program = shutil.which("systemd-analyze")
    if program is None:
        log.detail("service", "systemd-analyze is not installed, so the units are not checked")
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / title for title in files]
        for path, text in zip(paths, files.values(), strict=True):
            path.write_text(text, encoding="utf-8")
        done = subprocess.run(  # noqa: S603 - a program of the system
            [program, "verify", *map(str, paths)], capture_output=True, text=True, timeout=30, check=False
        )
    if done.returncode:
        raise HeadwayError(f"systemd does not accept the units: {done.stderr.strip()}")
