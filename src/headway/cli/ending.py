"""The end of `headway crawl`: it notes the end of the round, removes what `keep` does not
cover, and calls the hooks of `[on_end]`.

Nothing here changes the result of the crawl: trouble is logged, with the exit code of a command, and the exit
code of the crawl stays.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headway.archive.records import iso_utc
from headway.cli.frame import Log, printable
from headway.config.job import Job
from headway.config.values import Rounds
from headway.errors import HeadwayError, JobError
from headway.store.rounds import Pruned, Round, counts_of, prune, words_of
from headway.units import Instant, format_duration, format_size
from headway.version import __version__
from headway.view.summary import Summary, finish_round, rounds_in, site_lines, summarise

HOOK_LOG = "on_end.jsonl"
_SENDMAIL = ("/usr/sbin/sendmail", "/usr/lib/sendmail", "/usr/local/sbin/sendmail")
_MOST_NAMED = 1000
_MOST_OUTPUT = 2000
_KILLED_AFTER_S = 2.0
"""After SIGTERM."""


class MissedDeadline(msgspec.Struct, frozen=True):
    site: str
    deadline: str
    finished: str | None
    verdict: str


class EndReport(msgspec.Struct, frozen=True):
    """What the hooks get, as JSON."""

    run: str
    state: str
    exit_code: int
    error: str
    started_at: str
    ended_at: str
    round: int
    pages: int
    failed: int
    bytes: int
    changes: Mapping[str, int]
    """Pages that the round found new, changed, unchanged, gone and failed."""
    met: int
    missed: tuple[MissedDeadline, ...]
    problems: tuple[str, ...]
    """Sites that were not crawled as the job says, in words."""
    report: str
    """The path of the HTML report; empty if there is none."""
    headway: str = __version__


def check_hooks(job: Job) -> None:
    """JobError, before the crawl begins, if a hook cannot work."""
    hooks = job.file.on_end
    if hooks.command and shutil.which(hooks.command[0]) is None:
        raise JobError(
            f"on_end.command: {hooks.command[0]!r} is not a program that can be executed; give its whole path"
        )
    if hooks.email and _sendmail() is None:
        raise JobError(
            "on_end.email: this machine has no sendmail; install one (msmtp-mta, postfix, ...), or use "
            "webhook or command"
        )


class Ended(NamedTuple):
    """A crawl that has ended, by itself or by an error."""

    run: Path | str
    folder: Path
    """Where this machine has its part of the run."""
    summary: Summary
    exit_code: int
    error: str = ""


def report_failure(job: Job, run: Path | str, folder: Path, problem: HeadwayError, log: Log) -> None:
    """Call the hooks after a crawl that an error has ended, as far as its folder can still be read."""
    try:
        ended = Ended(run, folder, summarise(run, compares_pages=False), problem.exit_code, str(problem))
        call_hooks(job, ended, rounds_in(run), log)
    except (HeadwayError, OSError) as trouble:
        log.trouble("on-end", f"the hooks of [on_end] could not be called: {trouble}")


def conclude(job: Job, ended: Ended, log: Log) -> None:
    """After a crawl that was not interrupted."""
    rounds: list[Round] = []
    run = ended.run
    try:
        if ended.summary.state == "finished" and job.revisiting is None:
            finish_round(run, ended.summary, ended.exit_code)
            if job.kept is not None and isinstance(run, Path):
                moved_to = job.file.crawl.keep_old_in
                folder = None if moved_to is None else Path(moved_to)
                if isinstance(job.kept, Rounds):
                    pruned = prune(run, rounds=job.kept, moved_to=folder)
                else:
                    pruned = prune(run, most_bytes=job.kept, moved_to=folder)
                _say_pruned(log, pruned, moved_to)
        rounds = rounds_in(run)
        _say_round(log, rounds)
    except HeadwayError as problem:
        log.trouble("round", f"the end of the round: {problem}")
    call_hooks(job, ended, rounds, log)


def _say_round(log: Log, rounds: list[Round]) -> None:
    if len(rounds) > 1 and rounds[-1].result is not None:
        result, number = rounds[-1].result, rounds[-1].number
        log.say("round", f"round {number}: {words_of(result)}", {"round": number})


def _say_pruned(log: Log, pruned: Pruned, moved_to: str | None) -> None:
    if pruned.files:
        done = "removed" if moved_to is None else f"moved to {moved_to}"
        log.say(
            "kept",
            f"{pruned.files} archive files beyond keep {done}, {format_size(pruned.freed_bytes)};"
            f" {pruned.rounds} rounds are kept",
            {"files": pruned.files, "freed_bytes": pruned.freed_bytes, "rounds": pruned.rounds},
        )
    if pruned.trouble:
        log.trouble("kept", f"keep: {pruned.trouble}")


def report_of(ended: Ended, rounds: list[Round], report: str) -> EndReport:
    summary = ended.summary
    result = rounds[-1].result if rounds else None
    late = [site for site in summary.sites if site.verdict == "missed" or site.is_failure]
    ended_at = summary.started_at + summary.seconds
    return EndReport(
        run=summary.run,
        state=summary.state,
        exit_code=ended.exit_code,
        error=ended.error,
        started_at=iso_utc(summary.started_at),
        ended_at=iso_utc(Instant(ended_at)),
        round=len(rounds) or 1,
        pages=summary.done,
        failed=summary.failed,
        bytes=summary.wire_bytes,
        changes={} if result is None else counts_of(result),
        met=summary.deadlines.met,
        missed=tuple(
            MissedDeadline(
                site.site,
                "" if site.deadline_s is None else iso_utc(Instant(summary.started_at + site.deadline_s)),
                None if site.finished_s is None else iso_utc(Instant(summary.started_at + site.finished_s)),
                site.verdict,
            )
            for site in late[:_MOST_NAMED]
        ),
        problems=tuple(site_lines(summary.sites[:_MOST_NAMED])),
        report=report,
    )


# -- hooks ------------------------------------------------------------------------------------------------


class HookResult(NamedTuple):
    hook: str
    ok: bool
    what: str
    """In words, for the log."""
    exit_code: int | None = None


def call_hooks(job: Job, ended: Ended, rounds: list[Round], log: Log) -> None:
    hooks, folder = job.file.on_end, ended.folder
    if not (hooks.command or hooks.webhook or hooks.email):
        return
    if hooks.when == "trouble" and ended.exit_code == 0:
        return
    facts = report_of(ended, rounds, _written_report(ended, log) if hooks.report else "")
    body = msgspec.json.encode(facts)
    within_s = job.hook_timeout_s
    calls: list[tuple[str, Callable[[], HookResult]]] = []
    if hooks.command:
        calls.append(("command", partial(_command, hooks.command, facts, body, within_s)))
    if hooks.webhook:
        calls.append(("webhook", partial(_within, within_s, partial(_post, hooks.webhook, body, within_s))))
    if hooks.email:
        calls.append(("email", partial(_mail, hooks.email, facts, within_s)))
    for name, call in calls:
        begun = time.monotonic()
        try:
            result = call()
        except (OSError, ValueError) as problem:
            result = HookResult(name, False, str(problem))
        took_s = time.monotonic() - begun
        _note(folder, result, took_s)
        text = f"on_end.{name}: {result.what}"
        seen = {"hook": name, "ok": result.ok, "exit_code": result.exit_code, "seconds": round(took_s, 3)}
        if result.ok:
            log.say("on-end", text, seen)
        else:
            log.trouble("on-end", text, seen)


def _written_report(ended: Ended, log: Log) -> str:
    """The path of the report, which is written for the hooks; empty if it cannot be."""
    try:
        from headway.report.run_page import write_report
        from headway.view.reporting import gather

        if isinstance(ended.run, str):
            return ""
        return str(write_report(gather(ended.run), ended.run / "report").resolve())
    except ModuleNotFoundError as problem:
        log.detail("on-end", f"no report is written: it needs the package {problem.name}")
    except Exception as problem:  # whatever it is, the hooks are called
        log.trouble("on-end", f"the report could not be written: {problem}")
    return ""


def _note(folder: Path, result: HookResult, took_s: float) -> None:
    line = {
        "at": iso_utc(Instant(time.time())),
        "hook": result.hook,
        "ok": result.ok,
        "exit_code": result.exit_code,
        "seconds": round(took_s, 3),
        "what": result.what,
    }
    with contextlib.suppress(OSError), (folder / HOOK_LOG).open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")


def _environment(facts: EndReport) -> dict[str, str]:
    return {
        **os.environ,
        "HEADWAY_RUN": facts.run,
        "HEADWAY_STATE": facts.state,
        "HEADWAY_EXIT_CODE": str(facts.exit_code),
        "HEADWAY_MISSED": str(len(facts.missed)),
        "HEADWAY_ROUND": str(facts.round),
        "HEADWAY_REPORT": facts.report,
    }


def _command(command: tuple[str, ...], facts: EndReport, body: bytes, within_s: float) -> HookResult:
    return _ran("command", [*command], body, within_s, _environment(facts))


def _ran(
    name: str, words: list[str], body: bytes, within_s: float, environment: dict[str, str]
) -> HookResult:
    """Run a program in a process group of its own, which is ended with all that it has started."""
    process = subprocess.Popen(  # noqa: S603 - the user's own command
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(body, timeout=within_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return HookResult(name, False, f"ended after {format_duration(within_s)}, its time limit", None)
    except BaseException:
        _end(process)
        raise
    said = printable(output.decode("utf-8", "replace").strip().replace("\n", " | "))[-_MOST_OUTPUT:]
    told = f": {said}" if said else ""
    code = process.returncode
    return HookResult(name, code == 0, f"exit code {code}{told}", code)


def _end(process: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        try:
            process.wait(_KILLED_AFTER_S)
        except subprocess.TimeoutExpired:
            continue
        if sign is signal.SIGTERM:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # what it has left behind
        break
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _within(within_s: float, call: Callable[[], HookResult]) -> HookResult:
    """A server that sends its answer byte by byte would pass every time limit of a single read."""
    results: list[HookResult] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(within_s)
    if not results:
        return HookResult("webhook", False, f"no answer after {format_duration(within_s)}, its time limit")
    return results[0]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _post(url: str, body: bytes, within_s: float) -> HookResult:
    headers = {"Content-Type": "application/json", "User-Agent": f"headway/{__version__}"}
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - http or https
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=within_s) as answer:
            return HookResult("webhook", True, f"status {answer.status}")
    except urllib.error.HTTPError as problem:
        return HookResult("webhook", False, f"status {problem.code}")
    except Exception as problem:  # in a thread: whatever it is, it is reported
        return HookResult(
            "webhook", False, str(getattr(problem, "reason", problem)) or type(problem).__name__
        )


def _sendmail() -> str | None:
    found = shutil.which("sendmail")
    return found or next((path for path in _SENDMAIL if os.access(path, os.X_OK)), None)


def _mail(to: tuple[str, ...], facts: EndReport, within_s: float) -> HookResult:
    program = _sendmail()
    if program is None:
        return HookResult("email", False, "this machine has no sendmail")
    letter = EmailMessage()
    letter["To"] = ", ".join(to)
    letter["Subject"] = " ".join(f"headway: {_outcome(facts)} ({Path(facts.run).name})".split())
    letter["Auto-Submitted"] = "auto-generated"
    letter.set_content(_text(facts))
    letter.add_attachment(
        msgspec.json.format(msgspec.json.encode(facts), indent=2),
        maintype="application",
        subtype="json",
        filename="headway.json",
    )
    words = [program, "-i", "--", *to]
    return _ran("email", words, bytes(letter), within_s, _environment(facts))


def _outcome(facts: EndReport) -> str:
    if facts.error:
        return "the crawl failed"
    missed = sum(each.verdict == "missed" for each in facts.missed)
    failed = len(facts.missed) - missed
    troubles = [f"{missed} deadlines missed"] * bool(missed) + [f"{failed} sites not crawled"] * bool(failed)
    return ", ".join(troubles) or "crawl complete"


def _text(facts: EndReport) -> str:
    lines = [
        f"{facts.run}: {facts.state}, exit code {facts.exit_code}",
        f"{facts.started_at} to {facts.ended_at}, round {facts.round}",
        f"{facts.pages} pages, {facts.failed} failed, {format_size(facts.bytes)}",
    ]
    if facts.error:
        lines.append(facts.error)
    if facts.changes:
        lines.append(words_of(facts.changes))
    lines += [
        f"{each.verdict}: {each.site}"
        + (f", deadline {each.deadline}, finished {each.finished or '-'}" if each.deadline else "")
        for each in facts.missed[:50]
    ]
    lines += facts.problems[:50]
    if facts.report:
        lines.append(f"report: {facts.report}")
    return "\n".join(map(printable, lines)) + "\n"
