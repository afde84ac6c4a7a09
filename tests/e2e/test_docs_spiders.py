"""What the pages on Scrapy show is done with Scrapy itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.squid import free_port

from headway.demoweb import QUICK, Served, ServedProcess, design_web

from docpages import ROOT, changed, followed, run

pytest.importorskip("scrapy")

PROJECT = ROOT / "examples" / "scrapy"
BOOKS = """
import scrapy


class Books(scrapy.Spider):
    name = "books"

    def __init__(self, category, **kwargs):
        super().__init__(**kwargs)
        self.category = category

    async def start(self):
        yield scrapy.Request("{url}")

    def parse(self, response):
        yield {{"url": response.url, "category": self.category}}
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with ServedProcess(design_web(7, scale=0.2, tempo=QUICK, roster=("plain", "museum"))) as web:
        yield web


def lines_of(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_spiders_get_a_bound_and_deadlines_as_the_page_says(served: Served, tmp_path: Path) -> None:
    plain, museum = served.urls
    shutil.copytree(PROJECT, tmp_path, dirs_exist_ok=True)
    settings = tmp_path / "museum" / "settings.py"
    without_headway = settings.read_text().partition("# The four lines")[0]
    with followed("docs/how-to/scrapy.md") as page:
        run(page.take("sh"), tmp_path)
        settings.write_text(without_headway + page.take("python"))
        run(f"scrapy crawl titles -a url={museum} -O titles.jsonl --logfile spider.log", tmp_path)
        assert lines_of(tmp_path / "titles.jsonl")
        assert "'headway/bound_bytes_per_s': 250000" in (tmp_path / "spider.log").read_text()

        (tmp_path / "museum" / "spiders" / "books.py").write_text(BOOKS.format(url=museum))
        ours = {
            "[crawl]\n": "[crawl]\nallow_private = true\n",
            "https://shop.example.org/": museum,
            "https://news.example.org/": plain,
            '"/story/"': '"/"',
        }
        (tmp_path / "JOB.toml").write_text(changed(page.take("toml"), ours))
        run(page.take("sh"), tmp_path)
    name_of_site = {url: url.partition("://")[2].strip("/").replace(":", "-") for url in served.urls}
    items = tmp_path / "run" / "items"
    assert [item["category"] for item in lines_of(items / f"{name_of_site[museum]}.jsonl")] == ["travel"]
    titles = [item["title"] for item in lines_of(items / f"{name_of_site[plain]}.jsonl")]
    assert titles
    assert all(titles)
    assert (items / f"{name_of_site[plain]}.parquet").stat().st_size


def test_the_example_project_runs_as_its_page_says(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    port = str(free_port())
    with followed("examples/scrapy/README.md") as page:
        ours = {
            "&      # a small site to try it on": "--scale 0.1 & trap 'kill $!' EXIT\n"
            "until curl -s http://127.0.0.1:8100/; do sleep 0.1; done",  # we are quicker than a person
            "8100": port,
        }
        run(changed(page.take("sh"), ours), tmp_path)
    made = tmp_path / "examples" / "scrapy"
    assert len(lines_of(made / "titles.jsonl")) > 3
    by_url = sorted(lines_of(made / "titles.jsonl"), key=lambda item: item["url"])
    assert by_url == sorted(lines_of(made / "plain.jsonl"), key=lambda item: item["url"])
    assert (made / "sizes.csv").read_text().count("\n") > 3
