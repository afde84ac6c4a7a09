"""What pages may be used for, by robots.txt and by headers: read, obeyed, and kept with each page."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.rawserver import RawServer, page
from warcio.archiveiterator import ArchiveIterator

import headway.api as hw
from headway.config.job import load_job
from headway.http.robots import ParsedRules, rules_from_text
from headway.policy.politeness import (
    forbidden,
    header_preferences,
    preferences_in,
    preferences_of,
    visit_at,
    with_preferences,
)
from headway.runtime.rebuild import rebuild
from headway.store.verify import verify
from headway.units import Instant
from headway.view.export import export_pages


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("search=yes, ai-train=no", {"search": True, "ai-train": False}),
        ("train-ai=n, search=y", {"ai-train": False, "search": True}),
        ("train-ai=n;exceptions=x", {"ai-train": False}),
        ("ai-train=yes, ai-train=no", {"ai-train": False}),
        ("bots=n", dict.fromkeys(("search", "archive", "ai-input", "ai-train", "tdm"), False)),
        ("nonsense, search=maybe, =no, x y=no", {}),
        ("search=no," * 100_000, {"search": False}),
        ("", {}),
    ],
)
def test_preferences_are_read(text: str, found: dict[str, bool]) -> None:
    assert preferences_of(text) == found


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ((("content-usage", "train-ai=n"),), {"ai-train": False}),
        ((("content-signal", "search=yes"),), {"search": True}),
        ((("tdm-reservation", "1"),), {"tdm": False, "ai-train": False}),
        ((("tdm-reservation", "0"),), {}),
        ((("x-robots-tag", "noarchive, noai"),), {"archive": False, "ai-train": False}),
        ((("x-robots-tag", "otherbot: noarchive"),), {}),
        ((("x-robots-tag", "otherbot: noindex, noarchive"),), {}),
        ((("x-robots-tag", "headway: noarchive"),), {"archive": False}),
        ((("x-robots-tag", "unavailable_after: 25 Jun 2030 15:00:00 PST, noarchive"),), {"archive": False}),
        ((("content-usage", "search=y"), ("content-signal", "search=no")), {"search": False}),
    ],
)
def test_headers_are_read(headers: tuple[tuple[str, str], ...], found: dict[str, bool]) -> None:
    assert header_preferences(headers, "headway") == found


def rules(text: str) -> ParsedRules:
    found = rules_from_text(text, "headway/1.0")
    assert isinstance(found, ParsedRules)
    return found


def test_robots_txt_says_it_for_a_group_and_for_a_path() -> None:
    found = rules(
        "User-agent: *\nContent-Signal: search=yes, ai-train=no\nContent-Usage: /open/ train-ai=y\nAllow: /\n"
        "User-agent: otherbot\nContent-Signal: search=no\n"
    )
    assert found.preferences("http://a.example/x") == {"search": True, "ai-train": False}
    assert found.preferences("http://a.example/open/x") == {"ai-train": True}
    assert forbidden(found.preferences("/x"), ("search",)) == ""
    assert forbidden(found.preferences("/x"), ("search", "ai-train")) == "ai-train"


def test_extensions_do_not_end_the_user_agents_of_a_group() -> None:
    found = rules(
        "User-agent: a\nContent-Signal: search=no\nRequest-rate: 1/7\nUser-agent: headway\nDisallow: /x\n"
    )
    assert not found.allows("/x")


@pytest.mark.parametrize(
    ("line", "delay_s"),
    [
        ("Request-rate: 1/10", 10.0),
        ("Request-rate: 1/10s", 10.0),
        ("Request-rate: 30/1m", 2.0),
        ("Request-rate: 1/1h\nCrawl-delay: 5", 3600.0),
        ("Request-rate: 0/10", None),
        ("Request-rate: 1/99999999d", 86400.0),
        ("Request-rate: many", None),
        ("Crawl-delay: 1e999", None),
        ("Crawl-delay: 100000000", 86400.0),
    ],
)
def test_request_rate_is_a_delay(line: str, delay_s: float | None) -> None:
    assert rules(f"User-agent: *\n{line}\nDisallow: /x\n").crawl_delay_s == delay_s


@pytest.mark.parametrize(
    ("value", "minutes"),
    [
        ("0600-0845", (360, 525)),
        ("22:00-06:00", (1320, 360)),
        ("2200-2400", (1320, 1440)),
        ("0600", None),
        ("9900-1000", None),
        ("0600-0600", None),
    ],
)
def test_visit_time(value: str, minutes: tuple[int, int] | None) -> None:
    assert rules(f"User-agent: *\nVisit-time: {value}\nDisallow: /x\n").visit_minutes == minutes


@pytest.mark.parametrize(
    ("hour", "minutes", "visited"),
    [(7, (360, 525), 7), (9, (360, 525), 30), (5, (360, 525), 6), (23, (1320, 360), 23), (5, (1320, 360), 5),
     (12, (1320, 360), 22)],
)  # fmt: skip
def test_a_site_is_visited_at_its_time(hour: int, minutes: tuple[int, int], visited: int) -> None:
    midnight = 20_000 * 86_400
    assert visit_at(Instant(midnight + hour * 3600), minutes) == midnight + visited * 3600


def test_preferences_are_part_of_the_detail() -> None:
    detail = with_preferences("the rest was not read", {"search": True, "ai-train": False})
    assert detail == "the rest was not read; prefers ai-train=no search=yes"
    assert preferences_in(detail) == {"search": True, "ai-train": False}
    assert preferences_in(with_preferences(detail, {"search": False}))["search"] is False
    assert with_preferences("", {}) == ""
    assert preferences_in("nobody prefers anything") == {}


HTML = "Content-Type: text/html"
ROBOTS = b"User-agent: *\nContent-Signal: search=yes\nContent-Usage: /closed train-ai=n\nAllow: /\n"
ANSWERS = {
    "/robots.txt": page(ROBOTS),
    "/": page(b"<title>A</title><a href=/closed>c</a><a href=/tdm>t</a>", HTML),
    "/closed": page(b"<title>C</title>closed", HTML),
    "/tdm": page(b"<title>T</title>reserved", HTML, "TDM-Reservation: 1"),
}


def crawled(folder: Path, **settings: Any) -> tuple[dict[str, Any], list[bytes]]:
    async def main() -> list[bytes]:
        async with RawServer(ANSWERS) as server:
            plan = hw.Plan(
                tasks=[hw.Task(f"{server.site}/")], interval="1 ms", allow_private=True, **settings
            )
            async with hw.open(plan, out=folder) as run:
                async for _ in run:
                    pass
            return [head.split()[1] for head in server.requests]

    asked = asyncio.run(main())
    lines = [json.loads(line) for line in (folder / "pages.jsonl").read_text().splitlines()]
    return {"/" + line["url"].split("/", 3)[3]: line for line in lines}, asked


def test_preferences_are_kept_with_each_page(tmp_path: Path) -> None:
    pages, _ = crawled(tmp_path / "run")
    assert pages["/"]["preferences"] == {"search": True}
    assert pages["/closed"]["preferences"] == {"ai-train": False}
    assert pages["/tdm"]["preferences"] == {"search": True, "tdm": False, "ai-train": False}


def test_pages_that_are_not_given_for_the_purpose_are_left_out(tmp_path: Path) -> None:
    pages, asked = crawled(tmp_path / "run", respect=["ai-train"])
    assert pages.keys() == {"/"}
    assert b"/closed" not in asked
    assert b"/tdm" in asked
    archive = b"".join(path.read_bytes() for path in (tmp_path / "run" / "archive").iterdir())
    assert b"reserved" not in archive


def preferences_by_path(run: Path) -> dict[str, dict[str, bool]]:
    lines = [json.loads(line) for line in (run / "pages.jsonl").read_text().splitlines()]
    return {"/" + line["url"].split("/", 3)[3]: line["preferences"] for line in lines}


def test_the_archive_and_exports_have_the_preferences_and_rebuild_keeps_them(tmp_path: Path) -> None:
    run = tmp_path / "run"
    crawled(run)
    (warc,) = (run / "archive").glob("*.warc.gz")
    ids, found = {}, {}
    with warc.open("rb") as file:
        for record in ArchiveIterator(file):
            uri, kind = record.rec_headers.get_header("WARC-Target-URI"), record.rec_type
            if kind == "response":
                ids[uri] = record.rec_headers.get_header("WARC-Record-ID")
            if kind == "metadata":
                assert record.rec_headers.get_header("WARC-Concurrent-To") == ids[uri]
                found["/" + uri.split("/", 3)[3]] = record.content_stream().read().decode()
    assert found == {
        "/": "content-usage: search=y\r\n",
        "/closed": "content-usage: ai-train=n\r\n",
        "/tdm": "content-usage: ai-train=n, search=y, tdm=n\r\n",
    }
    export_pages(run, "jsonl", tmp_path / "pages.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "pages.jsonl").read_text().splitlines()]
    assert {row["url"].rpartition("/")[2]: row["preferences"] for row in rows} == {
        "": "search=yes",
        "closed": "ai-train=no",
        "tdm": "ai-train=no search=yes tdm=no",
    }
    assert verify(run).findings == []
    before = preferences_by_path(run)
    (run / "crawl.sqlite").unlink()
    rebuild(run)
    assert preferences_by_path(run) == before
    for name in ("crawl.sqlite", "crawl.log", "pages.jsonl"):
        (run / name).unlink()
    (tmp_path / "job.toml").write_text(f'[[site]]\nurl = "{rows[0]["site"]}"\n')
    rebuild(run, load_job(tmp_path / "job.toml", Instant(0.0)))
    assert preferences_by_path(run) == before
