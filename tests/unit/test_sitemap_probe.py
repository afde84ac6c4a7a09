"""`headway plan --probe`: what sitemaps say of a site, asked politely and from hostile sites too."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.rawserver import Answer, RawServer, page, silence

from headway.config.job import Job, load_job
from headway.planning.estimate import NOTHING_LEARNT, Knowledge, SiteFacts
from headway.runtime.plan import Listed, plan_from_job, probe, unknown_sites, with_listed
from headway.units import Instant

XML = "Content-Type: application/xml"
NOW = Instant(1_800_000_000.0)
PAGE_BYTES = 30_000.0


def sitemap(*paths: str, index: bool = False) -> str:
    outer, inner = ("sitemapindex", "sitemap") if index else ("urlset", "url")
    entries = "".join(f"<{inner}><loc>ORIGIN{path}</loc></{inner}>" for path in paths)
    return f"<?xml version='1.0'?><{outer}>{entries}</{outer}>"


def job_of(origin: str, folder: Path, site: str = "", crawl: str = "") -> Job:
    path = folder / "job.toml"
    path.write_text(
        "[crawl]\nbandwidth = '1 Mbit/s'\ninterval = '0 s'\nallow_private = true\n"
        f"{crawl}\n[[site]]\nurl = '{origin}/'\n{site}\n"
    )
    return load_job(path)


def ask(
    answers: Mapping[str, str | Answer],
    folder: Path,
    site: str = "",
    crawl: str = "",
    longest_s: float = 20.0,
) -> tuple[Job, Listed, list[str]]:
    """What the probe finds on a server with these answers, and the paths that it asked for."""

    async def run() -> tuple[Job, Listed, list[str]]:
        made: dict[str, bytes | Answer] = {"/robots.txt": page(b"", status="404 Not Found")}
        async with RawServer(made) as server:
            for path, text in answers.items():
                kind = "Content-Type: text/plain" if path.endswith(".txt") else XML
                if isinstance(text, str):
                    made[path] = page(text.replace("ORIGIN", server.site).encode(), kind)
                else:
                    made[path] = text
            job = job_of(server.site, folder, site, crawl)
            found = await probe(job, unknown_sites(job, NOTHING_LEARNT), longest_s=longest_s)
            paths = [head.split(b" ", 2)[1].decode() for head in server.requests]
            return job, found.get(job.sites[0].site, Listed({})), paths

    return asyncio.run(run())


def test_only_robots_and_sitemaps_are_asked_for(tmp_path: Path) -> None:
    _, listed, paths = ask(
        {
            "/robots.txt": "User-agent: *\nDisallow: /no\nSitemap: ORIGIN/index.xml",
            "/index.xml": sitemap("/a.xml", "/b.xml", index=True),
            "/a.xml": sitemap("/1", "/2", "/no/3"),
            "/b.xml": sitemap("/2", "/4"),
        },
        tmp_path,
    )
    assert sorted(url[-2:] for url in listed.pages) == ["/1", "/2", "/4"]
    assert paths == ["/robots.txt", "/index.xml", "/a.xml", "/b.xml"]
    assert listed.line() == "3 pages in 2 sitemaps"


def test_the_usual_place_is_tried_when_robots_names_none(tmp_path: Path) -> None:
    _, listed, paths = ask({"/sitemap.xml": sitemap("/1")}, tmp_path)
    assert (len(listed.pages), paths) == (1, ["/robots.txt", "/sitemap.xml"])


def test_a_site_that_denies_everything_is_not_asked_further(tmp_path: Path) -> None:
    _, listed, paths = ask(
        {"/robots.txt": "User-agent: *\nDisallow: /", "/sitemap.xml": sitemap("/1")}, tmp_path
    )
    assert (listed.line(), paths) == ("no sitemap", ["/robots.txt"])


def test_a_site_whose_size_is_known_is_not_asked(tmp_path: Path) -> None:
    _, _, paths = ask({"/sitemap.xml": sitemap("/1")}, tmp_path, site="data = '1 MB'")
    assert paths == []
    job = job_of("http://127.0.0.1:1", tmp_path)
    learnt = Knowledge("run", {job.sites[0].site: SiteFacts(data_bytes=5.0)})
    assert unknown_sites(job, learnt) == []


@pytest.mark.parametrize("slow", ["/robots.txt", "/sitemap.xml"])
def test_a_site_that_does_not_answer_takes_no_longer_than_the_limit(tmp_path: Path, slow: str) -> None:
    answers: dict[str, str | Answer] = {"/robots.txt": "", "/sitemap.xml": sitemap("/1"), slow: silence}
    _, listed, _ = ask(answers, tmp_path, longest_s=0.2)
    assert listed.expected_pages == 0


def test_a_sitemap_that_leads_to_itself_or_elsewhere_is_read_once(tmp_path: Path) -> None:
    _, listed, paths = ask(
        {
            "/robots.txt": "Sitemap: ORIGIN/s.xml\nSitemap: http://192.0.2.1/other.xml",
            "/s.xml": sitemap("/s.xml", index=True),
        },
        tmp_path,
    )
    assert (listed.expected_pages, paths) == (0, ["/robots.txt", "/s.xml"])


def test_sitemaps_that_were_not_read_count_like_those_that_were() -> None:
    job_pages = dict.fromkeys(("a", "b"))
    listed = Listed(job_pages, sitemaps_read=2, sitemaps_left=4)  # type: ignore[arg-type]
    assert listed.expected_pages == 6


def test_a_plan_uses_what_was_listed_and_says_so(tmp_path: Path) -> None:
    job, listed, _ = ask({"/sitemap.xml": sitemap(*(f"/{n}" for n in range(40)))}, tmp_path)
    knowledge = with_listed(NOTHING_LEARNT, {job.sites[0].site: listed})
    plan = plan_from_job(job, NOW, None, knowledge)
    data = plan.assumptions[0].data_bytes
    assert (data.source, data.value) == ("sitemap", 40 * PAGE_BYTES)
    assert plan.remaining[0].high > 1.5 * data.value
    without = plan_from_job(job, NOW)
    assert without.assumptions[0].data_bytes.source == "default"
    assert plan.crawl_forecast is not None
    assert without.crawl_forecast is not None
    assert plan.crawl_forecast.middle_s < without.crawl_forecast.middle_s
