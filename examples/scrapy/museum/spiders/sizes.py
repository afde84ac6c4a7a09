from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class SizesSpider(CrawlSpider):
    """How large the pages of a site are, three links deep."""

    name = "sizes"
    rules = (Rule(LinkExtractor(), callback="parse_page", follow=True, process_links="own"),)
    custom_settings = {"DEPTH_LIMIT": 3}

    def __init__(self, url, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.start_urls = [url]

    def own(self, links):
        return [link for link in links if link.url.startswith(self.start_urls[0])]

    def parse_page(self, response):
        yield {"url": response.url, "bytes": len(response.body), "status": response.status}
