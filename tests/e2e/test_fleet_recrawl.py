"""A crawl on a server is begun once more, or goes on visiting; what one collector has, none keeps twice."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.fleetweb import FleetWeb

from headway.store.postgres.reader import PostgresReader
from headway.store.reader import open_reader
from headway.store.rounds import rounds_of

HEADWAY = Path(sys.executable).with_name("headway")


def run(*args, expected=0):
    done = subprocess.run([HEADWAY, *args, "-q"], capture_output=True, check=False, timeout=60)
    assert done.returncode == expected, done.stderr.decode()


@pytest.fixture
def web():
    with FleetWeb(sites=3, pages=10) as served:
        yield served


def options(web, store):
    return [*web.seeds, "--allow-private", "--interval", "0.02s", "--store", store]


def start(*args):
    return subprocess.Popen([HEADWAY, *args, "-q"], stderr=subprocess.PIPE)


def until(happened):
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def until_visited(web, times, since=0):
    until(lambda: all(len(visits) >= times for visits in web.visits(since).values()))


@pytest.mark.parametrize("adapt", ["false", "true"], ids=["fixed", "adaptive"])
def test_pages_are_visited_at_intervals_by_any_holder_of_their_site(postgres_store, tmp_path, adapt):
    job = tmp_path / "job.toml"
    with FleetWeb(sites=4, pages=5, has_tags=True, sees_arrivals=True) as web:
        sites = "".join(f'[[site]]\nurl = "{seed}"\n' for seed in web.seeds)
        job.write_text(
            '[crawl]\nallow_private = true\ninterval = "0.05 s"\nevery = "1 s"\n'
            f'[crawl.revisit]\nadapt = {adapt}\nshortest = "1 s"\nlongest = "2 s"\n{sites}'
        )
        first = start("crawl", job, "--store", postgres_store, "-o", tmp_path / "one")
        until_visited(web, 1)
        second = start("collect", "--store", postgres_store, "-o", tmp_path / "two", "--lease", "2 s")
        until_visited(web, 3)
        # The second one may still be starting: it is killed once it has fetched pages, and before it could
        # have returned its sites.
        pages = tmp_path / "two" / "pages.jsonl"
        until(lambda: pages.exists() and pages.stat().st_size > 0)
        second.kill()
        second.communicate()
        killed = len(web.asked)
        until_visited(web, 3, since=killed)
        first.send_signal(signal.SIGTERM)
        _, said = first.communicate(timeout=30)
        assert first.returncode == 11, said.decode()
        assert all(visits[-1].is_conditional for visits in web.visits(killed).values())
        assert web.judge(0.05).too_soon == 0
    with PostgresReader(postgres_store) as reader:
        assert (reader.totals().done, reader.totals().waiting) == (20, 20)


def test_every_page_is_visited_once_more(web, postgres_store, tmp_path):
    run("crawl", *options(web, postgres_store), "-o", tmp_path / "one")
    first = len(web.asked)
    run("crawl", "--again", postgres_store, "-o", tmp_path / "two")
    pages = [each for each in web.asked[first:] if each.path != "/robots.txt"]
    assert len(pages) == len({(each.site, each.path) for each in pages}) == 30
    with PostgresReader(postgres_store) as reader:
        kinds = [page.record_type for page in reader.captures()]
        assert reader.totals().waiting == 0
    assert kinds.count("response") == 30
    assert kinds.count("revisit") == 30


def test_a_crawl_on_a_server_is_exported_as_a_run_folder_is(web, postgres_store, tmp_path):
    run("crawl", *options(web, postgres_store), "-o", tmp_path / "one")
    for name in ("pages.jsonl", "index.cdxj"):
        run("export", postgres_store, "-o", tmp_path / name)
        assert len((tmp_path / name).read_text().splitlines()) == 30
    assert (tmp_path / "index.cdxj").read_text() == (tmp_path / "one/indexes/index.cdxj").read_text()
    run("report", postgres_store, expected=2)


def test_a_copy_that_is_young_enough_is_left_alone(web, postgres_store, tmp_path):
    run("crawl", *options(web, postgres_store), "-o", tmp_path / "one")
    first = len(web.asked)
    run("crawl", "--again", postgres_store, "--older-than", "1 h", "-o", tmp_path / "two")
    assert len(web.asked) == first


@pytest.mark.parametrize("processes", [False, True], ids=["fleet", "processes"])
def test_a_content_that_another_has_is_not_kept_twice(postgres_store, tmp_path, processes):
    """Two sites of the same pages: what one has, the other refers to, whichever collector fetched it."""
    where = ["--processes", "2"] if processes else ["--store", postgres_store]
    folders = [tmp_path / "run"] * 2 if processes else [tmp_path / "one", tmp_path / "two"]
    with FleetWeb(sites=2, pages=8, is_alike=True) as web:
        ours = ["--allow-private", "--interval", "0.05s", *where]
        run("crawl", web.seeds[0], *ours, "-o", folders[0])
        run("crawl", *web.seeds, *ours, "-o", folders[1])
    with open_reader(folders[0] if processes else postgres_store) as reader:
        types = [page.record_type for page in reader.captures()]
    # Eight pages, which the second crawl asked for again, and those of the other site.
    assert sorted(types) == ["response"] * 8 + ["revisit"] * 16


def test_a_crawl_that_has_ended_makes_a_round_when_it_is_started_again(postgres_store, tmp_path, web):
    words = ["crawl", *options(web, postgres_store), "-o", tmp_path / "part"]
    run(*words)
    run(*words)
    with open_reader(postgres_store) as reader:
        rounds = rounds_of(reader)
    first, second = (each.result for each in rounds)
    assert first.new > 0
    assert first.new == second.unchanged
    assert (second.new, second.changed, second.gone) == (0, 0, 0)
    done = subprocess.run(
        [HEADWAY, "export", postgres_store, "--round", "2", "-f", "csv"],
        capture_output=True,
        text=True,
        check=True,
    )
    exported = csv.DictReader(done.stdout.splitlines())
    assert [row["change"] for row in exported].count("unchanged") == second.unchanged
