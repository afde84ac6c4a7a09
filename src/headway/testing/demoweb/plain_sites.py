"""The sites that answer well, each at its own pace: large, news, rate-limited, slow, endless, and plain."""

from __future__ import annotations

from headway.testing.demoweb import calendar_trap
from headway.testing.demoweb.builder import Habits, SiteBuilder
from headway.testing.demoweb.page import Answer, Framing, Layout, LinkKind
from headway.testing.demoweb.site import RobotsGroup, SiteDesign
from headway.testing.demoweb.tempo import Tempo

_OPEN_TO_ALL = RobotsGroup(agents=("*",))


def library(seed: str, name: str, scale: float, _: Tempo) -> SiteDesign:
    """Large; a mirror folder, `/index.html` the same as `/`, sitemaps with pages nothing links to, ETags."""
    site = SiteBuilder(seed, name, "The Town Library", Habits(median_bytes=13_000))
    site.grow(_count(95, scale), ("catalogue", "maps", "letters", "exhibitions", "reading-room"))
    _add_mirror(site)
    site.add("/index.html", "Start page", copy_of="/")
    orphans = [
        site.add(f"/attic/box-{number}.html", f"Box {number} from the attic", under=None)
        for number in range(1, 4)
    ]
    listed = [path for path in site.documents() if path not in orphans]
    half = len(listed) // 2
    site.service("/sitemap-1.xml", Layout.SITEMAP, listed[:half])
    site.service("/sitemap-2.xml.gz", Layout.SITEMAP, listed[half:] + orphans, media_type="application/gzip")
    site.service("/sitemap.xml", Layout.SITEMAP_INDEX, ["/sitemap-1.xml", "/sitemap-2.xml.gz"])
    site.service("/robots.txt", Layout.ROBOTS, [])
    return site.build(
        "large, with a mirror folder",
        robots=(_OPEN_TO_ALL,),
        sitemaps=("/sitemap.xml",),
        sitemap_pages=(*listed, *orphans),
        validators=True,
    )


def gazette(seed: str, name: str, scale: float, _: Tempo) -> SiteDesign:
    """Compressed and chunked pages, a feed, pages behind queries, robots rules by user agent."""
    habits = Habits(median_bytes=11_000, chunked=0.6, codings=("", "gzip", "br", "zstd", "deflate"))
    site = SiteBuilder(seed, name, "The Evening Gazette", habits)
    site.grow(_count(75, scale), ("news", "sports", "weather", "letters-to-the-editor"))
    newest = site.pages_introduced_by("/news/")[:5]
    for query, title in (
        ("q=ferry", "ferry"),
        ("q=ferry&page=2", "ferry, page 2"),
        ("q=old+mill", "old mill"),
    ):
        site.add(f"/search?{query}", f"Search: {title}")
    for number in range(1, 5):
        site.add(f"/article?id={number}&lang=en", under="/news/", coding="gzip")
    site.add("/article?lang=en&id=1", under="/news/")
    for folder in ("members", "drafts"):
        site.add(f"/{folder}/")
        site.add(f"/{folder}/one.html", under=f"/{folder}/")
    listed = site.documents()
    site.service("/feed.xml", Layout.FEED, newest)
    site.link("/", "/feed.xml", via=LinkKind.ALTERNATE)
    site.service("/sitemap.xml", Layout.SITEMAP, listed)
    site.service("/robots.txt", Layout.ROBOTS, [])
    return site.build(
        "compressed pages, queries, a feed",
        robots=(
            RobotsGroup(agents=("*",), disallow=("/members/",)),
            RobotsGroup(agents=("Headway", "otherbot"), disallow=("/drafts/",)),
        ),
        sitemaps=("/sitemap.xml",),
        sitemap_pages=tuple(listed),
    )


def harbour(seed: str, name: str, scale: float, tempo: Tempo) -> SiteDesign:
    """Sends no faster than the tempo's rate, however many connections; its robots.txt is a redirect."""
    site = SiteBuilder(seed, name, "Harbour Office", Habits(median_bytes=9_000))
    site.grow(_count(32, scale), ("arrivals", "tides", "pilots"))
    site.service("/static/robots.txt", Layout.ROBOTS, [])
    site.service("/robots.txt", Layout.REDIRECT, ["/static/robots.txt"], status=301)
    return site.build("rate-limited", robots=(_OPEN_TO_ALL,), rate_bytes_per_s=tempo.rate_bytes_per_s)


def observatory(seed: str, name: str, scale: float, tempo: Tempo) -> SiteDesign:
    """Every answer takes its time to begin; no robots.txt; Last-Modified and ETag."""
    habits = Habits(median_bytes=8_000, latency_s=tempo.latency_s)
    site = SiteBuilder(seed, name, "Hill Observatory", habits)
    site.grow(_count(30, scale), ("nights", "instruments", "comets"))
    return site.build("slow to answer", validators=True)


def almanac(seed: str, name: str, scale: float, _: Tempo) -> SiteDesign:
    """A small site with a calendar that never ends."""
    site = SiteBuilder(seed, name, "Farmer's Almanac", Habits(median_bytes=7_000))
    site.grow(_count(16, scale), ("seasons", "proverbs"))
    site.service("/robots.txt", Layout.ROBOTS, [])
    calendar = calendar_trap.first_month(name)
    site.link("/", calendar.to, "The calendar, from " + calendar.text)
    return site.build("a calendar without end", has_calendar=True)


def plain(seed: str, name: str, scale: float, _: Tempo) -> SiteDesign:
    """Nothing special: for load, and for filling up."""
    site = SiteBuilder(seed, name, f"The {name.capitalize()} Pages")
    site.grow(_count(60, scale), ("one", "two", "three", "four"))
    return site.build("ordinary")


def closed(seed: str, name: str, _: float, __: Tempo) -> SiteDesign:
    """Its robots.txt answers 500 for ever, which closes the whole site to a polite crawler."""
    site = SiteBuilder(seed, name, "Closed House")
    site.grow(6, ("rooms",))
    site.service("/robots.txt", Layout.ROBOTS, [], answers=(Answer.ERROR,))
    return site.build("robots.txt cannot be had")


def _count(pages: int, scale: float) -> int:
    return max(6, round(pages * scale))


def _add_mirror(site: SiteBuilder) -> None:
    """A folder, and another one that holds the same pages byte for byte."""
    site.add("/guide/", "Guide to the collections")
    site.add("/mirror/guide/", "Guide to the collections (mirror)")
    for number in range(1, 7):
        page = f"chapter-{number}.html"
        site.add(f"/guide/{page}", f"Chapter {number}", under="/guide/", framing=Framing.CHUNKED)
        site.add(
            f"/mirror/guide/{page}", f"Chapter {number}", under="/mirror/guide/", copy_of=f"/guide/{page}"
        )
