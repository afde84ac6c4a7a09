"""The spiders that are measured: ordinary ones, which know nothing of headway."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import Response


class EndlessSpider(scrapy.Spider):
    """Always another page of each server: the hardest case for a bound."""

    name = "endless"

    def __init__(self, servers: str, page_bytes: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._servers = servers.split(",")
        self._page_bytes = float(page_bytes)
        self._random = random.Random(1)
        self._pages = 0

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for _ in range(16):
            for server in self._servers:
                yield self._request(server)

    def parse(self, response: Response) -> Iterator[scrapy.Request]:
        yield self._request(response.url.rsplit("/", 2)[0])

    def _request(self, server: str) -> scrapy.Request:
        self._pages += 1
        size = round(self._page_bytes * self._random.lognormvariate(0.0, 0.7))
        return scrapy.Request(f"{server}/{size}/{self._pages}")


class ListSpider(scrapy.Spider):
    """So many pages of a size, and an item from each."""

    name = "list"

    def __init__(self, server: str, pages: str, page_bytes: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._urls = [f"{server}/{page_bytes}/{number}" for number in range(int(pages))]

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for url in self._urls:
            yield scrapy.Request(url)

    def parse(self, response: Response) -> Iterator[dict[str, Any]]:
        yield {"url": response.url, "size": len(response.body)}


class FollowSpider(scrapy.Spider):
    """Every page of a site, with its title: what most spiders do."""

    name = "follow"

    def __init__(self, url: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [url]

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "title": response.css("title::text").get()}
        for request in response.follow_all(css="a"):
            if request.url.startswith(self.start_urls[0]):
                yield request
