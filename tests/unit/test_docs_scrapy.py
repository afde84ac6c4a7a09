"""What the how-tos on Scrapy and extraction show is what happens."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.model.page import Site

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = b"""<h1>On <i>Crawling</i></h1><p class="price">12,50 EUR</p><img class="cover" src="/1.png">
<ul class="tags"><li>web<li>time</ul>
<div class="review" data-stars="5"><p>A good
 read.</div><div class="review"><p>No stars.</div>"""


def blocks(name: str, language: str) -> list[str]:
    text = (HOW_TO / name).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def job_in(name: str):
    (text,) = blocks(name, "toml")
    source = Source(name, text)
    return build_job(convert(tomllib.loads(text), source), source)


def test_the_extraction_how_to_gives_the_items_that_it_shows() -> None:
    site = Site("https://shop.example.org")
    found = job_in("extraction.md").extractor().items(f"{site}/book/1.html", site, "text/html", PAGE)
    (shown,) = blocks("extraction.md", "json")
    assert found == [json.loads(line) for line in shown.splitlines()]


def test_the_job_file_of_the_scrapy_how_to_is_a_good_one() -> None:
    job = job_in("scrapy.md")
    assert job.file.scrapy.crawlers == 4
    assert job.file.site[0].spider == "shop.spiders.Books"
    assert job.sites[1].rules


def test_every_setting_of_the_how_to_is_read() -> None:
    scrapy_settings = pytest.importorskip("scrapy.settings")
    from headway.scrapy.settings import read_settings
    from headway.units import Instant

    text = (HOW_TO / "scrapy.md").read_text()
    named: dict[str, object] = {}
    for line in re.findall(r"^\| `(HEADWAY_\w+ = .*?)` \|", text, flags=re.MULTILINE):
        exec(line, {}, named)
    assert len(named) >= 8
    found = read_settings(Instant(0.0), scrapy_settings.Settings(named))
    assert found.timetable.usual_bytes_per_s == 250_000
    source = (Path(__file__).parents[2] / "src/headway/scrapy").glob("*.py")
    code = "".join(path.read_text() for path in source)
    assert all(f'"{name}"' in code for name in named)
