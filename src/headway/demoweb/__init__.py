"""A small web to crawl: several sites on loopback ports, each with its own features, made from one seed.

`headway demo` crawls it, and so do the tests. Nothing in it is random at run time: the same seed gives the
same pages, byte for byte (except for the ports in absolute links), and the n-th request for a page always
gets the same response.

    site         features
    library      large; mirror folder; / and /index.html equal; sitemap index, gzip; ETag and 304
    gazette      gzip, br, zstd, deflate, chunked; query URLs; feed; robots groups by user agent
    museum       frames, iframe, area, base, meta refresh, canonical; robots tags; charsets; other types;
                 / and /index.html differ
    harbour      sends at most `Tempo.rate_bytes_per_s`; robots.txt behind a redirect
    observatory  waits `Tempo.latency_s` before each response; no robots.txt; ETag and 304
    workshop     500, 503 and 429 with Retry-After, resets, stalls, cut bodies, garbage: once or always
    almanac      /calendar/2026/11/ and every month after it, without end
    registry     Disallow, Allow, Crawl-delay; redirects, chains, loops, to another site; odd URLs
    plain        ordinary; not in the default roster: name it as often as you need, for load
    closed       robots.txt always has status 500; not in the default roster

In a test, with the server in the same loop:

    async def test_finds_all() -> None:
        design = design_web(seed=7, scale=0.2, tempo=QUICK)
        async with serve(design) as served:
            await crawl(served.urls)
            asked = {served.sites[r.site] + r.path for r in served.requests()}
            assert asked - robots == served.reachable(Scope(max_depth=8))
            assert served.most_connections("library") == 1
            assert min(served.gaps_s("library")) >= interval_s

or in a separate process, which shares only the log file with the crawler:

    with ServedProcess(design_web(7)) as served:
        subprocess.run(["headway", "crawl", *served.urls, "--allow-private"])

`served.expected(scope)` has the depth, final status, type, size and noindex of each URL. Every crawl first
finds a page at that depth, in any order of crawling (see `builder`), so a limit of depth has the same effect
on every crawl. Give such a limit, or one of pages, since the calendar has no end. For load, leave out the
sites that are slow on purpose: `design_web(7, scale=10, roster=("plain",) * 8)`. By hand: `python -m
headway.demoweb --port-base 8100`, then open http://127.0.0.1:8100/.
"""

from __future__ import annotations

from headway.demoweb.connection import AccessLog, Connection, Exchange, read_access_log
from headway.demoweb.design import (
    DEFAULT_ROSTER,
    WANTED_TYPES,
    Expected,
    Recipe,
    Scope,
    WebDesign,
    design_from,
    design_web,
)
from headway.demoweb.model import QUICK, Answer, Layout, Link, LinkKind, PageDesign, Place, SiteDesign, Tempo
from headway.demoweb.server import Served, ServedProcess, serve

__all__ = [
    "DEFAULT_ROSTER",
    "QUICK",
    "WANTED_TYPES",
    "AccessLog",
    "Answer",
    "Connection",
    "Exchange",
    "Expected",
    "Layout",
    "Link",
    "LinkKind",
    "PageDesign",
    "Place",
    "Recipe",
    "Scope",
    "Served",
    "ServedProcess",
    "SiteDesign",
    "Tempo",
    "WebDesign",
    "design_from",
    "design_web",
    "read_access_log",
    "serve",
]
