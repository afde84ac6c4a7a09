"""The spider of sites that have none of their own: follows the links of one site, and extracts by rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import scrapy
from scrapy.http import Response as ScrapyResponse

from headway.model.outcome import Kind
from headway.model.page import Site
from headway.parse.document import parse
from headway.parse.extract import Extractor, Item, Rule
from headway.parse.parsed import ParseOptions
from headway.parse.url import page_of
from headway.policy.scope import Scope
from headway.ports import Response
from headway.units import Instant, Seconds


class SiteSpider(scrapy.Spider):
    """Pages and links are read by headway's own parser, so a site looks the same with and without Scrapy."""

    name = "site"

    def __init__(
        self,
        urls: list[str],
        rules: str = "[]",
        scope: str = "{}",
        max_pages: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        pages = [page for url in urls if (page := page_of(url)) is not None]
        self._urls = [page.url for page in pages]
        self._site: Site = pages[0].site
        self._extractor = Extractor({self._site: msgspec.json.decode(rules, type=tuple[Rule, ...])})
        self._scope = msgspec.json.decode(scope, type=Scope)
        self._max_pages = max_pages
        self._asked: set[str] = set()

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for url in self._urls:
            for request in self._ask(url):
                yield request

    def parse(self, response: ScrapyResponse, **kwargs: Any) -> Iterator[scrapy.Request | Item]:
        page = page_of(response.url, depth=response.meta.get("depth", 0))
        if page is None or page.site != self._site:
            return
        content_type = (response.headers.get("Content-Type") or b"").decode("latin-1")
        seen = Response(
            Kind.FETCHED,
            page.url,
            Instant(0.0),
            Seconds(0.0),
            response.status,
            tuple(
                (name.decode("latin-1").lower(), value.decode("latin-1"))
                for name, values in response.headers.items()
                for value in values
            ),
            body=response.body,
        )
        options = ParseOptions(user_agent=str(self.settings.get("USER_AGENT")))
        parsed = parse(seen, page, options)
        if not parsed.noindex:
            yield from self._extractor.items(page.url, page.site, content_type, response.body)
        for link in parsed.links:
            if link.site == self._site and self._scope.judge(link) is None:
                yield from self._ask(link.url)

    def _ask(self, url: str) -> Iterator[scrapy.Request]:
        if url in self._asked or (self._max_pages is not None and len(self._asked) >= self._max_pages):
            return
        self._asked.add(url)
        yield scrapy.Request(url)
