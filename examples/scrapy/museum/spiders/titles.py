import scrapy


class TitlesSpider(scrapy.Spider):
    """Every page of a site, with its title."""

    name = "titles"

    def __init__(self, url, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.start_urls = [url]

    def parse(self, response):
        if not isinstance(response, scrapy.http.HtmlResponse):
            return
        yield {"url": response.url, "title": response.css("title::text").get()}
        for link in response.css("a::attr(href)").getall():
            request = response.follow(link, self.parse)
            if request.url.startswith(self.start_urls[0]):
                yield request
