"""Signals and deadlines: the first signal drains, the second stops, and the same command goes on."""

from __future__ import annotations

import datetime as dt
import json
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

from headway.testing.demoweb import Served, ServedProcess, Tempo, design_web

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
    assert said.count("finishing what is under way; interrupt again to stop at once") == 1
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
    assert finish(job, run) == 0  # by now the silent one refuses connections
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


def test_a_crawl_whose_deadline_has_passed_meanwhile_can_still_be_taken_up(
    served: Served, tmp_path: Path
) -> None:
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
