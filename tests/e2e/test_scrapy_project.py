"""`headway run-scrapy` in a project as `scrapy startproject` makes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.demoweb import QUICK, ServedProcess, design_web

pytest.importorskip("scrapy")

ROOT = Path(__file__).parents[2]
SPIDER = """
import scrapy
from urllib.parse import urlsplit

class Titles(scrapy.Spider):
    name = "titles"

    def __init__(self, start="", **more):
        super().__init__(**more)
        self.start_urls = [start]
        self.allowed_domains = [urlsplit(start).hostname]

    def parse(self, response):
        yield {"title": response.css("title::text").get()}
        yield from response.follow_all(css="a::attr(href)")
"""
PIPELINE = """
class Collect:
    def open_spider(self, spider=None):
        self.file = open("collected.jsonl", "a")

    def process_item(self, item, spider=None):
        self.file.write(str(item["title"]) + "\\n")
        return item

    def close_spider(self, spider=None):
        self.file.close()
"""


def run(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    assert run("scrapy", "startproject", "shop", cwd=tmp_path).returncode == 0
    project = tmp_path / "shop"
    (project / "shop/spiders/titles.py").write_text(SPIDER)
    (project / "shop/pipelines.py").write_text(PIPELINE)
    with (project / "shop/settings.py").open("a") as settings:
        settings.write(
            '\nITEM_PIPELINES = {"shop.pipelines.Collect": 300}\nDOWNLOAD_DELAY = 0\n'
            "CONCURRENT_REQUESTS_PER_DOMAIN = 4\nROBOTSTXT_OBEY = False\nCLOSESPIDER_ITEMCOUNT = 12\n"
        )
    return project


def job_for(project: Path, url: str, spider: str = "titles", **more: str) -> Path:
    keys = "".join(f'{key} = "{value}"\n' for key, value in more.items())
    (project / "job.toml").write_text(
        '[crawl]\nbandwidth = "2 MB/s"\nallow_private = true\n'
        f'[[site]]\nurl = "{url}"\nspider = "{spider}"\narguments = {{ start = "{url}" }}\n{keys}'
    )
    return project / "job.toml"


def test_a_project_is_loaded_as_scrapy_crawl_does_and_its_limits_are_a_normal_end(project: Path) -> None:
    with ServedProcess(design_web(7, scale=0.5, tempo=QUICK, roster=("library",))) as web:
        job_for(project, web.urls[0], deadline="1 h")
        first = run("headway", "run-scrapy", "job.toml", "-o", "run", "--json", "-q", cwd=project)
        assert first.returncode == 0, first.stderr
        (site,) = json.loads(first.stdout)["sites"]
        assert (site["restarts"], site["is_met"]) == (0, True)
        collected = len((project / "collected.jsonl").read_text().splitlines())
        assert collected == site["items"] >= 12


def test_a_rerun_does_not_turn_missed_into_met(project: Path) -> None:
    with (project / "shop/settings.py").open("a") as settings:
        settings.write("\nCLOSESPIDER_ITEMCOUNT = 0\nDEPTH_LIMIT = 1\n")
    with ServedProcess(design_web(7, scale=0.5, tempo=QUICK, roster=("library",))) as web:
        job_for(project, web.urls[0], deadline="1 ms")
        for _ in range(2):
            done = run("headway", "run-scrapy", "job.toml", "-o", "run", "--json", "-q", cwd=project)
            (site,) = json.loads(done.stdout)["sites"]
            assert (done.returncode, site["is_met"]) == (3, False), done.stderr


@pytest.mark.parametrize(
    ("spider", "words"),
    [
        ("titels", "did you mean 'titles'"),
        ("shop.spiders.titles.Title", "its module has no such class"),
        ("shop.spiders.title.Titles", "cannot find the module"),
        ("shop.pipelines.Collect", "it is not the class of a spider"),
    ],
)
def test_a_wrong_spider_fails_before_anything_starts(project: Path, spider: str, words: str) -> None:
    job_for(project, "http://127.0.0.1:9/", spider)
    done = run("headway", "run-scrapy", "job.toml", "-o", "run", cwd=project)
    assert done.returncode == 4
    assert words in " ".join(done.stderr.split())
    assert not (project / "run").exists()
