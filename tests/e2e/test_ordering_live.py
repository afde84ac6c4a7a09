"""Every strategy in a real crawl: all pages come, and they come in the order that the strategy promises."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import headway as hw
from headway.errors import HeadwayError, JobError
from headway.sim.graph import ranks_of_run

# The hub is linked last on the home page, and most of all.
LINKS = {
    "/": ["/a/1", "/news/1", "/a/2", "/news/2", "/a/3", "/hub"],
    "/a/1": ["/hub", "/a/4"],
    "/a/2": ["/hub"],
    "/a/3": ["/hub"],
    "/a/4": ["/hub", "/news/3"],
    "/news/1": ["/hub"],
    "/news/2": ["/hub"],
    "/news/3": ["/hub"],
    "/hub": ["/"],
}


class Pages(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        links = LINKS.get(self.path)
        text = "".join(f'<a href="{link}">{link}</a> ' for link in links or ())
        body = f"<title>{self.path}</title><p>{self.path} {text}".encode()
        self.send_response(404 if links is None else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def sites() -> Iterator[list[str]]:
    with ExitStack() as opened:
        servers = [ThreadingHTTPServer(("127.0.0.1", 0), Pages) for _ in range(2)]
        for server in servers:
            opened.callback(server.server_close)
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            opened.callback(server.shutdown)
        yield [f"http://127.0.0.1:{server.server_port}" for server in servers]


async def crawl(sites: list[str], run: Path, *tasks: hw.Task, **options: object) -> list[str]:
    """One page at a time, without pauses; the URLs in the order in which they came."""
    given = {"allow_private": True, "interval": "0 s", "max_connections": 1, "traps": False, **options}
    plan = hw.Plan(tasks=list(tasks) or [hw.Task(f"{site}/") for site in sites], **given)
    async for _ in hw.crawl(plan, out=run):
        pass
    return [json.loads(line)["url"] for line in (run / "pages.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "strategy",
    ["depth", "length", "batch(3)", "partial(3)", "flow(3)", "random", "klwf", "score", "deadline"],
)
async def test_every_strategy_fetches_every_page_once(
    sites: list[str], tmp_path: Path, strategy: str
) -> None:
    urls = await crawl(sites, tmp_path / "run", strategy=strategy)
    assert sorted(urls) == sorted(f"{site}{path}" for site in sites for path in LINKS)


async def test_optimal_goes_by_the_ranks_of_an_earlier_crawl(sites: list[str], tmp_path: Path) -> None:
    site = sites[0]
    before = await crawl([site], tmp_path / "first", strategy="depth")
    assert before.index(f"{site}/hub") == 6, "as it is linked"
    after = await crawl([site], tmp_path / "second", strategy="optimal", ranks_from=str(tmp_path / "first"))
    assert after[:2] == [f"{site}/", f"{site}/hub"]
    assert sorted(after) == sorted(before)
    ranks = ranks_of_run(tmp_path / "first")
    assert len(ranks) == len(LINKS)


async def test_klwf_fetches_what_has_waited_longest(sites: list[str], tmp_path: Path) -> None:
    urls = await crawl(sites, tmp_path / "run", strategy="klwf")
    # Both home pages were there first, then what they link to in turn, then what was found later.
    assert urls[:2] == [f"{site}/" for site in sites]
    assert urls[2:8] == [f"{sites[0]}{path}" for path in LINKS["/"]]
    assert urls[8:14] == [f"{sites[1]}{path}" for path in LINKS["/"]]


@pytest.mark.parametrize("strategy", ["score", "deadline"])
async def test_scores_bring_the_worthiest_pages_first(
    sites: list[str], tmp_path: Path, strategy: str
) -> None:
    scores = {"/news/": 5, "/news/2": 9, "/hub$": -1}
    urls = await crawl([sites[0]], tmp_path / "run", strategy=strategy, scores=scores)
    paths = [url.removeprefix(sites[0]) for url in urls]
    assert paths[:3] == ["/", "/news/2", "/news/1"]
    assert paths[-1] == "/hub"
    assert paths.index("/news/3") == paths.index("/a/4") + 1, "as soon as it is known"


async def test_deadline_fetches_the_site_that_is_due_first(sites: list[str], tmp_path: Path) -> None:
    late, soon = sites
    tasks = hw.Task(f"{late}/", deadline="9 h"), hw.Task(f"{soon}/", deadline="1 h")
    urls = await crawl(sites, tmp_path / "run", *tasks)
    assert [url.startswith(soon) for url in urls] == [True] * len(LINKS) + [False] * len(LINKS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strategy": "optimal"}, "ranks_from"),
        ({"strategy": "best"}, "not an ordering"),
        ({"strategy": "batch"}, "needs a number of pages"),
        ({"scores": {"news/": 3}}, "matches no path"),
        ({"scores": {"/news/": float("nan")}}, "not a finite number"),
    ],
)
def test_an_order_that_cannot_be_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(JobError, match=words):
        hw.Plan(tasks=[hw.Task("http://a.test/")], **options)


async def test_ranks_from_a_folder_without_a_run_are_refused(sites: list[str], tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match="nowhere"):
        await crawl(sites, tmp_path / "run", strategy="optimal", ranks_from=str(tmp_path / "nowhere"))
    assert not (tmp_path / "run").exists()
