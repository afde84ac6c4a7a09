"""`python -m benchmarks.scrapy.process JOB`: one spider in one process, as `scrapy crawl` would run it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from scrapy.crawler import AsyncCrawlerProcess
from scrapy.utils.misc import load_object


def main() -> int:
    job = json.loads(sys.argv[1])
    process = AsyncCrawlerProcess({"LOG_LEVEL": "WARNING", "TELNETCONSOLE_ENABLED": False, **job["settings"]})
    crawler = process.create_crawler(load_object(job["spider"]))
    process.crawl(crawler, **job["arguments"])
    process.start()
    assert crawler.stats is not None
    Path(job["stats"]).write_text(json.dumps(crawler.stats.get_stats(), default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
