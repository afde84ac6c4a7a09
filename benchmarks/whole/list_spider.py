"""Scrapy on a list of pages: `python list_spider.py LIST [BANDWIDTH]`; the bandwidth is for headway's add-on.

A plain program, since Scrapy without the add-on runs in an environment that knows nothing of headway.
"""

import sys
from pathlib import Path

import scrapy
from scrapy.crawler import AsyncCrawlerProcess

WITHOUT = {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 0.1}


class ListSpider(scrapy.Spider):
    name = "list"

    async def start(self):
        for url in Path(sys.argv[1]).read_text().split():
            yield scrapy.Request(url)

    def parse(self, response):
        return {"size": len(response.body)}


settings = {"LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False}
if len(sys.argv) > 2:
    settings |= {"ADDONS": {"headway.scrapy.Addon": 500}, "HEADWAY_BANDWIDTH": sys.argv[2]}
else:
    settings |= WITHOUT
process = AsyncCrawlerProcess(settings)
process.crawl(ListSpider)
process.start()
