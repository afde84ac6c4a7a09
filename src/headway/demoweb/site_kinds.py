"""The sites of the demo web: ordinary ones of different speeds, and those that test a crawler."""

from __future__ import annotations

from headway.demoweb import model
from headway.demoweb.builder import Habits, SiteBuilder
from headway.demoweb.model import (
    Answer,
    CharsetHint,
    Framing,
    Layout,
    LinkKind,
    Place,
    RobotsGroup,
    SiteDesign,
    Tempo,
)

_OPEN_TO_ALL = RobotsGroup(agents=("*",))


def library(seed: str, name: str, scale: float, _: Tempo) -> SiteDesign:
    """Large; a mirror folder, `/index.html` equal to `/`, sitemaps with unlinked pages, ETags."""
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
    """A limited rate over all connections; robots.txt behind a redirect."""
    site = SiteBuilder(seed, name, "Harbour Office", Habits(median_bytes=9_000))
    site.grow(_count(32, scale), ("arrivals", "tides", "pilots"))
    site.service("/static/robots.txt", Layout.ROBOTS, [])
    site.service("/robots.txt", Layout.REDIRECT, ["/static/robots.txt"], status=301)
    return site.build("rate-limited", robots=(_OPEN_TO_ALL,), rate_bytes_per_s=tempo.rate_bytes_per_s)


def observatory(seed: str, name: str, scale: float, tempo: Tempo) -> SiteDesign:
    """A delay before each response; no robots.txt; Last-Modified and ETag."""
    habits = Habits(median_bytes=8_000, latency_s=tempo.latency_s)
    site = SiteBuilder(seed, name, "Hill Observatory", habits)
    site.grow(_count(30, scale), ("nights", "instruments", "comets"))
    return site.build("slow to answer", validators=True)


def almanac(seed: str, name: str, scale: float, _: Tempo) -> SiteDesign:
    """A small site with an endless calendar."""
    site = SiteBuilder(seed, name, "Farmer's Almanac", Habits(median_bytes=7_000))
    site.grow(_count(16, scale), ("seasons", "proverbs"))
    site.service("/robots.txt", Layout.ROBOTS, [])
    calendar = model.first_month(name)
    site.link("/", calendar.to, "The calendar, from " + calendar.text)
    return site.build("a calendar without end", has_calendar=True)


def plain(seed: str, name: str, scale: float, _: Tempo) -> SiteDesign:
    """An ordinary site, for load."""
    site = SiteBuilder(seed, name, f"The {name.capitalize()} Pages")
    site.grow(_count(60, scale), ("one", "two", "three", "four"))
    return site.build("ordinary")


def closed(seed: str, name: str, _: float, __: Tempo) -> SiteDesign:
    """robots.txt always has status 500, which excludes a polite crawler from the whole site."""
    site = SiteBuilder(seed, name, "Closed House")
    site.grow(6, ("rooms",))
    site.service("/robots.txt", Layout.ROBOTS, [], answers=(Answer.ERROR,))
    return site.build("robots.txt is not available")


def _count(pages: int, scale: float) -> int:
    return max(6, round(pages * scale))


def _add_mirror(site: SiteBuilder) -> None:
    """A folder, and another one with the same pages, byte for byte."""
    site.add("/guide/", "Guide to the collections")
    site.add("/mirror/guide/", "Guide to the collections (mirror)")
    for number in range(1, 7):
        page = f"chapter-{number}.html"
        site.add(f"/guide/{page}", f"Chapter {number}", under="/guide/", framing=Framing.CHUNKED)
        site.add(
            f"/mirror/guide/{page}", f"Chapter {number}", under="/mirror/guide/", copy_of=f"/guide/{page}"
        )


_OK = Answer.AS_DESIGNED


def museum(seed: str, name: str, scale: float, _: Tempo) -> SiteDesign:
    """All kinds of HTML links and robots tags, old charsets, types that a crawl does not accept."""
    site = SiteBuilder(seed, name, "The Museum of Curious Pages", Habits(median_bytes=8_000))
    site.grow(max(6, round(22 * scale)), ("halls", "paintings"))
    site.add("/index.html", "An older start page that is not the same")
    _add_ways_to_link(site)
    _add_robots_tags(site)
    _add_charsets(site)
    _add_other_types(site)
    return site.build("odd HTML, charsets and types")


def _add_ways_to_link(site: SiteBuilder) -> None:
    room = site.add("/links/", "Ways to link")
    frames = site.add("/links/frames.html", "Frames", under=room, layout=Layout.FRAMESET)
    site.add("/links/left.html", "Left frame", under=frames, via=LinkKind.FRAME, href="left.html")
    site.add("/links/right.html", "Right frame", under=frames, via=LinkKind.FRAME)
    iframe = site.add("/links/iframe.html", "A page in a page", under=room)
    site.add("/links/inner.html", "The inner page", under=iframe, via=LinkKind.IFRAME)
    plan = site.add("/links/plan.html", "Plan of the building", under=room)
    for number in (1, 2, 3):
        site.add(f"/links/room-{number}.html", f"Room {number}", under=plan, via=LinkKind.AREA)
    based = site.add("/links/base.html", "With a base", under=room, base_href="/links/based/")
    site.add("/links/based/near.html", "Near the base", under=based, href="near.html")
    site.add("/links/based/deep/far.html", "Far from the base", under=based, href="deep/far.html")
    refresh = site.add("/links/refresh.html", "Refreshes itself away", under=room)
    site.add("/links/refreshed.html", "Where the refresh leads", under=refresh, via=LinkKind.REFRESH)
    print_view = site.add("/links/print-view.html", "Print view", under=room)
    site.add("/links/original.html", "The original", under=print_view, via=LinkKind.CANONICAL)
    site.add("/links/sponsored.html", "A sponsored page", under=room, nofollow=True)


def _add_robots_tags(site: SiteBuilder) -> None:
    room = site.add("/tags/", "What pages ask of robots")
    for stem, meta, header in (
        ("noindex", "noindex", ""),
        ("nofollow", "nofollow", ""),
        ("none", "NONE", ""),
        ("both", "noindex, nofollow", ""),
        ("header-noindex", "", "noindex"),
        ("header-nofollow", "", "nofollow, noarchive"),
        ("header-other-bot", "", "greedybot: noindex, nofollow"),
    ):
        page = site.add(
            f"/tags/{stem}.html", f"Asks: {stem}", under=room, meta_robots=meta, x_robots_tag=header
        )
        site.add(f"/tags/below-{stem}.html", f"Below {stem}", under=page)


def _add_charsets(site: SiteBuilder) -> None:
    room = site.add("/charsets/", "Old charsets")
    for charset, hint, word in (
        ("iso-8859-1", CharsetHint.HEADER, "señor"),
        ("windows-1252", CharsetHint.META, "café"),
        ("utf-16", CharsetHint.BOM, "smörgås"),
        ("utf-8", CharsetHint.BOM, "łódź"),
        ("utf-8", CharsetHint.META, "ærø"),
    ):
        path = f"/charsets/{charset}-by-{hint}.html"
        page = site.add(path, f"Written in {charset}", under=room, charset=charset, charset_hint=hint)
        target = f"/charsets/{_percent_encoded(word)}.html"
        site.add(target, f"Behind {charset}", under=page, href=f"{word}.html")


def _add_other_types(site: SiteBuilder) -> None:
    room = site.add("/files/", "Files of all kinds")
    site.add("/style.css", under=room, via=LinkKind.STYLESHEET, layout=Layout.CSS, size_bytes=2_000)
    site.add(
        "/files/hall.png", "The hall", under=room, via=LinkKind.IMAGE, layout=Layout.PNG, size_bytes=6_000
    )
    site.add("/files/photo.png", "A photograph", under=room, layout=Layout.PNG, size_bytes=9_000)
    site.add("/files/plans.zip", "The plans", under=room, layout=Layout.ZIP, size_bytes=20_000)
    site.add(
        "/files/picture",
        "A picture whose name does not say so",
        under=room,
        layout=Layout.PNG,
        size_bytes=4_000,
    )
    site.add("/files/leaflet.pdf", "Leaflet", under=room, layout=Layout.PDF, size_bytes=40_000)
    site.add("/files/poster.ps", "Poster", under=room, layout=Layout.POSTSCRIPT, size_bytes=12_000)
    site.add("/files/hours.txt", "Opening hours", under=room, layout=Layout.TEXT, size_bytes=1_500)
    shouting = site.add("/files/shouting.html", "A type in capitals", under=room, media_type="Text/HTML")
    site.add("/files/whispering.html", "Behind the capitals", under=shouting)


def registry(seed: str, name: str, scale: float, tempo: Tempo, neighbour: str | None = None) -> SiteDesign:
    """Robots rules, all kinds of redirects, and all spellings of URLs that browsers accept."""
    site = SiteBuilder(seed, name, "The Land Registry", Habits(median_bytes=6_000))
    site.grow(max(6, round(16 * scale)), ("parcels", "deeds"))
    _add_redirects(site, neighbour)
    _add_odd_urls(site)
    private = site.add("/private/", "Not for robots")
    site.add("/private/letter.html", "A private letter", under=private)
    opened = site.add("/private/open/", "Open although inside")
    site.add("/private/open/notice.html", "A public notice", under=opened)
    site.add("/forms/apply.cgi", "Apply here")
    site.add("/forms/apply.cgi.html", "About applying")
    site.add("/withdrawn.html", "Withdrawn", status=410)
    site.add("/staff.html", "Staff only", status=403)
    site.link("/", "/never-was.html", "A dead link")
    site.service("/robots.txt", Layout.ROBOTS, [])
    rules = RobotsGroup(
        agents=("*",),
        disallow=("/private/", "/*.cgi$", "/moved/secret"),
        allow=("/private/open/",),
        crawl_delay_s=tempo.crawl_delay_s,
    )
    greedy = RobotsGroup(agents=("greedybot",), disallow=("/",))
    return site.build("robots rules, redirects, odd URLs", robots=(greedy, rules))


def _add_redirects(site: SiteBuilder, neighbour: str | None) -> None:
    room = site.add("/moved/", "Moved pages")
    for status in (301, 302, 303, 307, 308):
        site.redirect(f"/moved/by-{status}", "/about.html", under=room, status=status)
    site.redirect("/moved/relative", "/about.html", under=room, href="../about.html")
    site.redirect("/moved/to-fragment", "/about.html", under=room, href="/about.html#staff")
    site.redirect("/moved/to-dead-end", "/never-was.html", under=room)
    site.redirect("/moved/to-private", "/private/", under=room)
    site.redirect("/moved/secret", "/about.html", under=room)
    if neighbour is not None:
        site.redirect("/moved/elsewhere", Place(neighbour, "/"), under=room, status=301)
    for number in range(1, 5):
        above = room if number == 1 else f"/moved/chain-{number - 1}"
        _redirect_to_new(site, above, f"/moved/chain-{number}")
    site.add("/moved/end-of-chain.html", "End of the chain", under="/moved/chain-4", via=LinkKind.REDIRECT)
    site.redirect("/moved/loop-a", "/moved/loop-b", under=room)
    site.redirect("/moved/loop-b", "/moved/loop-a", under=room)
    site.redirect("/moved/to-itself", "/moved/to-itself", under=room)


def _redirect_to_new(site: SiteBuilder, above: str, path: str) -> None:
    via = LinkKind.A if above.endswith("/") else LinkKind.REDIRECT
    site.add(path, "Moved on", under=above, via=via, layout=Layout.REDIRECT, status=302)


def _add_odd_urls(site: SiteBuilder) -> None:
    """Each page is linked once, in a spelling that the WHATWG URL standard resolves to its canonical URL."""
    room = site.add("/odd/", "Odd spellings")
    for path, href in (
        ("/odd/with%20space.html", "with space.html"),
        ("/odd/%C3%BCber.html", "über.html"),
        ("/odd/dots.html", "./nowhere/../dots.html"),
        ("/odd/encoded-dots.html", "/odd/x/%2e%2E/encoded-dots.html"),
        ("/odd/above-the-root.html", "../../../../odd/above-the-root.html"),
        ("/odd/backslash.html", "\\odd\\backslash.html"),
        ("/odd/line-break.html", "/odd/line-\nbreak.html"),
        ("/odd/surrounded.html", " \t/odd/surrounded.html  "),
        ("/odd/fragment.html", "fragment.html#part-2"),
        ("/odd/scheme-relative.html", "//127.0.0.1:{port}/odd/scheme-relative.html"),
        ("/odd/upper-case-host.html", "HTTP://0X7F.0.0.1:{port}/odd/upper-case-host.html"),
        ("/odd/short-host.html", "http://127.1:{port}/odd/short-host.html"),
        ("/odd/zero-port.html", "http://127.0.0.1:0{port}/odd/zero-port.html"),
        ("/odd/slashes.html", "http:////127.0.0.1:{port}/odd/slashes.html"),
        ("/odd/;semi=colon,comma.html", ";semi=colon,comma.html"),
        ("/odd/UPPER.html", "UPPER.html"),
        ("/odd/%7Etilde.html", "%7Etilde.html"),
        ("/odd/query.html?a=1&b=2", "query.html?a=1&amp;b=2"),
        ("/odd/query.html?a=1&copy=2", "query.html?a=1&copy=2"),
        ("/odd/query.html?b=2&a=1", "query.html?b=2&#38;a=1"),
    ):
        site.add(path, under=room, href=href)
    site.link(room, room, "This very page", href="#top")
    site.link(room, None, "Write to us", href="mailto:registry@example.invalid")
    site.link(room, None, "A script", href="javascript:void(0)")
    site.link(room, None, "A number", href="tel:+49-30-901820")
    site.link(room, None, "Another house", href="http://WWW.Elsewhere.invalid:80/")
    site.link(room, None, "The same house", href="http://www.elsewhere.invalid/#door")
    site.add("/odd/" + "long-" * 600 + "name.html", "A very long name", under=room)


def workshop(seed: str, name: str, scale: float, tempo: Tempo) -> SiteDesign:
    """Responses that fail once, or always. A page that always fails introduces no other page."""
    site = SiteBuilder(seed, name, "The Broken Workshop", Habits(median_bytes=7_000))
    site.grow(max(6, round(26 * scale)), ("tools", "repairs"))
    for path in site.leaves():
        if path != "/about.html" and site.rng.random() < 0.12:
            site.amend(path, answers=(Answer.ERROR, _OK))
    site.amend("/repairs/", answers=(Answer.BUSY, _OK))
    room = site.add("/failures/", "Failures")
    once = {
        "500-once": (Answer.ERROR, _OK),
        "500-twice": (Answer.ERROR, Answer.ERROR, _OK),
        "503-once": (Answer.BUSY, _OK),
        "429-once": (Answer.LIMITED, _OK),
        "reset-once": (Answer.RESET, _OK),
        "stall-once": (Answer.STALL, _OK),
        "stall-midway-once": (Answer.STALL_MIDWAY, _OK),
        "cut-once": (Answer.CUT, _OK),
        "garbage-once": (Answer.GARBAGE, _OK),
    }
    for stem, answers in once.items():
        page = site.add(f"/failures/{stem}.html", f"Fails: {stem}", under=room, answers=answers)
        site.add(f"/failures/after-{stem}.html", f"After {stem}", under=page, framing=Framing.CHUNKED)
    for stem, answer in (("500", Answer.ERROR), ("reset", Answer.RESET), ("cut", Answer.CUT)):
        site.add(f"/failures/{stem}-always.html", f"Fails always: {stem}", under=room, answers=(answer,))
    site.service("/robots.txt", Layout.ROBOTS, [], answers=(Answer.RESET, _OK))
    return site.build("failing", retry_after_s=tempo.retry_after_s, stall_s=tempo.stall_s)


def _percent_encoded(word: str) -> str:
    return "".join(c if c.isascii() else "".join(f"%{octet:02X}" for octet in c.encode()) for c in word)
