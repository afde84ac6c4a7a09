"""Signals and deadlines: the first signal drains, the second stops, and the same command goes on."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headway.demoweb import Served, ServedProcess, Tempo, design_web

JOB = """\
[crawl]
interval = "20 ms"
retry_penalty = "10 ms"
backoff = "10 ms"
allow_private = true
[crawl.timeouts]
first_byte = "10 min"
"""
SIGNALS = [signal.SIGINT, signal.SIGTERM]
SLOW = Tempo(latency_s=0.25)
"""On the observatory something is always under way."""


@pytest.fixture
def served() -> Iterator[Served]:
    roster = ("plain", "observatory", "plain")
    with ServedProcess(design_web(seed=9, scale=0.25, roster=roster, tempo=SLOW)) as served:
        yield served


def write_job(folder: Path, *urls: str, deadline: str = "") -> Path:
    path = folder / "job.toml"
    due = f'deadline = "{deadline}"\n' if deadline else ""
    path.write_text(JOB + "".join(f'[[site]]\nurl = "{url}"\n{due}' for url in urls))
    return path


@contextmanager
def start(job: Path, run: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "headway", "crawl", str(job), "-o", str(run), *more]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=pipe, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def finish(job: Path, run: Path) -> int:
    with start(job, run, "-q") as child:
        _, complaint = child.communicate(timeout=60)
    assert complaint == ""
    return child.returncode


def urls_of(run: Path) -> list[str]:
    lines = (run / "pages.jsonl").read_text().splitlines() if (run / "pages.jsonl").exists() else []
    return [json.loads(line)["url"] for line in lines]


def status(run: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "headway", "status", str(run), "--json"]
    summary: dict[str, object] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return summary


def everything(served: Served) -> list[str]:
    return sorted(served.expected())


def wait_for(condition: Callable[[], bool]) -> None:
    limit_at = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit_at, "waited in vain"
        time.sleep(0.01)


def times_asked(served: Served) -> Counter[str]:
    asked = Counter(served.url(request.site, request.path) for request in served.requests())
    return Counter({url: count for url, count in asked.items() if not url.endswith("/robots.txt")})


@pytest.mark.parametrize("signum", SIGNALS)
def test_the_first_signal_drains_and_the_same_command_fetches_the_rest_and_nothing_twice(
    signum: signal.Signals, served: Served, tmp_path: Path
) -> None:
    job, run = write_job(tmp_path, *served.urls), tmp_path / "run"
    with start(job, run) as child:
        wait_for(lambda: len(urls_of(run)) >= 6)
        child.send_signal(signum)
        _, said = child.communicate(timeout=30)
    assert child.returncode == 11, said
    assert said.count("finishing the requests in flight; interrupt again to stop at once") == 1
    before = status(run)
    assert before["waiting"], "the crawl ended before it was interrupted: give it more pages"
    assert before["done"] == len(urls_of(run)) == sum(times_asked(served).values()), "under way, not kept"
    assert finish(job, run) == 0
    assert sorted(urls_of(run)) == everything(served)
    assert set(times_asked(served).values()) == {1}, "a page was fetched again after a drain"


@pytest.mark.parametrize("signum", SIGNALS)
def test_the_second_signal_stops_at_once_and_loses_nothing(
    signum: signal.Signals, served: Served, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        job = write_job(tmp_path, *served.urls, f"http://127.0.0.1:{silent.getsockname()[1]}/")
        run = tmp_path / "run"
        with start(job, run) as child:
            hanging, _ = silent.accept()
            wait_for(lambda: len(urls_of(run)) >= 3)
            child.send_signal(signum)
            assert child.stderr is not None
            while "interrupt again" not in child.stderr.readline():
                assert child.poll() is None
            wait_for(lambda: status(run)["waiting"] != 0)
            assert child.poll() is None, "it does not wait for what is under way"
            child.send_signal(signum)
            child.communicate(timeout=30)
        hanging.close()
        assert child.returncode == 11
    kept = urls_of(run)
    assert finish(job, run) == 3  # by now the silent one refuses connections, so a site was not crawled
    assert urls_of(run)[: len(kept)] == kept
    assert sorted(urls_of(run)) == everything(served)


def test_a_missed_deadline_exits_with_3_also_when_asked_again(served: Served, tmp_path: Path) -> None:
    job, run = write_job(tmp_path, *served.urls, deadline="150 ms"), tmp_path / "run"
    assert finish(job, run) == 3
    assert sorted(urls_of(run)) == everything(served), "a late page is still a page"
    assert finish(job, run) == 3
    sites = status(run)["sites"]
    assert isinstance(sites, list)
    assert {site["verdict"] for site in sites} == {"missed"}


def test_a_crawl_whose_deadline_has_passed_can_still_be_resumed(served: Served, tmp_path: Path) -> None:
    due = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=5)
    job, run = write_job(tmp_path, *served.urls, deadline=due.isoformat()), tmp_path / "run"
    with start(job, run, "-q") as child:
        wait_for(lambda: len(urls_of(run)) >= 1)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=30)
    assert child.returncode == 11
    wait_for(lambda: dt.datetime.now(dt.UTC) > due)
    assert finish(job, run) == 3
    assert sorted(urls_of(run)) == everything(served)


# -- whatever holds the process -----------------------------------------------------------------------------

HANGING = """\
import re
import time


def _python():
    while True:
        pass


def _hold(how):
    print("held", flush=True)
    {"python": _python, "sleep": lambda: time.sleep(600), "c": lambda: sum(iter(int, 1))}[how]()


def python(page):
    _hold("python")


def sleep(page):
    _hold("sleep")


def c(page):
    _hold("c")


def later(page):
    print("held", flush=True)
    time.sleep(0.2)
    sum(iter(int, 1))
"""


@contextmanager
def held(folder: Path, *arguments: str, says: str = "held") -> Iterator[subprocess.Popen[str]]:
    """A command that has said that it is held, or that it works."""
    (folder / "hanging.py").write_text(HANGING)
    pipe = subprocess.PIPE
    paths = [str(Path(path).absolute()) for path in sys.path if path]
    environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(
        [sys.executable, "-m", "headway", *arguments],
        stdout=pipe,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment
        | {"PYTHONPATH": os.pathsep.join(str(Path(path).absolute()) for path in sys.path if path)},
    ) as child:
        try:
            assert child.stdout is not None
            said = ""
            while says not in said:
                said = child.stdout.readline()
                assert said, child.poll()
            yield child
        finally:
            child.kill()


def end_with_two_signals(child: subprocess.Popen[str]) -> float:
    """Returns how long the process lasted after the second."""
    child.send_signal(signal.SIGINT)
    time.sleep(0.3)
    if child.poll() is not None:
        return 0.0
    sent_at = time.monotonic()
    child.send_signal(signal.SIGINT)
    child.wait(timeout=30)
    return time.monotonic() - sent_at


WITHIN_S = 1.0 if len(os.sched_getaffinity(0)) > 2 else 1.5
"""A second, and on a small machine the time until the system has ended a process beside others."""


@pytest.mark.parametrize(("how", "processes"), [("python", 1), ("c", 1), ("later", 1), ("sleep", 2)])
def test_the_second_signal_ends_a_crawl_whose_loop_is_held(
    how: str, processes: int, served: Served, tmp_path: Path
) -> None:
    job, run = write_job(tmp_path, *served.urls), tmp_path / "run"
    job.write_text(
        job.read_text().replace("[crawl]", f'[crawl]\nstrategy = "score"\nscorer = "hanging:{how}"', 1)
    )
    with held(tmp_path, "crawl", str(job), "-o", str(run), "--processes", str(processes)) as child:
        assert end_with_two_signals(child) < WITHIN_S
        assert child.returncode in {11, -signal.SIGINT, -signal.SIGALRM, -signal.SIGKILL}
        assert child.stdout is not None
        child.stdout.read()  # ends when no worker has it open any more
    if how != "sleep":
        return
    job.write_text(job.read_text().replace(f'scorer = "hanging:{how}"', "", 1))
    assert finish(job, run) == 0
    assert sorted(urls_of(run)) == everything(served)


def test_the_second_signal_ends_a_collector_whose_database_does_not_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"postgresql://headway@127.0.0.1:{silent.getsockname()[1]}/headway#crawl"
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "headway", "collect", "--store", address, "-o", str(tmp_path / "c")]
        with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True) as child:
            connection, _ = silent.accept()
            assert end_with_two_signals(child) < WITHIN_S
        connection.close()


def test_the_second_signal_ends_a_simulation_and_a_dashboard_with_open_requests(
    served: Served, tmp_path: Path
) -> None:
    job, run = write_job(tmp_path, *served.urls), tmp_path / "run"
    assert finish(job, run) == 0
    with held(tmp_path, "serve", str(run), "--port", "0", says="dashboard: ") as child:
        assert end_with_two_signals(child) < WITHIN_S
    job.write_text(job.read_text().replace("[crawl]", '[crawl]\nstrategy = "score"\nscorer = "hanging:c"', 1))
    with held(tmp_path, "simulate", str(job)) as child:
        assert end_with_two_signals(child) < WITHIN_S
