"""The files of `headway run-scrapy`: each site has its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import headway as hw

pytest.importorskip("scrapy", reason="needs the extra 'scrapy'")

from headway.scrapy.running import ScrapyRun
from headway.scrapy.steering import SiteTask
from headway.scrapy.supervisor import EventLog


def test_http_and_https_of_one_host_share_no_file(tmp_path: Path) -> None:
    urls = ["http://a.test/", "https://a.test/", "https://b.test:8080/"]
    job = hw.Plan(tasks=[hw.Task(url) for url in urls], bandwidth="1 Mbit/s").job
    run = ScrapyRun(job, tmp_path, EventLog(print))
    sites = [run._site_run(number, SiteTask(wish, (), 1.0)) for number, wish in enumerate(job.sites)]
    assert [site.log.name for site in sites] == [
        "http-a.test.log",
        "https-a.test.log",
        "b.test-8080.log",
    ]
    for site in sites:
        assert site.task.settings["JOBDIR"].endswith(f"/jobs/{site.log.stem}")
    feeds = {str(site.task.defaults["FEEDS"]) for site in sites}
    assert len(feeds) == len(sites)
