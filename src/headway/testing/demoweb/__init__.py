"""A small web to crawl: several sites on loopback ports, each with a character of its own, from one seed.

It is what `headway demo` crawls, and the server of the tests. Nothing in it is random at run time: the
same seed gives the same pages, byte for byte (but for the ports in absolute links), and the n-th request
for a page always gets the same answer.

    site         character
    library      large; mirror folder; / and /index.html the same; sitemap index, gzip; ETag and 304
    gazette      gzip, br, zstd, deflate, chunked; query URLs; feed; robots groups by user agent
    museum       frames, iframe, area, base, meta refresh, canonical; robots tags; charsets; other types;
                 / and /index.html differ
    harbour      sends at most `Tempo.rate_bytes_per_s`; robots.txt behind a redirect
    observatory  `Tempo.latency_s` before each answer; no robots.txt; ETag and 304
    workshop     500, 503 and 429 with Retry-After, resets, stalls, cut bodies, garbage: once or always
    almanac      /calendar/2026/11/ and every month after it, for ever
    registry     Disallow, Allow, Crawl-delay; redirects, chains, loops, to another site; odd URLs
    plain        ordinary; not in the default roster: name it as often as you need, for load
    closed       robots.txt answers 500 for ever; not in the default roster

In a test, with the server in the same loop:

    async def test_finds_all() -> None:
        design = design_web(seed=7, scale=0.2, tempo=QUICK)
        async with serve(design) as served:
            await crawl(served.urls)
            asked = {served.sites[r.site] + r.path for r in served.requests()}
            assert asked - robots == served.reachable(Scope(max_depth=8))
            assert served.most_connections("library") == 1
            assert min(served.gaps_s("library")) >= interval_s

or in a process of its own, which shares nothing with the crawler but the log file:

    with ServedProcess(design_web(7)) as served:
        subprocess.run(["headway", "crawl", *served.urls, "--allow-private"])

`served.expected(scope)` has each URL's depth, final status, type, size and noindex. A page is first found at
that depth in whatever order a crawl goes (see `builder`), so a bound on depth cuts every crawl alike; give
one, or a limit of pages, since the calendar has no end. For load, leave out the sites that are slow on
purpose: `design_web(7, scale=10, roster=("plain",) * 8)`. By hand: `python -m headway.testing.demoweb
--port-base 8100`, then open http://127.0.0.1:8100/.
"""

from headway.testing.demoweb.accesslog import AccessLog, Connection, Exchange, read_access_log
from headway.testing.demoweb.design import DEFAULT_ROSTER, Recipe, WebDesign, design_from, design_web
from headway.testing.demoweb.page import Answer, Layout, Link, LinkKind, PageDesign, Place
from headway.testing.demoweb.process import ServedProcess
from headway.testing.demoweb.server import Served, serve
from headway.testing.demoweb.site import SiteDesign
from headway.testing.demoweb.tempo import QUICK, Tempo
from headway.testing.demoweb.truth import WANTED_TYPES, Expected, Scope

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
