"""Scrapy with a JOBDIR: `python job_spider.py JOBDIR plain|headway URL...`; the second with headway's add-on.

A plain program, since Scrapy without the add-on runs in an environment that knows nothing of headway.
"""

import sys
from urllib.parse import urlsplit

import scrapy
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.linkextractors import LinkExtractor

JOBDIR, HOW, *URLS = sys.argv[1:]


class JobSpider(scrapy.Spider):
    name = "job"
    start_urls = URLS
    links = LinkExtractor(
        allow_domains=[urlsplit(url).netloc for url in URLS],
        tags=("a", "area", "frame", "iframe"),
        attrs=("href", "src"),
    )

    def parse(self, response):
        if isinstance(response, scrapy.http.HtmlResponse):
            for link in self.links.extract_links(response):
                yield scrapy.Request(link.url)


settings = {
    "LOG_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "JOBDIR": JOBDIR,
    "DOWNLOAD_DELAY": 0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
}
if HOW == "headway":
    settings["ADDONS"] = {"headway.scrapy.Addon": 500}
process = AsyncCrawlerProcess(settings)
process.crawl(JobSpider)
process.start()
