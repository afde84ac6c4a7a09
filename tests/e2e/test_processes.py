"""A crawl by several processes leaves the run folder that one would, whatever becomes of a worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.fleetweb import FleetWeb

from headway.dashboard.answers import WatchedRun
from headway.model.command import AddSite, Pause, Resume, SetDeadline, StopSite
from headway.model.page import Task
from headway.pages.url import page_of
from headway.runtime.control import write_order
from headway.store.reader import RunReader, RunSums
from headway.units import Instant
from headway.view.reporting import LinkGraph

HEADWAY = Path(sys.executable).with_name("headway")
INTERVAL_S = 0.05


def start(web, out, *options):
    command = [HEADWAY, "crawl", *web.seeds, "--allow-private", "--interval", f"{INTERVAL_S}s", "-q"]
    return subprocess.Popen(
        [*command, "--processes", "2", "-o", out, *options], stderr=subprocess.PIPE, start_new_session=True
    )


def finish(process, expected=0):
    _, said = process.communicate(timeout=60)
    assert process.returncode == expected, said.decode()


def workers_of(process):
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in children]


def until_asked(web, count):
    end = time.monotonic() + 30
    while len(web.asked) < count:
        assert time.monotonic() < end
        time.sleep(0.02)


def check_run(out, pages):
    lines = [json.loads(line) for line in (out / "pages.jsonl").read_text().splitlines()]
    assert len({line["url"] for line in lines}) == len(lines) == pages
    with RunReader(out) as reader:
        totals = reader.totals()
        files = {page.warc_file for page in reader.captures()}
    with RunSums(out) as sums:
        # Every page is linked to from the page of its number on the site before it.
        assert len(LinkGraph(sums).most_referenced(2 * pages)) == pages
    assert (totals.done, totals.waiting) == (pages, 0)
    assert {path.name for path in (out / "archive").iterdir()} == {Path(name).name for name in files}
    index = (out / "indexes" / "index.cdxj").read_text().splitlines()
    assert len(index) == pages


def test_two_processes_fetch_each_page_once_into_one_run_folder(tmp_path):
    with FleetWeb(sites=6, pages=25) as web:
        finish(start(web, tmp_path / "run"))
        assert web.judge(INTERVAL_S)[:4] == (150, 0, 0, 0)
    check_run(tmp_path / "run", 150)
    assert len(list((tmp_path / "run" / "archive").iterdir())) == 2


def test_a_worker_that_is_killed_is_replaced_and_loses_nothing(tmp_path):
    with FleetWeb(sites=6, pages=25) as web:
        process = start(web, tmp_path / "run")
        until_asked(web, 50)
        os.kill(workers_of(process)[0], signal.SIGKILL)
        finish(process)
        verdict = web.judge(INTERVAL_S)
    assert (verdict.lost, verdict.too_soon) == (0, 0), verdict
    assert verdict.doubled <= 12, verdict
    check_run(tmp_path / "run", 150)


def test_an_interrupt_drains_and_the_same_command_resumes(tmp_path):
    with FleetWeb(sites=6, pages=25) as web:
        process = start(web, tmp_path / "run")
        until_asked(web, 50)
        os.killpg(process.pid, signal.SIGINT)
        finish(process, expected=11)
        finish(start(web, tmp_path / "run"))
        assert web.judge(INTERVAL_S)[:3] == (150, 0, 0)
    check_run(tmp_path / "run", 150)


def test_all_processes_killed_at_once_lose_nothing(tmp_path):
    with FleetWeb(sites=6, pages=25) as web:
        process = start(web, tmp_path / "run")
        until_asked(web, 50)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        finish(start(web, tmp_path / "run"))
        verdict = web.judge(INTERVAL_S)
    assert verdict.lost == 0, verdict
    assert verdict.doubled <= 24, verdict
    check_run(tmp_path / "run", 150)


def test_a_bound_holds_for_all_processes_together(tmp_path):
    with FleetWeb(sites=6, pages=12, page_bytes=10_000) as web:
        finish(start(web, tmp_path / "run", "--bandwidth", "200KB/s"))
        asked = sorted((each.ended_at, each.sent_bytes) for each in web.asked)
    whole_s = asked[-1][0] - asked[0][0]
    assert sum(size for _, size in asked) / whole_s < 1.1 * 200_000


def test_a_limit_set_by_hand_holds_for_all_processes_together(tmp_path):
    with FleetWeb(sites=6, pages=200, page_bytes=10_000) as web:
        process = start(web, tmp_path / "run")
        until_asked(web, 100)
        subprocess.run([HEADWAY, "limit", tmp_path / "run", "100KB/s"], check=True, capture_output=True)
        time.sleep(2.0)
        before = len(web.asked)
        time.sleep(3.0)
        rate = (len(web.asked) - before) * 10_000 / 3.0
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert 0.4 * 100_000 < rate < 1.3 * 100_000


def test_a_quota_is_not_exceeded_by_all_processes_together(tmp_path):
    job = tmp_path / "job.toml"
    with FleetWeb(sites=6, pages=100, page_bytes=10_000) as web:
        sites = "".join(f'[[site]]\nurl = "{seed}"\n' for seed in web.seeds)
        job.write_text(
            '[crawl]\nallow_private = true\ninterval = "0.05 s"\nbandwidth = "400 KB/s"\n'
            f'[crawl.quota]\nday = "2 MB"\n{sites}'
        )
        command = [HEADWAY, "crawl", job, "--processes", "2", "-q", "-o", tmp_path / "run"]
        process = subprocess.Popen(command, start_new_session=True)
        until(lambda: sum(each.sent_bytes for each in web.asked) > 1_000_000, 60.0)
        time.sleep(4.0)  # at the bound's rate, much more than the quota leaves
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        sent = sum(each.sent_bytes for each in web.asked)
    assert sent < 2_000_000


def every_second(web, job):
    sites = "".join(f'[[site]]\nurl = "{seed}"\n' for seed in web.seeds)
    job.write_text(f'[crawl]\nallow_private = true\ninterval = "{INTERVAL_S} s"\nevery = "1 s"\n{sites}')
    return job


def until_visited(web, times, since=0):
    until(lambda: all(len(visits) >= times for visits in web.visits(since).values()), 60.0)


def test_pages_are_visited_every_so_often_by_several_whatever_becomes_of_one(tmp_path):
    run = tmp_path / "run"
    with FleetWeb(sites=4, pages=5, has_tags=True) as web:
        command = [HEADWAY, "crawl", every_second(web, tmp_path / "job.toml"), "-o", run, "-q"]
        process = subprocess.Popen(
            [*command, "--processes", "2"], stderr=subprocess.PIPE, start_new_session=True
        )
        until_visited(web, 2)
        os.kill(workers_of(process)[0], signal.SIGKILL)
        killed = len(web.asked)
        until_visited(web, 3, since=killed)
        os.killpg(process.pid, signal.SIGINT)
        finish(process, expected=11)
        assert all(visits[-1].is_conditional for visits in web.visits(killed).values())
        assert web.judge(INTERVAL_S).too_soon == 0
        # Whoever goes on knows when each page is due, and what there is of it.
        before = len(web.asked)
        process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
        until_visited(web, 1, since=before)
        os.killpg(process.pid, signal.SIGINT)
        finish(process, expected=11)
        assert all(visits[0].is_conditional for visits in web.visits(before).values())
    with RunReader(run) as reader:
        assert (reader.totals().done, reader.totals().waiting) == (20, 20)


def test_every_page_is_visited_once_more_by_several(tmp_path):
    run = tmp_path / "run"
    with FleetWeb(sites=6, pages=10, has_tags=True) as web:
        finish(start(web, run))
        first = len(web.asked)
        command = [HEADWAY, "crawl", "--again", run, "--processes", "2", "-q"]
        finish(subprocess.Popen(command, stderr=subprocess.PIPE))
        visits = web.visits(first)
        assert all(len(each) == 1 and each[0].is_conditional for each in visits.values())
        assert web.judge(INTERVAL_S).too_soon == 0
    with RunReader(run) as reader:
        kinds = [page.record_type for page in reader.captures()]
        assert (reader.totals().done, reader.totals().waiting) == (60, 0)
    assert (kinds.count("response"), kinds.count("revisit")) == (60, 60)
    assert len(list((run / "archive").iterdir())) == 4, "two workers, twice"


def test_a_crawl_on_a_server_is_not_for_several_processes_of_one_machine(tmp_path):
    for where in (["http://127.0.0.1:1/", "--store", "postgresql:///x#y"], ["--again", "postgresql:///x#y"]):
        command = [HEADWAY, "crawl", *where, "--processes", "2", "-o", tmp_path / "run"]
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 2
        assert b"headway collect" in done.stderr


@pytest.mark.parametrize("count", ["0", "two"])
def test_a_senseless_number_of_processes_is_refused(count, tmp_path):
    command = [HEADWAY, "crawl", "http://127.0.0.1:1/", "--processes", count, "-o", tmp_path / "run"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def until(condition, limit_s=30.0):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def order(run, *orders):
    for each in orders:
        write_order(run, Instant(time.time()), each)


def test_a_person_sees_where_a_crawl_by_several_will_end_and_steers_it(tmp_path):
    run = tmp_path / "run"
    pages = 150  # so that it goes on while we look, also on a slow machine
    with FleetWeb(sites=6, pages=pages) as web, FleetWeb(sites=1, pages=5) as another:
        process = start(web, run, "--bandwidth", "4 Mbit/s", "--deadline", "1 h")
        try:
            until_asked(web, 30)
            watching = WatchedRun(run)
            first, stopped = (page_of(seed).site for seed in web.seeds[:2])
            until(lambda: watching.picture().run.takes_orders)
            until(lambda: any(line.forecast_to_at for line in watching.picture().sites))
            order(run, Pause())
            until(lambda: watching.picture().run.state == "paused")
            time.sleep(1.0)  # what was under way when the order came
            asked = len(web.asked)
            time.sleep(1.0)
            assert len(web.asked) == asked
            added = page_of(another.seeds[0])
            order(
                run, SetDeadline(first, Instant(4e9)), StopSite(stopped), AddSite(Task(added.site), (added,))
            )
            order(run, Resume())
            finish(process)
        finally:
            process.kill()
            process.communicate()
        assert len([asked for asked in another.asked if asked.path != "/robots.txt"]) == 5
        watching.close()
    with RunReader(run) as reader:
        sites = {row.site: row for row in reader.sites()}
        assert sites[first].deadline_at == 4e9
        assert sites[first].done == pages
        assert sites[stopped].done < pages
        assert reader.totals().waiting == 0
    decisions = (run / "decisions.jsonl").read_text()
    for told in ("order-pause", "order-resume", "order-deadline", "order-stop", "order-add"):
        assert told in decisions
