"""Bad input through the real command: the exit code as designed, one clear message, nothing lost."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.demoweb import QUICK, Served, ServedProcess, design_web

HEADWAY = [sys.executable, "-m", "headway"]
JOB = """\
[crawl]
interval = "10 ms"
retry_penalty = "10 ms"
backoff = "10 ms"
allow_private = true
"""
NO_SITE = 65534


def headway(*args: str | Path, cwd: Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEADWAY, *map(str, args)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        input=stdin,
    )


def refused(done: subprocess.CompletedProcess[str], exit_code: int, *words: str) -> str:
    """The message: one line (beside those of the progress), with all the words in it."""
    assert "Traceback" not in done.stderr
    assert "a bug in headway" not in done.stderr
    assert done.returncode == exit_code, done.stderr
    message = done.stderr.strip().splitlines()[-1]
    for word in words:
        assert word in message, message
    return message


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with ServedProcess(design_web(seed=5, scale=0.2, roster=("plain",) * 3, tempo=QUICK)) as served:
        yield served


@pytest.fixture(scope="module")
def finished_run(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    done = headway("crawl", *served.urls, "--allow-private", "--interval", "5ms", "-q", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of a whole run, to be spoilt."""
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def job_file(folder: Path, *sites: str, more: str = "") -> Path:
    path = folder / "job.toml"
    path.write_text(JOB + more + "".join(f'[[site]]\nurl = "{url}"\n' for url in sites))
    return path


# -- usage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["crawl"], "give a job file or URLs"),
        (["crawl", "a.toml", "b.toml"], "one job file or URLs"),
        (["crawl", "a.toml", "http://127.0.0.1:1/"], "one job file or URLs"),
        (["crawl", "http://127.0.0.1:1/", "--bogus"], "No such option"),
        (["crawl", "http://127.0.0.1:1/", "-q", "-v"], "give one of them"),
        (["crawl", "http://127.0.0.1:1/", "--older-than", "3d"], "--again"),
        (["crawl", "--again", "run", "-o", "other"], "leave out --out"),
        (["crawl", "--again", "run", "--store", "postgresql:///x#y"], "--again names the crawl"),
        (["crawl", "--again", "run", "--archive", "s3://b"], "--archive is for a crawl on a server"),
        (["limit", "postgresql:///x#y", "2Mbit/s"], "run folder"),
        (["simulate", "synthetic", "--missing", "2"], "not in the range"),
        (["demo", "--port-base", "0"], "not in the range"),
        (["status"], "Missing argument"),
        (["frobnicate"], "No such command"),
    ],
)
def test_wrong_usage_exits_with_2_and_points_to_help(args: list[str], word: str, tmp_path: Path) -> None:
    done = headway(*args, cwd=tmp_path)
    refused(done, 2, word)
    assert "--help" in done.stderr
    assert not list(tmp_path.iterdir()), "a folder was made for nothing"


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (["plan", "job.toml", "--bandwidth", "3"], "--bandwidth"),
        (["simulate", "synthetic:pages=10", "--bandwidth", "3"], "--bandwidth"),
        (["simulate", "synthetic:pages=10", "--interval", "3"], "--interval"),
        (["simulate", "synthetic:pages=10", "--timetable", "mon", "8-9", "3"], "--timetable"),
        (["collect", "--store", "postgresql:///x#y", "--lease", "3"], "--lease"),
    ],
)
def test_a_quantity_without_its_unit_is_refused_by_the_name_of_its_option(
    args: list[str], option: str, tmp_path: Path
) -> None:
    refused(headway(*args, cwd=tmp_path), 4, f"{option}: '3'", "the unit is missing")


@pytest.mark.parametrize(
    "args",
    [
        ["simulate", "job.toml", "--sizes-from", "nowhere"],
        ["crawl", "http://127.0.0.1:1/", "--strategy", "optimal", "--ranks-from", "nowhere"],
    ],
)
def test_an_earlier_run_that_is_not_there_is_named(args: list[str], tmp_path: Path) -> None:
    job_file(tmp_path, "http://127.0.0.1:1/", more='bandwidth = "1 Mbit/s"\n')
    refused(headway(*args, cwd=tmp_path), 5, "nowhere: ", "give")


def test_a_bound_for_a_run_that_nobody_crawls_waits_for_its_next_start(run: Path, tmp_path: Path) -> None:
    done = headway("limit", run, "2Mbit/s", cwd=tmp_path)
    assert done.returncode == 0
    assert "at most 2Mbit/s, when the crawl is started again" in done.stderr
    (run / "crawl.sqlite-lock").write_text(str(os.getpid()))
    assert "at most 2Mbit/s, from now on" in headway("limit", run, "2Mbit/s", cwd=tmp_path).stderr


def test_an_export_that_cannot_be_written_is_named_as_it_was_asked_for(run: Path, tmp_path: Path) -> None:
    message = refused(
        headway("export", run, "-o", "/proc/pages.jsonl", cwd=tmp_path), 5, "/proc/pages.jsonl:"
    )
    assert ".tmp" not in message


def test_an_address_of_another_machine_is_distinguished_from_a_used_port(run: Path, tmp_path: Path) -> None:
    refused(headway("serve", run, "--host", "192.0.2.1", cwd=tmp_path), 1, "192.0.2.1", "with --host")


def test_version_and_help_need_no_network_and_no_folder(tmp_path: Path) -> None:
    assert headway("--version", cwd=tmp_path).stdout.startswith("headway, version ")
    assert "JOB.toml | URL..." in headway("crawl", "--help", cwd=tmp_path).stdout


# -- seeds that cannot be fetched -------------------------------------------------------------------------


def test_a_seed_that_refuses_connections_is_named_with_the_reason(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    done = headway("crawl", job_file(tmp_path, url), cwd=tmp_path)
    refused(done, 1, "nothing was fetched", url, "connect-failed", "new folder")
    assert "robots.txt cannot be fetched (connect-failed" in done.stderr


def test_an_unknown_host_is_named_with_the_reason(tmp_path: Path) -> None:
    done = headway("crawl", job_file(tmp_path, "http://no-such-host.invalid/"), cwd=tmp_path)
    refused(done, 1, "nothing was fetched", "no-such-host.invalid", "dns-failed")


def test_robots_that_always_answer_500_close_the_site_and_the_message_says_so(tmp_path: Path) -> None:
    with ServedProcess(design_web(seed=1, roster=("closed",), tempo=QUICK)) as closed:
        done = headway("crawl", job_file(tmp_path, *closed.urls), cwd=tmp_path)
    refused(done, 1, "nothing was fetched", "robots-unreachable", "server-error")


def test_a_loopback_address_is_refused_with_the_option_that_allows_it(tmp_path: Path) -> None:
    done = headway("crawl", "http://127.0.0.1:1/", cwd=tmp_path)
    refused(done, 1, "forbidden-address", "loopback", "--allow-private")


def test_one_unreachable_seed_does_not_prevent_the_others(served: Served, tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{free_port()}/"
    done = headway("crawl", job_file(tmp_path, dead, *served.urls), "--json", cwd=tmp_path)
    assert done.returncode == 3, "a site of the job gave nothing, and all was called well"
    verdicts = {site["site"] + "/": site["verdict"] for site in json.loads(done.stdout)["sites"]}
    assert verdicts == {dead: "unreachable", **dict.fromkeys(served.urls, "done")}
    timed = headway("crawl", tmp_path / "job.toml", "--deadline", "4s", "-o", "timed", cwd=tmp_path)
    assert timed.returncode == 3, "a site with a deadline gave nothing, and all was called well"


# -- the run folder ---------------------------------------------------------------------------------------


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for command in (["crawl", "http://127.0.0.1:1/"], ["demo", "--scale", "0.05"]):
        done = headway(*command, "-o", "mine", cwd=tmp_path)
        refused(done, 1 if command[0] == "demo" else 5, "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    refused(headway("status", "mine", cwd=tmp_path), 5, "mine", "not a run folder")


def test_a_demo_does_not_replace_a_crawl(run: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in run.rglob("*"))
    done = headway("demo", "--scale", "0.05", "-o", run, cwd=tmp_path)
    refused(done, 1, str(run), "not the run of a demo", "--out")
    assert sorted(path.name for path in run.rglob("*") if not path.name.endswith("-shm")) == before


def test_a_run_folder_of_another_version_is_neither_read_nor_written(run: Path, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(run / "crawl.sqlite")) as database:
        database.execute("PRAGMA user_version = 99")
    before = (run / "crawl.sqlite").read_bytes()
    for command in (["crawl", "http://127.0.0.1:1/", "-o", run], ["status", run]):
        refused(headway(*command, cwd=tmp_path), 5, "crawl.sqlite", "version 99", "new folder")
    assert (run / "crawl.sqlite").read_bytes() == before


@pytest.mark.parametrize("damage", ["garbage", "cut short"])
def test_a_damaged_database_is_named_and_kept_for_repair(damage: str, run: Path, tmp_path: Path) -> None:
    database = run / "crawl.sqlite"
    if damage == "garbage":
        database.write_bytes(b"this is no database" * 1000)
    else:
        os.truncate(database, database.stat().st_size // 2)
    before = database.read_bytes()
    for command in (["crawl", "http://127.0.0.1:1/", "-o", run], ["status", run]):
        refused(headway(*command, cwd=tmp_path), 5, "crawl.sqlite", "damaged", "headway rebuild")
    assert database.read_bytes() == before


def test_an_archive_that_is_gone_is_noticed_before_more_is_written(run: Path, tmp_path: Path) -> None:
    archive = next((run / "archive").iterdir())
    archive.unlink()
    done = headway("crawl", "http://127.0.0.1:1/", "-o", run, cwd=tmp_path)
    refused(done, 5, archive.name, "bytes are missing", "from a backup")


def test_an_archive_that_lost_its_end_is_made_up_for(served: Served, run: Path, tmp_path: Path) -> None:
    before = sorted(pages_of(run))
    archive = next((run / "archive").iterdir())
    os.truncate(archive, archive.stat().st_size // 2)
    done = headway("crawl", *served.urls, "--allow-private", "--interval", "0s", "-o", run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "truncated, as by a power cut" in done.stderr
    assert sorted(pages_of(run)) == before


def test_a_folder_with_a_crawl_of_other_sites_is_left_alone(run: Path, tmp_path: Path) -> None:
    before = (run / "pages.jsonl").read_bytes()
    done = headway("crawl", "http://other.example/", "-o", run, cwd=tmp_path)
    refused(done, 1, str(run), "a crawl of other sites (http://127.0.0.1:", "--out")
    assert json.loads(headway("status", run, "--json", cwd=tmp_path).stdout)["waiting"] == 0
    assert (run / "pages.jsonl").read_bytes() == before


def test_a_crawl_that_has_ended_says_that_it_begins_another_round(
    served: Served, run: Path, tmp_path: Path
) -> None:
    words = ["--allow-private", "--interval", "5ms", "-o", run]
    done = headway("crawl", *served.urls, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "round 2: " in done.stderr
    assert "known pages are asked for again" in done.stderr


def test_a_folder_in_use_is_refused_and_its_crawl_continues(served: Served, tmp_path: Path) -> None:
    slow = [*HEADWAY, "crawl", *served.urls, "--allow-private", "--interval", "3s", "-q", "-o", "run"]
    with subprocess.Popen(slow, cwd=tmp_path) as first:
        wait_for(lambda: has_pages(tmp_path / "run"))
        done = headway("crawl", *served.urls, "--allow-private", "-o", "run", cwd=tmp_path)
        refused(done, 5, f"process {first.pid}", "wait for it to end")
        looked = headway("status", "run", cwd=tmp_path)
        assert looked.returncode == 0, looked.stderr
        assert "run folder: run" in looked.stdout
        first.send_signal(signal.SIGINT)
        assert first.wait(30) == 11


def test_a_folder_where_nothing_may_be_written_is_refused_with_what_to_look_at(
    run: Path, tmp_path: Path
) -> None:
    run.chmod(0o555)
    for path in run.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    place = tmp_path / "place"
    place.mkdir(mode=0o555)
    secret = tmp_path / "secret.toml"
    secret.write_text("")
    secret.chmod(0o000)
    try:
        for folder in (run, place / "new"):
            done = without_privileges("crawl", "http://127.0.0.1:1/", "-o", str(folder), cwd=tmp_path)
            refused(done, 5, "no permission", str(folder), "who owns the folder")
        refused(without_privileges("crawl", str(secret), cwd=tmp_path), 4, "secret.toml", "Permission denied")
        assert without_privileges("status", str(run), cwd=tmp_path).returncode == 0
    finally:
        for folder in (run, place):
            folder.chmod(0o755)


def without_privileges(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """As an ordinary user; root may write anywhere. Everything is imported before privileges are dropped,
    since the ordinary user may not be able to read this checkout."""
    program = (
        "import os, sys, headway.cli, headway.cli.crawl, headway.cli.inspect, headway.cli.running\n"
        # click needs difflib to read -o
        "import encodings.ascii, encodings.idna, asyncio, difflib, importlib.readers, sqlite3\n"
        f"if os.geteuid() == 0: os.setgroups([]); os.setgid({NO_SITE}); os.setuid({NO_SITE})\n"
        "headway.cli.main(sys.argv[1:])"
    )
    for folder in (cwd, *cwd.parents):
        with contextlib.suppress(PermissionError):
            folder.chmod(folder.stat().st_mode | 0o011)
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
    )


@pytest.mark.parametrize(
    ("args", "exit_code", "words"),
    [
        (["status", "nothing"], 5, ["nothing", "no such folder"]),
        (["status", "job.toml"], 5, ["job.toml", "not the database of a crawl"]),
        (["crawl", "http://127.0.0.1:1/", "-o", "job.toml/run"], 5, ["job.toml/run"]),
        (["crawl", "http://127.0.0.1:1/", "-o", "x" * 300], 5, ["File name too long"]),
        (["crawl", "nothing.toml"], 4, ["nothing.toml", "no such job file"]),
        (["crawl", "."], 4, ["is a folder"]),
        (["crawl", "www.example.org"], 4, ["did you mean https://www.example.org?"]),
    ],
)
def test_missing_files_are_named(args: list[str], exit_code: int, words: list[str], tmp_path: Path) -> None:
    job_file(tmp_path)
    refused(headway(*args, cwd=tmp_path), exit_code, *words)


# -- a full disk ------------------------------------------------------------------------------------------


def has_own_disk() -> bool:
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not has_own_disk(), reason="no mount namespace for a small disk of our own")
def test_a_full_disk_exits_with_5_and_after_making_room_the_same_pages_are_had(
    served: Served, finished_run: Path, tmp_path: Path
) -> None:
    job = job_file(tmp_path, *served.urls)
    disk = tmp_path / "disk"
    disk.mkdir()
    too_small = sum(path.stat().st_size for path in finished_run.rglob("*") if path.is_file()) * 9 // 10
    program = f"""
        set -eu
        mount -t tmpfs -o size={too_small} none {disk}
        set +e
        {sys.executable} -m headway crawl {job} -o {disk}/run -q
        echo "code $?"
        {sys.executable} -m headway crawl {job} -o {disk}/run -q
        echo "code $?"
        mount -o remount,size=40m {disk}
        {sys.executable} -m headway crawl {job} -o {disk}/run -q
        echo "code $?"
        cp -r {disk}/run {tmp_path}/saved
    """
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    assert done.stdout.split("\n") == ["code 5", "code 5", "code 0", ""], done.stderr
    complaints = done.stderr.strip().splitlines()
    assert len(complaints) == 2
    assert all(
        "the disk is full; free some space, then run the same command again" in line for line in complaints
    )
    assert pages_of(tmp_path / "saved") == pages_of(finished_run)


def pages_of(run: Path) -> list[str]:
    return sorted(json.loads(line)["url"] for line in (run / "pages.jsonl").read_text().splitlines())


def test_a_file_that_may_not_grow_exits_with_5_and_the_crawl_can_be_resumed(
    served: Served, finished_run: Path, tmp_path: Path
) -> None:
    job = job_file(tmp_path, *served.urls)
    program = f"ulimit -f 100; exec {sys.executable} -m headway crawl {job} -o run -q"
    done = subprocess.run(
        ["bash", "-c", program], check=False, capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    refused(done, 5, "limit on file size", "ulimit")
    again = headway("crawl", job, "-o", "run", "-q", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert pages_of(tmp_path / "run") == pages_of(finished_run)


# -- the demo ---------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_named_with_the_option_to_change_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = headway("demo", "--port-base", str(port), "-o", "demo", cwd=tmp_path)
    refused(done, 1, f"port {port}", "used by another program", "port base")
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize(
    ("args", "exit_code", "word"),
    [
        (["--port-base", "65534"], 2, "65000"),
        (["--scale", "0"], 1, "greater than 0"),
        (["--scale", "nan"], 1, "greater than 0"),
        (["--scale", "0.05", "--bandwidth", "5"], 4, "--bandwidth: '5' is not a rate"),
    ],
)
def test_a_demo_with_odd_numbers_is_refused(
    args: list[str], exit_code: int, word: str, tmp_path: Path
) -> None:
    refused(headway("demo", *args, "-o", "demo", cwd=tmp_path), exit_code, word)
    assert not (tmp_path / "demo").exists()


# -- where the output goes --------------------------------------------------------------------------------


def test_a_reader_that_leaves_early_is_no_error_worth_a_word(finished_run: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(
        [*HEADWAY, "status", str(finished_run)], stdout=writer, stderr=subprocess.PIPE, text=True
    ) as status:
        os.close(writer)
        assert status.communicate(timeout=60)[1] == ""


def test_a_crawl_continues_when_its_output_is_closed(
    served: Served, finished_run: Path, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    arguments = ["crawl", *served.urls, "--allow-private", "--interval", "5ms", "--deadline", "1s", "-v"]
    with subprocess.Popen([*HEADWAY, *arguments], stdout=writer, stderr=writer, cwd=tmp_path) as crawl:
        os.close(writer)
        crawl.wait(60)
    assert pages_of(tmp_path / "run") == pages_of(finished_run)
    assert (tmp_path / "run" / "indexes" / "index.cdxj").stat().st_size > 0


def test_output_onto_a_full_disk_says_so(finished_run: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*HEADWAY, "status", finished_run], check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    refused(done, 1, "disk of the output file is full")


def test_without_stdout_and_stderr_a_crawl_still_does_its_work(
    served: Served, finished_run: Path, tmp_path: Path
) -> None:
    words = [*HEADWAY, "crawl", *served.urls, "--allow-private", "--interval", "5ms"]
    done = subprocess.run(["sh", "-c", '"$@" >&- 2>&-', "sh", *words], check=False, cwd=tmp_path, timeout=60)
    assert done.returncode == 0
    assert pages_of(tmp_path / "run") == pages_of(finished_run)


def test_log_json_gives_one_object_a_line_with_the_facts_of_the_plain_lines(
    served: Served, tmp_path: Path
) -> None:
    dead = f"http://127.0.0.1:{free_port()}/"
    job = job_file(tmp_path, dead, *served.urls)
    done = headway("crawl", job, "--log-json", "-v", cwd=tmp_path)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    events = {line["event"]: line for line in lines}
    assert {"start", "progress", "no-robots", "give-up"} <= set(events)
    assert all(line["at"] and line["level"] and line["message"] for line in lines)
    assert events["no-robots"]["site"] + "/" == dead
    assert events["no-robots"]["problem"].startswith("connect-failed")
    assert events["progress"].keys() >= {"done", "waiting", "failed", "wire_bytes", "rate_bytes_per_s"}
    failed = headway("crawl", "nothing.toml", "--log-json", cwd=tmp_path)
    problem = json.loads(failed.stderr)
    assert (problem["event"], problem["exit_code"]) == ("error", failed.returncode)
    assert "nothing.toml" in problem["message"]


def test_quiet_says_nothing_but_errors(served: Served, tmp_path: Path) -> None:
    done = headway("crawl", *served.urls, "--allow-private", "--interval", "5ms", "-q", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    again = headway("crawl", "nothing.toml", "-q", cwd=tmp_path)
    refused(again, 4, "nothing.toml")


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 10), (20, 4)])
def test_a_terminal_gets_a_picture_whatever_its_size(
    columns: int, lines: int, served: Served, tmp_path: Path
) -> None:
    words = ["crawl", *served.urls, "--allow-private", "--interval", "60ms", "--bandwidth", "2MB/s"]
    output, code = on_a_terminal(words, columns, lines, cwd=tmp_path, environment={})
    assert code == 0, output
    assert "Traceback" not in output
    assert "\x1b[?25l" in output, "no picture was drawn"
    assert "\x1b[?25h" in output, "the cursor stays hidden"
    assert "run folder: run" in output
    assert served.urls[0].rstrip("/") in output.replace("\r\n", "")


def test_no_color_is_respected(served: Served, tmp_path: Path) -> None:
    words = ["crawl", *served.urls, "--allow-private", "--interval", "5ms", "--deadline", "1h"]
    output, code = on_a_terminal(words, 80, 24, cwd=tmp_path, environment={"NO_COLOR": "1"})
    assert code == 0, output
    assert "\x1b[3" not in output.replace("\x1b[3A", "")
    coloured, _ = on_a_terminal(["status", "run"], 80, 24, cwd=tmp_path, environment={})
    assert "\x1b[32m" in coloured


def test_a_terminal_that_hangs_up_lets_the_crawl_drain(served: Served, tmp_path: Path) -> None:
    words = ["crawl", *served.urls, "--allow-private", "--interval", "3s"]
    with terminal(words, 80, 24, tmp_path, {}) as (pid, master):
        wait_for(lambda: has_pages(tmp_path / "run"))
        read_some(master)
        os.close(master)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 11
    again = headway("status", "run", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["waiting"] > 0


def on_a_terminal(
    words: list[str], columns: int, lines: int, *, cwd: Path, environment: dict[str, str]
) -> tuple[str, int]:
    output = b""
    limit_at = time.monotonic() + 60
    with terminal(words, columns, lines, cwd, environment) as (pid, master):
        while (piece := read_some(master)) is not None:
            output += piece
            assert time.monotonic() < limit_at, output
        _, status = os.waitpid(pid, 0)
        os.close(master)
    return output.decode(), os.waitstatus_to_exitcode(status)


@contextlib.contextmanager
def terminal(
    words: list[str], columns: int, lines: int, cwd: Path, environment: dict[str, str]
) -> Iterator[tuple[int, int]]:
    """A child on a terminal of its own: its process and our end of the line."""
    size = struct.pack("HHHH", lines, columns, 0, 0)
    settings = {
        key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "COLUMNS", "LINES"}
    }
    settings |= {"TERM": "xterm-256color", **environment}
    pid, master = pty.fork()
    if pid == 0:  # pragma: no cover - the child
        try:
            fcntl.ioctl(0, termios.TIOCSWINSZ, size)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
            os.chdir(cwd)
            os.execve(sys.executable, [*HEADWAY, *words], settings)
        finally:
            os._exit(99)
    try:
        yield pid, master
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def read_some(master: int) -> bytes | None:
    """What has come within a second; None when the other end has gone."""
    if not select.select([master], [], [], 1.0)[0]:
        return b""
    try:
        return os.read(master, 65536) or None
    except OSError:  # Linux says EIO when the other end of a terminal is closed
        return None


def has_pages(run: Path) -> bool:
    pages = run / "pages.jsonl"
    return pages.exists() and b"\n" in pages.read_bytes()


def wait_for(condition: Callable[[], bool], patience_s: float = 30.0) -> None:
    limit_at = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < limit_at, "waited in vain"
        time.sleep(0.02)


# -- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [b"we?ird #1 %41", b"two\nlines", b"\xff\xfe", "b\N{JACK-O-LANTERN}".encode()]
)
def test_a_folder_may_have_any_name_on_any_terminal(name: bytes, finished_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished_run, tmp_path / os.fsdecode(name)))
    for words in (["status", str(run)], ["status", str(run), "--json"]):
        done = subprocess.run(
            [*HEADWAY, *words],
            check=False,
            capture_output=True,
            timeout=60,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert str(tmp_path).encode() in done.stdout
