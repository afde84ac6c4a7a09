"""Pages and links as a crawl has them: sites of many sizes, 22 links a page, 5 of them new."""

from __future__ import annotations

import random

from xxhash import xxh3_64_intdigest

from headway.model.command import PageState, SaveFound, SaveSettled, SaveSite
from headway.model.page import Capture, Kind, Outcome, Page, PageKey, Site
from headway.ports import Response
from headway.units import Instant

LINKS, NEW_LINKS = 22, 5
URLS_A_SITE = 100


def html(dice: random.Random, length_bytes: int) -> bytes:
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(2, 9))) for _ in range(800)]
    parts: list[str] = []
    while sum(map(len, parts)) < length_bytes:
        link = f'<a href="/docs/{dice.randrange(10_000)}.html">{dice.choice(words)}</a>'
        parts.append(f"<p>{link} {' '.join(dice.choices(words, k=14))}</p>\n")
    return "".join(parts).encode()[:length_bytes]


def response(number: int, body: bytes) -> Response:
    head = (
        b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Mon, 16 Nov 2026 00:00:00 GMT\r\n"
        b"Content-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\nConnection: keep-alive\r\n\r\n"
        % len(body)
    )
    request = (
        b"GET /docs/%d.html HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: headway/0.1\r\n"
        b"Accept: */*\r\nAccept-Encoding: gzip, br, zstd\r\n\r\n" % number
    )
    return Response(
        Kind.FETCHED,
        f"http://www.example.org/docs/{number}.html",
        Instant(1_763_251_446.5 + number / 1000),
        duration_s=0.1,
        status=200,
        request_head=request,
        head=head,
        payload=body,
        body=body,
        peer="192.0.2.7",
    )


class Web:
    """Sites that grow as their pages are fetched."""

    def __init__(self, urls: int) -> None:
        self.dice = random.Random(20261116)
        self.sites = [
            Site(f"http://www.host{number}.example") for number in range(max(1, urls // URLS_A_SITE))
        ]
        self.known: list[list[Page]] = [[] for _ in self.sites]
        self.fetched = [0] * len(self.sites)
        self.count = 0

    def find(self, place: int) -> Page:
        site, known = self.sites[place], self.known[place]
        url = f"{site}/docs/section-{len(known) % 7}/page-{len(known)}.html"
        page = Page(url, site, PageKey(xxh3_64_intdigest(url.encode()) - (1 << 63)), depth=3)
        known.append(page)
        return page

    def find_many(self, urls: int) -> list[SaveFound]:
        """What a crawl has found before the measurement begins."""
        per_site = max(1, urls // len(self.sites))
        return [
            SaveFound(tuple(self.find(place) for _ in range(per_site))) for place in range(len(self.sites))
        ]

    def fetch(self) -> list[SaveSettled | SaveFound | SaveSite]:
        place = self.dice.randrange(len(self.sites))
        while self.fetched[place] >= len(self.known[place]):
            place = (place + 1) % len(self.sites)
        known, site = self.known[place], self.sites[place]
        page = known[self.fetched[place]]
        self.fetched[place] += 1
        old = [self.dice.choice(known) for _ in range(LINKS - NEW_LINKS)]
        new = tuple(self.find(place) for _ in range(NEW_LINKS))
        self.count += 1
        outcome = Outcome(
            Kind.FETCHED, 200, 12_400, 0.1, "text/html", 12_000, f"sha256:{self.count:064x}", peer="192.0.2.7"
        )
        at = Instant(1_763_251_446.5 + self.count / 1000)
        capture = Capture("archive/a.warc.gz", self.count * 6000, 6000)
        links = (*old, *new)
        settled = SaveSettled(page, outcome, PageState.DONE, 0, at, capture=capture, links=links)
        return [settled, SaveFound(new), SaveSite(site, at, 0)]
