"""Scrapy as its users write it, in an environment of its own: `python scrapy_stock_peer.py FOLDER URL...`

A spider with a LinkExtractor on the asyncio reactor, 256 requests at a time, no logging; robots.txt is
obeyed, and bodies are appended to one file. Everything else is as Scrapy comes.
"""

import sys
from pathlib import Path
from urllib.parse import urlsplit

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.linkextractors import LinkExtractor

FOLDER, *URLS = sys.argv[1:]


class ManualsSpider(scrapy.Spider):
    name = "manuals"
    start_urls = URLS

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.bodies = Path(FOLDER, "bodies").open("wb", buffering=1 << 18)  # noqa: SIM115  see `closed`
        hosts = [urlsplit(url).netloc for url in URLS]
        # Its default is A and AREA; the others follow frames, too.
        tags = ("a", "area", "frame", "iframe")
        self.links = LinkExtractor(allow_domains=hosts, tags=tags, attrs=("href", "src"))

    def parse(self, response):
        self.bodies.write(response.body)
        if not isinstance(response, scrapy.http.HtmlResponse):
            return
        for link in self.links.extract_links(response):
            yield scrapy.Request(link.url, callback=self.parse)

    def closed(self, reason):
        self.bodies.close()


process = CrawlerProcess(
    {
        "LOG_ENABLED": False,
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "CONCURRENT_REQUESTS": 256,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": True,
        "USER_AGENT": "scrapy-bench",
    },
)
process.crawl(ManualsSpider)
process.start()
