"""Crawlee for Python at its fastest, in an environment of its own: `python crawlee_peer.py FOLDER URL...`

Its plain HTTP crawler with storage in memory and links taken by selectolax; robots.txt is obeyed, there are
no sessions and no retries, and bodies are appended to one file.
"""

import logging
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import uvloop
from crawlee import ConcurrencySettings
from crawlee.crawlers import HttpCrawler
from crawlee.storage_clients import MemoryStorageClient
from selectolax.lexbor import LexborHTMLParser

FOLDER, *URLS = sys.argv[1:]


async def main() -> None:
    bodies = Path(FOLDER, "bodies").open("wb", buffering=1 << 18)  # noqa: SIM115  closed at the end
    crawler = HttpCrawler(
        storage_client=MemoryStorageClient(),
        concurrency_settings=ConcurrencySettings(
            min_concurrency=CONCURRENCY, desired_concurrency=CONCURRENCY, max_concurrency=CONCURRENCY
        ),
        respect_robots_txt_file=True,
        use_session_pool=False,
        retry_on_blocked=False,
        max_request_retries=0,
        configure_logging=False,
        statistics_log_format="inline",
        request_handler_timeout=timedelta(seconds=30),
    )
    known = set(URLS)

    @crawler.router.default_handler
    async def handle(context) -> None:
        body = await context.http_response.read()
        bodies.write(body)
        url = context.request.url
        home = url[: url.index("/", 8) + 1]
        targets = []
        for node in LexborHTMLParser(body).css("a,area,frame,iframe"):
            href = node.attributes.get("href") or node.attributes.get("src")
            if not href:
                continue
            target = urldefrag(urljoin(url, href.strip()))[0]
            if target.startswith(home) and target not in known:
                known.add(target)
                targets.append(target)
        if targets:
            await context.add_requests(targets)

    await crawler.run(URLS)
    bodies.close()


CONCURRENCY = 64
logging.disable(logging.CRITICAL)
uvloop.run(main())
