"""Addresses as real sites have them are not taken for traps."""

from __future__ import annotations

import lzma
from collections import Counter
from pathlib import Path

import pytest

from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.errors import JobError
from headway.model.page import Page, PageKey, Site
from headway.policy.traps import TrapWatch
from headway.runtime.runtime import build_engine
from headway.units import Instant

NOW = Instant(1_790_000_000.0)
GRAPH = Path(__file__).resolve().parents[3] / "shared" / "data" / "graphs" / "debdoc-small" / "nodes.tsv.xz"
SITE = Site("https://www.example.org")

ORDINARY = [
    "/",
    "/2026/11/16/a-day/",
    "/archive/1850/03/",
    "/news/2030/01/outlook.html",
    "/forum/5031/2/",
    "/tiles/1/1/1.png.html",
    "/a/a/",
    "/en/docs/en/",
    "/wiki/Help:Contents/Help",
    "/doc/api/doc/api/",
    "/story?sid=42",
    "/story?sid=04/11/16/1234567",
    "/s?s=needle",
    "/list?page=2&sort=name",
    "/item?id=4711&lang=de&print=1",
    "/download?token=0123456789abcdef0123456789abcdef",
    "/calendar?year=2027&month=05",
    "/search?q=a+b&start=10;lang=en",
    "/(parenthesis)/index.html",
    "/usr/share/doc/python3/html/library/index.html",
]


def verdicts(paths: list[tuple[str, str]]) -> Counter[str]:
    watch = TrapWatch()
    cut: Counter[str] = Counter()
    for number, (host, path) in enumerate(paths):
        site = Site(f"https://{host}")
        reason = watch.judge(NOW, Page(site + path, site, PageKey(number)), None)
        if reason is not None:
            cut[f"{reason} {path}"] += 1
    return cut


def test_ordinary_addresses_are_not_cut() -> None:
    assert verdicts([("www.example.org", path) for path in ORDINARY]) == {}


@pytest.mark.skipif(not GRAPH.exists(), reason="the graph of Debian's documentation is not here")
def test_of_thousands_of_real_addresses_none_is_cut() -> None:
    with lzma.open(GRAPH, "rt") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines][1:]
    assert len(rows) > 8000
    assert verdicts([(host, path) for _, host, _, path in rows]) == {}


def job(**crawl: object) -> Job:
    source = Source("job.toml")
    tables = {"crawl": crawl, "site": [{"url": f"{SITE}/"}]}
    return build_job(convert(tables, source), source, now=NOW)


def test_traps_can_be_switched_off_and_are_watched_for_by_default() -> None:
    given = job(max_links=7, near_duplicates=False, max_crawl_delay="90 s", mirrors="skip", traps=False)
    assert (given.file.crawl.max_links, given.file.crawl.near_duplicates) == (7, False)
    assert given.max_crawl_delay_s == 90
    watch = build_engine(given).watch
    assert watch is not None
    assert watch.judge(NOW, Page(f"{SITE}/a/a/a/a/a/", SITE, PageKey(1)), None) is None
    standard = build_engine(job()).watch
    assert standard is not None
    assert standard.judge(NOW, Page(f"{SITE}/a/a/a/a/a/", SITE, PageKey(1)), None) == "trap: repeating path"


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("max_links", 0, "0 is too small"),
        ("max_crawl_delay", "1e30 s", "more than a hundred years"),
        ("max_crawl_delay", "soon", "not a duration"),
        ("mirrors", "perhaps", "mirrors"),
        ("traps", "yes", "traps"),
    ],
)
def test_a_bad_value_is_reported_with_its_key(key: str, value: object, words: str) -> None:
    with pytest.raises(JobError, match=words):
        job(**{key: value})
