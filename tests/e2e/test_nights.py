"""Every night in one run folder, as docs/how-to/every-night.md says: three nights of a web that changes, in
a window, with a site that redirects and one that is down for a while. The clock is that of `faketime`."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import pty
import re
import select
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from warcio.archiveiterator import ArchiveIterator

from headway.cli import frame
from headway.config.job import load_job
from headway.errors import StoreError
from headway.report.run_page import write_report
from headway.store.reader import RunReader
from headway.store.rounds import RoundResult, end_round, next_round, prune, rounds_of
from headway.store.verify import verify
from headway.view.reporting import gather

pytestmark = pytest.mark.timeout(400)  # three nights, on a machine that may be busy
HEADWAY = [sys.executable, "-m", "headway"]
# `sleep` keeps the pipe open after the end of the shell, so that nothing waits for the shell itself: with
# libfaketime a sleep of less than a millisecond can fail with EINVAL.
JOB = """\
[crawl]
interval = "5 ms"
backoff = "1 s"
max_backoff = "3 s"
bandwidth = "20 Mbit/s"
allow_private = true
timezone = "Europe/Berlin"
keep = "2 rounds"
keep_old_in = "{old}"

[[window]]
from = "22:00"
until = "07:30"

{sites}
[on_end]
command = ["/bin/sh", "-c", "cat >> {hook}; echo >> {hook}; echo said; sleep 0.3 & exit 3"]
webhook = "{webhook}"
report = false
timeout = "20 s"
"""


class Web:
    """Sites whose pages depend on the night."""

    def __init__(self) -> None:
        self.night = 1
        self.posted: list[Any] = []
        self.servers: dict[str, ThreadingHTTPServer] = {}
        self.ports: dict[str, int] = {}

    def up(self, name: str) -> None:
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                web.posted.append(json.loads(body))
                self.answer(204, b"")

            def do_GET(self) -> None:
                if self.path == "/robots.txt":
                    return self.answer(404, b"")
                if name == "moved":
                    return self.answer(301, b"", Location=f"http://127.0.0.1:{web.ports['target']}/en/")
                body = web.page(name, self.path)
                if body is None:
                    return self.answer(404, b"")
                tag = f'"{hashlib.md5(body).hexdigest()}"'
                if self.headers.get("If-None-Match") == tag and self.path != "/p4":
                    return self.answer(304, b"", ETag=tag)
                return self.answer(200, body, ETag=tag)

            def answer(self, status: int, body: bytes, **headers: str) -> None:
                self.send_response(status)
                for key, value in {"Content-Type": "text/html", **headers}.items():
                    self.send_header(key, value)
                if status not in {204, 304}:
                    self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", self.ports.get(name, 0)), Handler)
        self.ports[name] = server.server_port
        self.servers[name] = server
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def down(self, name: str) -> None:
        server = self.servers.pop(name)
        server.shutdown()
        server.server_close()

    def page(self, name: str, path: str) -> bytes | None:
        """/p1 changes each night, /p2 is gone in the third, /new-N appears in night N."""
        pages = [f"/p{number}" for number in range(8) if not (number == 2 and self.night == 3)]
        pages += [f"/new-{night}" for night in range(2, self.night + 1)]
        if path in {"/", "/en/"}:
            links = "".join(f"<a class=x href='{page}?a=1&amp;b=2#top'>{page}</a>" for page in pages)
            return f"<title>{name}</title><base href=/><p>{links}<a href=mailto:me@example.org>".encode()
        if path.partition("?")[0] not in pages:
            return None
        night = self.night if path.startswith("/p1?") else 1
        return f"<title>{path}</title><p>{name} {path} {night} {'some words ' * 30}<a href=/>up</a>".encode()


def crawl(run: Path, night: int) -> subprocess.CompletedProcess[str]:
    clock = {
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "HEADWAY_LEARNT": str(run.parent / "learnt.sqlite"),
        "TZ": "UTC",
    }
    return subprocess.run(
        # In Berlin, 22:00 is 21:00 UTC in winter.
        ["faketime", "-f", f"@2026-12-0{night} 20:59:59", *HEADWAY, "crawl", "job.toml", "-o", run],
        cwd=run.parent,
        env={**os.environ, **clock},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def headway(*words: str | Path) -> Done:
    """A command in this process, as the shell would call it."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
        frame.main([str(word) for word in words])
    return Done(int(end.value.code or 0), out.getvalue(), err.getvalue())


def headway_apart(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*HEADWAY, *words], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Web, list[str]]]:
    if shutil.which("faketime") is None:
        pytest.skip("needs faketime, to have three nights in a few seconds")
    folder, web = tmp_path_factory.mktemp("nights"), Web()
    for name in ("plain", "moved", "target", "shaky"):
        web.up(name)
    sites = "".join(
        f'[[site]]\nurl = "http://127.0.0.1:{web.ports[name]}/"\ndeadline = "07:30"\n\n'
        for name in ("plain", "moved", "shaky")
    )
    text = JOB.format(
        sites=sites,
        old=folder / "old",
        hook=folder / "hook.jsonl",
        webhook=f"http://127.0.0.1:{web.ports['plain']}/hook",
    )
    (folder / "job.toml").write_text(text)
    said = []
    for web.night in (1, 2, 3):
        if web.night == 2:
            web.down("shaky")
            threading.Timer(6.0, web.up, ["shaky"]).start()
        done = crawl(folder / "run", web.night)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout + done.stderr)
    yield folder, web, said
    for name in list(web.servers):
        web.down(name)


def test_each_night_is_a_round_that_says_what_is_new_changed_and_gone(
    nights: tuple[Path, Web, list[str]],
) -> None:
    folder, _, said = nights
    with RunReader(folder / "run") as reader:
        rounds = rounds_of(reader)
    found = [
        (each.result.new, each.result.changed, each.result.gone, each.result.met, each.result.missed)
        for each in rounds
        if each.result is not None
    ]
    # Of three sites: the start pages and /p1 change, a page appears each night, and one goes in the third.
    assert found == [(29, 0, 0, 3, 0), (3, 7, 0, 3, 0), (3, 7, 3, 3, 0)]
    assert "round 3: 3 new, 7 changed" in said[2]
    assert "07:30" in said[0], "a deadline that is a time of day is shown as one"
    table = headway("status", folder / "run", "--rounds").stdout
    assert [line.split()[0] for line in table.splitlines()[1:]] == ["1", "2", "3"]
    of_two = headway("status", folder / "run", "--round", "2").stdout
    assert sum(" met " in line for line in of_two.splitlines()[2:]) == 3


def test_what_keep_leaves_can_still_be_read(nights: tuple[Path, Web, list[str]]) -> None:
    folder, _, _ = nights
    run = folder / "run"
    assert verify(run).counts == {}
    responses, revisits, moved = set(), set(), set()
    for place, kinds in ((run, responses), (folder / "old", moved)):
        for path in (place / "archive").glob("*.warc.gz"):
            with path.open("rb") as file:
                for record in ArchiveIterator(file):
                    head = record.rec_headers
                    if record.rec_type == "response":
                        kinds.add((head["WARC-Target-URI"], head["WARC-Date"]))
                    elif record.rec_type == "revisit" and place == run:
                        revisits.add((head["WARC-Refers-To-Target-URI"], head["WARC-Refers-To-Date"]))
    assert revisits
    assert revisits <= responses, "a revisit has lost the record that it refers to"
    gone = {url for url, _ in responses if "/p2?" in url}
    assert len(gone) == 3, "the only copy of a page that is gone"
    first_night = {(url, date) for url, date in moved if date.startswith("2026-12-01")}
    assert len(first_night) == 28, "the files that went are where keep_old_in says"
    index = (folder / "old" / "indexes" / "index.cdxj").read_text().splitlines()
    assert len(index) == 29
    assert index == sorted(index)


def test_hooks_get_the_result_and_their_exit_code_is_in_the_log(nights: tuple[Path, Web, list[str]]) -> None:
    folder, web, said = nights
    lines = [json.loads(line) for line in (folder / "hook.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert lines == web.posted
    last = lines[-1]
    assert (last["exit_code"], last["met"], last["missed"], last["changes"]["gone"]) == (0, 3, [], 3)
    assert all("on_end.command: exit code 3: said" in text for text in said)
    noted = [json.loads(line) for line in (folder / "run" / "on_end.jsonl").read_text().splitlines()]
    assert [(line["hook"], line["ok"], line["exit_code"]) for line in noted[-2:]] == [
        ("command", False, 3),
        ("webhook", True, None),
    ]


def test_the_report_is_of_the_last_night_and_lists_all(
    nights: tuple[Path, Web, list[str]], tmp_path: Path
) -> None:
    text = write_report(gather(nights[0] / "run"), tmp_path).read_text()
    rounds = text.partition("<h2>Rounds</h2>")[2].partition("</section>")[0]
    assert re.findall(r"2026-12-0\d", rounds) == ["2026-12-03", "2026-12-02", "2026-12-01"]
    assert "All 3 deadlines were met" in text


def test_a_past_round_has_a_report_of_its_own(nights: tuple[Path, Web, list[str]], tmp_path: Path) -> None:
    run = nights[0] / "run"
    done = headway("report", run, "--round", "1", "-o", tmp_path / "first")
    assert done.returncode == 0, done.stderr
    assert "All 3 deadlines were met" in done.stdout
    assert "29 pages of" in done.stdout
    (page,) = (tmp_path / "first").glob("*.html")
    text = page.read_text()
    assert "round 1 of 3" in text
    assert "2026-12-01" in text.partition("</header>")[0]
    missing = headway("report", run, "--round", "9", "-o", tmp_path / "none")
    assert missing.returncode != 0
    assert "there is no round 9" in missing.stderr


def test_the_run_is_exported_by_name(nights: tuple[Path, Web, list[str]], tmp_path: Path) -> None:
    run = nights[0] / "run"
    for name in ("pages.csv", "pages.sqlite", "run.wacz", "pages.jsonl"):
        assert headway("export", run, "-o", tmp_path / name).returncode == 0
    with (tmp_path / "pages.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["round"], row["change"]) for row in rows} >= {
        ("3", "new"),
        ("3", "gone"),
        ("3", "unchanged"),
    }
    assert len(rows) == len((tmp_path / "pages.jsonl").read_text().splitlines())
    connection = sqlite3.connect(tmp_path / "pages.sqlite")
    assert connection.execute("SELECT count(*) FROM pages").fetchone() == (len(rows),)
    assert connection.execute("SELECT max(gone) FROM rounds").fetchone() == (3,)
    connection.close()
    with zipfile.ZipFile(tmp_path / "run.wacz") as package:
        about = json.loads(package.read("datapackage.json"))
        for resource in about["resources"]:
            data = package.read(resource["path"])
            assert resource["hash"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        assert b'"status":"304"' not in package.read("indexes/index.cdx")
    wrong = headway("export", run, "-o", tmp_path / "pages.doc")
    assert wrong.returncode == 2
    assert "wacz" in wrong.stderr


def test_a_mirror_has_links_that_lead_to_its_files(
    nights: tuple[Path, Web, list[str]], tmp_path: Path
) -> None:
    folder, web, _ = nights
    target = tmp_path / "mirror"
    assert headway("export", folder / "run", "-f", "mirror", "-o", target).returncode == 0
    files = list(target.rglob("*.html"))
    assert len(files) == 1 + 3 * 10 + 1, "a start page, and of each site the pages that there are"
    followed = 0
    for path in files:
        for link in re.findall(r"href=['\"]([^'\"]*)['\"]", path.read_text("utf-8-sig")):
            if link and not link.startswith(("mailto:", "http://127.0.0.1:")):
                file = path.parent / re.sub(
                    "%(..)", lambda code: chr(int(code[1], 16)), link.partition("#")[0]
                )
                assert file.is_file(), (path, link)
                followed += 1
    assert followed > 3 * 18
    start = (target / f"127.0.0.1_{web.ports['plain']}" / "index.html").read_text("utf-8-sig")
    assert "mailto:me@example.org" in start
    assert "#top" in start
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("not made by headway")
    refused = headway("export", folder / "run", "-f", "mirror", "-o", other)
    assert refused.returncode != 0
    assert (other / "mine.txt").exists()


def test_a_size_that_the_newest_copies_exceed_is_reported_and_removes_nothing_needed(
    nights: tuple[Path, Web, list[str]], tmp_path: Path
) -> None:
    shutil.copytree(nights[0] / "run", tmp_path / "run")
    pruned = prune(tmp_path / "run", most_bytes=10)
    assert "nothing of it is removed" in pruned.trouble
    assert pruned.rounds == 1
    with pytest.raises(StoreError, match="outside the run folder"):
        prune(tmp_path / "run", rounds=1, moved_to=tmp_path / "run")
    with pytest.raises(StoreError):
        prune(tmp_path / "run", rounds=1, moved_to=tmp_path / "run" / "crawl.sqlite")
    assert verify(tmp_path / "run").counts == {}


def test_a_round_that_was_left_unfinished_long_ago_is_not_continued(
    nights: tuple[Path, Web, list[str]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(nights[0] / "run", run)
    assert next_round(run, time.time()).begins
    with sqlite3.connect(run / "crawl.sqlite") as database:
        database.execute("UPDATE round SET ended_at = NULL, result = NULL WHERE number = 2")
        (began,) = database.execute("SELECT started_at FROM crawl").fetchone()
        (deadline,) = database.execute("SELECT max(deadline_at) FROM task").fetchone()
    database.close()
    assert not next_round(run, began + 3600.0).begins, "its deadlines are to come"
    assert not next_round(run, deadline - 1.0).begins
    later = next_round(run, began + 24 * 3600.0)
    assert later.begins
    assert later.cuts is not None
    assert later.cuts.number == 3
    end_round(run, began + 5.0, RoundResult(1, 0, 1, 0, 0, 0))
    assert next_round(run, began + 6.0).cuts is None


def test_hooks_that_fail_or_hang_cost_no_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "sendmail"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncat > {tmp_path}/letter\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    web = Web()
    web.up("target")
    (tmp_path / "job.toml").write_text(
        '[crawl]\ninterval = "5 ms"\nallow_private = true\n[[site]]\n'
        f'url = "http://127.0.0.1:{web.ports["target"]}/"\n'
        '[on_end]\nreport = false\ncommand = ["sleep", "60"]\nwebhook = "http://127.0.0.1:9/"\n'
        'email = ["someone@example.org"]\ntimeout = "3 s"\n'
    )
    done = headway_apart("crawl", tmp_path / "job.toml", "-q", "-o", tmp_path / "run")
    web.down("target")
    assert done.returncode == 0, done.stderr
    assert "on_end.command: ended after 3.0 s, its time limit" in done.stderr
    assert "on_end.webhook: " in done.stderr
    letter = (tmp_path / "letter").read_text()
    assert "someone@example.org" in (tmp_path / "words").read_text()
    assert "Subject: headway: crawl complete (run)" in letter
    assert "9 pages" in letter
    with RunReader(tmp_path / "run") as reader:
        assert rounds_of(reader)[0].ended_at is not None


def test_a_hook_that_cannot_work_is_refused_before_the_crawl(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(
        '[[site]]\nurl = "http://127.0.0.1:9/"\n[on_end]\ncommand = ["/nowhere/at/all"]\n'
    )
    done = headway("crawl", tmp_path / "job.toml", "-o", tmp_path / "run")
    assert done.returncode == 4
    assert "is not a program" in done.stderr
    assert not (tmp_path / "run").exists()


def test_init_asks_on_a_terminal_and_writes_what_was_answered(tmp_path: Path) -> None:
    answers = [
        "www.example.org",
        "https://b.example/docs/",
        "",
        "5Mbit/s",
        "07:30",
        "22:00",
        "07:30",
        "30 rounds",
    ]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*HEADWAY, "init", "-o", "job.toml"], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown, asked = b"", 0
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if not select.select([ours], [], [], 1.0)[0]:
            continue
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end has closed
            break
        if not part:
            break
        shown += part
        if asked < len(answers) and shown.endswith(b": "):
            os.write(ours, answers[asked].encode() + b"\n")
            asked, shown = asked + 1, shown + b"|"
    os.close(ours)
    assert process.wait(timeout=30) == 0, shown.decode()
    assert asked == len(answers), shown.decode()
    job = load_job(tmp_path / "job.toml")
    assert [wish.site for wish in job.sites] == ["https://www.example.org", "https://b.example"]
    assert {wish.deadline for wish in job.sites} == {"07:30"}
    assert job.timetable.usual_bytes_per_s == 5e6 / 8
    assert len(job.timetable.windows) == 1
    assert job.kept == 30


def test_init_writes_a_job_that_service_can_start(tmp_path: Path) -> None:
    job = tmp_path / "my nightly.toml"
    words = ["https://www.example.org/", "--deadline", "07:30", "--from", "22:00", "--until", "07:30"]
    done = headway("init", *words, "--keep", "30 rounds", "-o", job)
    assert done.returncode == 0, done.stderr
    assert "there already" in headway("init", *words, "-o", job).stderr
    assert (
        headway("init", "https://a.example/", "--keep", "0 rounds", "-o", tmp_path / "x.toml").returncode == 4
    )
    assert not (tmp_path / "x.toml").exists()
    units = headway("service", job, "-o", tmp_path / "50% done", "--to", tmp_path)
    assert units.returncode == 0, units.stderr
    service = (tmp_path / "headway-my-nightly.service").read_text()
    assert f'-o "{tmp_path}/50%% done"' in service
    assert "OnCalendar=*-*-* 22:00:00" in (tmp_path / "headway-my-nightly.timer").read_text()
    line = headway("service", job, "-o", tmp_path / "50% done", "--kind", "cron").stdout
    assert line.startswith("0 22 * * *")
    assert "50\\% done" in line
