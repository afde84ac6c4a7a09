"""`headway run-scrapy`: spiders of a job file, each in its own process, under one bandwidth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.dashboard.answers import Pause, Resume, StopSite, WatchedRun
from headway.dashboard.application import RefusedError, accept_order
from headway.demoweb import QUICK, ServedProcess, design_web
from headway.errors import StoreError
from headway.store.reader import RunReader

pytest.importorskip("scrapy")

ROOT = Path(__file__).parents[2]
RULES = """
[[site.extract]]
item = "page"
fields = { title = "title", links = { css = "a::attr(href)", type = "url", all = true } }
[[site.extract]]
item = "entry"
each = "//li"
[site.extract.fields]
name = "a"
to = { xpath = ".//a/@href", type = "url", required = true }
"""


@pytest.fixture(scope="module")
def served():
    with ServedProcess(design_web(7, scale=0.5, tempo=QUICK, roster=("plain", "library"))) as web:
        yield web


def job_file(folder: Path, *sites: str, crawl: str = "", scrapy: str = "") -> Path:
    path = folder / "job.toml"
    head = f'[crawl]\nbandwidth = "2 MB/s"\ninterval = "0 s"\nallow_private = true\n{crawl}\n'
    path.write_text(head + "\n".join(sites) + f"\n[scrapy]\n{scrapy}\n")
    return path


def headway(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headway", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def lines(path: Path) -> list[str]:
    return sorted(json.dumps(json.loads(line), sort_keys=True) for line in path.read_text().splitlines())


def test_the_same_rules_give_the_same_lines_natively_and_in_scrapy(served, tmp_path) -> None:
    plain = served.urls[0]
    job = job_file(tmp_path, f'[[site]]\nurl = "{plain}"\n{RULES}')
    native = headway("crawl", job, "-o", tmp_path / "native", "-q")
    spiders = headway("run-scrapy", job, "-o", tmp_path / "scrapy", "--json", "-q")
    assert (native.returncode, spiders.returncode) == (0, 0), native.stderr + spiders.stderr
    (feed,) = (tmp_path / "scrapy" / "items").iterdir()
    found = lines(tmp_path / "native" / "items.jsonl")
    assert len(found) > 20
    assert lines(feed) == found


def test_two_sites_in_time_with_feeds_of_every_kind(served, tmp_path) -> None:
    sites = [f'[[site]]\nurl = "{url}"\ndeadline = "60 s"\nmax_pages = 20\n{RULES}' for url in served.urls]
    feeds = "\n".join(
        f'"out/%(site)s.{ending}" = {{ format = "{name}" }}'
        for ending, name in (("jsonl", "jsonlines"), ("csv", "csv"), ("parquet", "parquet"))
    )
    job = job_file(
        tmp_path, *sites, scrapy=f'crawlers = 1\npolicy = "m-maxt"\n[scrapy.settings.FEEDS]\n{feeds}'
    )
    done = headway("run-scrapy", job, "-o", tmp_path / "run", "--json", "-q")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["policy"] == "m-maxt"
    assert all(site["is_met"] and site["items"] > 0 and site["wire_bytes"] > 0 for site in result["sites"])
    # One after the other, as there is one crawler.
    events = [json.loads(line) for line in (tmp_path / "run" / "scrapy.jsonl").read_text().splitlines()]
    assert sum("done" in event["event"] for event in events) == 2
    import pyarrow.parquet as pq

    for site in result["sites"]:
        name = site["site"].partition("://")[2].replace(":", "-")
        out = tmp_path / "run" / "out"
        assert len(lines(out / f"{name}.jsonl")) == site["items"]
        assert pq.read_table(out / f"{name}.parquet").num_rows == site["items"]
        assert (out / f"{name}.csv").read_text().startswith("url,item")
    # What became of each page is in the database, and what nobody asked for is accounted for.
    with RunReader(tmp_path / "run") as run:
        totals, pages = run.totals(), list(run.pages())
    assert totals.waiting == 0
    assert totals.done > len(served.urls)
    assert any(page.detail == "the spider did not request it" for page in pages)
    status = json.loads(headway("status", tmp_path / "run", "--json").stdout)
    assert [site["verdict"] for site in status["sites"]] == ["met", "met"]
    assert 0 < status["wire_bytes"] <= sum(site["wire_bytes"] for site in result["sites"])
    assert status["bound_bytes_per_s"] == pytest.approx(2e6)
    assert headway("report", tmp_path / "run").returncode == 0


SPIDER = '''
import os
import scrapy


class Fragile(scrapy.Spider):
    """Kills its own process the first time."""

    name = "fragile"

    def __init__(self, url, mark, **kwargs):
        super().__init__(**kwargs)
        self.start_urls, self.mark = [url], mark

    def parse(self, response):
        yield {"url": response.url}
        if response.meta["depth"] == 1 and not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os.kill(os.getpid(), 9)
        if response.meta["depth"] < 2:
            for href in response.css("a::attr(href)").getall():
                request = response.follow(href)
                if request.url.startswith(self.start_urls[0]):
                    yield request
'''


def test_a_crawler_that_fails_is_restarted_and_continues(served, tmp_path) -> None:
    (tmp_path / "fragile.py").write_text(SPIDER)
    site = f'[[site]]\nurl = "{served.urls[0]}"\nspider = "fragile.Fragile"\n[site.arguments]\n'
    site += f'url = "{served.urls[0]}"\nmark = "{tmp_path / "mark"}"\n'
    done = headway("run-scrapy", job_file(tmp_path, site), "-o", tmp_path / "run", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["sites"]
    assert result["restarts"] == 1
    (feed,) = (tmp_path / "run" / "items").iterdir()
    urls = [json.loads(line)["url"] for line in feed.read_text().splitlines()]
    assert len(set(urls)) > 5
    assert "started again" in done.stderr


def test_an_interrupt_lets_the_crawlers_finish_and_a_second_run_resumes(served, tmp_path) -> None:
    job = job_file(tmp_path, f'[[site]]\nurl = "{served.urls[0]}"\n{RULES}')
    job.write_text(job.read_text().replace("2 MB/s", "40 KB/s"))
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "run-scrapy", str(job), "-o", str(tmp_path / "run")],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    until = time.monotonic() + 60
    while time.monotonic() < until and not list((tmp_path / "run" / "items").glob("*")):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 11
    job.write_text(job.read_text().replace("40 KB/s", "2 MB/s"))
    done = headway("run-scrapy", job, "-o", tmp_path / "run", "--json", "-q")
    assert done.returncode == 0, done.stderr
    (feed,) = (tmp_path / "run" / "items").iterdir()
    titles = {json.loads(line)["url"] for line in feed.read_text().splitlines()}
    whole = headway("run-scrapy", job, "-o", tmp_path / "whole", "--json", "-q")
    assert whole.returncode == 0
    (all_of_it,) = (tmp_path / "whole" / "items").iterdir()
    assert titles == {json.loads(line)["url"] for line in all_of_it.read_text().splitlines()}


SHARES = """
def by_weight(problem):
    link, weights = problem.bandwidth_bytes_per_s, sum(problem.weight)
    return [link * weight / weights for weight in problem.weight]
"""


def rates_noted(run_folder: Path) -> list[dict[str, float]]:
    """The rates of all sites, after each line of the log that has one."""
    found: list[dict[str, float]] = [{}]
    try:
        text = (run_folder / "scrapy.jsonl").read_text()
    except OSError:
        return found
    for line in text.splitlines():
        site, _, rate = json.loads(line)["event"].rpartition(": ")
        if rate.endswith(" B/s"):
            found.append(found[-1] | {site: float(rate.removesuffix(" B/s"))})
    return found


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_policy_of_a_user_divides_the_link_as_in_the_plan_also_when_the_bound_changes(
    served, tmp_path
) -> None:
    (tmp_path / "shares_for_spiders.py").write_text(SHARES)
    sites = [
        f'[[site]]\nurl = "{url}"\nmax_pages = 12\nweight = {weight}\ndata = "300 KB"'
        for weight, url in enumerate(served.urls, 1)
    ]
    crawl = 'sitemaps = false\npolicy = "shares_for_spiders:by_weight"'
    job = job_file(tmp_path, *sites, crawl=crawl)
    job.write_text(job.read_text().replace("2 MB/s", "10 KB/s"))
    run_folder = tmp_path / "run"
    planned = json.loads(headway("plan", job, "--json", cwd=tmp_path).stdout)
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "run-scrapy", str(job), "-o", str(run_folder), "--json", "-q"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    wait_until(lambda: len(rates_noted(run_folder)[-1]) == len(sites))
    wanted = {site["name"]: round(site["first_rate_bytes_per_s"]) for site in planned["sites"]}
    assert rates_noted(run_folder)[len(sites)] == wanted
    watching = WatchedRun(run_folder)
    wait_until(lambda: watching.picture().run.takes_orders and watching.is_running())
    with pytest.raises(RefusedError, match="change the job's sites instead"):
        accept_order(run_folder, watching, StopSite(served.urls[0]))
    accept_order(run_folder, watching, Pause())
    wait_until(lambda: watching.picture().run.state == "paused")
    received = watching.picture().run.received_bytes
    accept_order(run_folder, watching, Resume())
    wait_until(lambda: watching.picture().run.received_bytes > received)
    watching.close()
    assert headway("limit", run_folder, "2 MB/s").returncode == 0
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out)["policy"] == "shares_for_spiders:by_weight"
    assert {site: 200 * rate for site, rate in wanted.items()} in [
        {site: pytest.approx(rate, rel=1e-3) for site, rate in rates.items()}
        for rates in rates_noted(run_folder)
    ]
    assert "the bound is 2 MB/s" in (run_folder / "scrapy.jsonl").read_text()


def pages_done(run_folder: Path) -> int:
    try:
        with RunReader(run_folder) as run:
            return run.totals().done
    except StoreError:  # there is nothing yet
        return 0


def test_a_master_that_is_killed_loses_nothing(served, tmp_path) -> None:
    job = job_file(tmp_path, *(f'[[site]]\nurl = "{url}"\n{RULES}' for url in served.urls))
    job.write_text(job.read_text().replace("2 MB/s", "60 KB/s"))
    command = [sys.executable, "-m", "headway", "run-scrapy", str(job), "-o", str(tmp_path / "run"), "-q"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    feeds = tmp_path / "run" / "items"
    until = time.monotonic() + 60
    while pages_done(tmp_path / "run") < 5:
        assert time.monotonic() < until
        time.sleep(0.1)
    process.kill()
    process.wait()
    job.write_text(job.read_text().replace("60 KB/s", "2 MB/s"))
    again = headway("run-scrapy", job, "-o", tmp_path / "run", "--json", "-q")
    assert again.returncode == 0, again.stderr
    assert [site["restarts"] for site in json.loads(again.stdout)["sites"]] == [0] * len(served.urls)
    whole = headway("run-scrapy", job, "-o", tmp_path / "whole", "--json", "-q")
    assert whole.returncode == 0
    assert len(list(feeds.iterdir())) == len(served.urls)
    for feed in feeds.iterdir():
        found = lines(feed)
        assert found
        wanted = lines(tmp_path / "whole" / "items" / feed.name)
        assert set(found) == set(wanted)
        # Items of pages that were under way when it was killed may come twice.
        assert len(found) <= len(wanted) + 60


@pytest.mark.parametrize(
    ("crawl", "site", "scrapy", "said"),
    [
        ("", "", 'policy = "best"', "scrapy.policy: 'best' is not an allocation policy; use one of m-maxt"),
        ("", "", 'policies = "best"', "did you mean 'policy'"),
        ("", 'spider = "no.such.Spider"', "", "site.spider of http://127.0.0.1"),
        ("", 'spider = "Books"', "", "there is no Scrapy project with spiders in the current folder"),
    ],
)
def test_a_mistake_in_the_job_is_named(
    served, tmp_path, crawl: str, site: str, scrapy: str, said: str
) -> None:
    job = job_file(tmp_path, f'[[site]]\nurl = "{served.urls[0]}"\n{site}', crawl=crawl, scrapy=scrapy)
    done = headway("run-scrapy", job, "-o", tmp_path / "run")
    assert done.returncode == 4
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_spider_that_cannot_be_made_is_given_up_and_the_exit_code_says_so(served, tmp_path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('no')\n")
    job = job_file(tmp_path, f'[[site]]\nurl = "{served.urls[0]}"\nspider = "broken.Spider"\n')
    done = headway("run-scrapy", job, "-o", tmp_path / "run", cwd=tmp_path)
    assert done.returncode == 1, "no deadline was missed: there was none"
    assert "given up" in done.stderr
    assert ": done," not in done.stderr
    assert "see their logs in" in done.stderr.splitlines()[-1]


def test_a_folder_with_something_else_in_it_is_left_alone(served, tmp_path) -> None:
    job = job_file(tmp_path, f'[[site]]\nurl = "{served.urls[0]}"\n')
    mine, crawled = tmp_path / "mine", tmp_path / "crawled"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    crawled.mkdir()
    (crawled / "crawl.sqlite").write_text("of headway crawl")
    for folder, held in ((mine, "other files"), (crawled, "a run of another command")):
        before = sorted(folder.iterdir())
        done = headway("run-scrapy", job, "-o", folder)
        assert done.returncode == 5, done.stderr
        assert f"contains {held}; give a new or empty folder" in done.stderr
        assert sorted(folder.iterdir()) == before
