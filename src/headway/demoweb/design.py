"""The design of the whole demo web, made from one seed: ordinary sites of different speeds, sites that test a
crawler, and what a crawl of them should find."""

from __future__ import annotations

import posixpath
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from headway.demoweb import model
from headway.demoweb.builder import Habits, SiteBuilder
from headway.demoweb.model import (
    FOLLOWED_KINDS,
    LINKING_LAYOUTS,
    STATUS_OF,
    Answer,
    CharsetHint,
    Framing,
    Layout,
    Link,
    LinkKind,
    PageDesign,
    Place,
    RobotsGroup,
    SiteDesign,
    Tempo,
)
from headway.errors import HeadwayError

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


WANTED_TYPES = frozenset({"text/html", "application/pdf", "application/postscript", "text/plain"})
_TYPE_BY_SUFFIX = {
    ".css": "text/css",
    ".png": "image/png",
    ".zip": "application/zip",
    ".xml": "application/xml",
    ".gz": "application/gzip",
    ".pdf": "application/pdf",
    ".ps": "application/postscript",
    ".txt": "text/plain",
}


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a crawl that decide which pages it requests."""

    sites: frozenset[str] | None = None
    """Names of the sites in scope; None: all."""
    seeds: tuple[Place, ...] | None = None
    """None: the home pages of the sites in scope."""
    user_agent: str = "headway"
    respect_robots: bool = True
    respect_tags: bool = True
    """META robots and X-Robots-Tag."""
    follow_rel_nofollow: bool = True
    follow_queries: bool = True
    follow_sitemaps: bool = False
    """Use the sitemaps' pages as seeds."""
    kinds: frozenset[LinkKind] = FOLLOWED_KINDS
    types: frozenset[str] | None = WANTED_TYPES
    """URLs with a suffix of another type are not requested. None: every type."""
    max_depth: int = 12
    """Without a limit the calendar has no end."""
    redirects_cost_depth: bool = True
    max_url_chars: int | None = None
    max_attempts: int = 3


class Expected(msgspec.Struct, frozen=True):
    """The result of requesting a page, after as many attempts as the scope allows."""

    depth: int
    status: int
    """0 if no response is complete."""
    content_type: str = ""
    content_bytes: int = 0
    noindex: bool = False
    location: Place | None = None

    @property
    def kept(self) -> bool:
        """Whether the page is to be archived: found, allowed, and not a redirect."""
        return self.status == 200 and not self.noindex


def expect(sites: Mapping[str, SiteDesign], scope: Scope) -> dict[Place, Expected]:
    """Every place that a crawl requests, with the result, in breadth-first order."""
    in_scope = {n: s for n, s in sites.items() if scope.sites is None or n in scope.sites}
    waiting: deque[tuple[Place, int]] = deque((place, 0) for place in _seeds(in_scope, scope))
    expected: dict[Place, Expected] = {}
    while waiting:
        place, depth = waiting.popleft()
        if place in expected or not _is_requested(in_scope, place, depth, scope):
            continue
        expected[place], links = _visit(in_scope[place.site], place.path, depth, scope)
        for link in links:
            if link.to is not None and _follows(link, scope):
                costs = link.kind is not LinkKind.REDIRECT or scope.redirects_cost_depth
                # A link that costs no depth belongs to this level, so it goes before the next one.
                waiting.append((link.to, depth + 1)) if costs else waiting.appendleft((link.to, depth))
    return expected


def _seeds(sites: Mapping[str, SiteDesign], scope: Scope) -> Iterable[Place]:
    yield from (site.home for site in sites.values()) if scope.seeds is None else scope.seeds
    if scope.follow_sitemaps:
        for site in sites.values():
            yield from (Place(site.name, path) for path in site.sitemap_pages)


def _is_requested(sites: Mapping[str, SiteDesign], place: Place, depth: int, scope: Scope) -> bool:
    site = sites.get(place.site)
    if site is None or depth > scope.max_depth:
        return False
    if not scope.follow_queries and "?" in place.path:
        return False
    # 22: the length of the longest origin. No design has a URL so close to a limit.
    if scope.max_url_chars is not None and len(place.path) + 22 > scope.max_url_chars:
        return False
    if scope.types is not None and _suffix_type(place.path) not in {"", *scope.types}:
        return False
    return not scope.respect_robots or _robots_allow(site, scope.user_agent, place.path)


def _suffix_type(path: str) -> str:
    return _TYPE_BY_SUFFIX.get(posixpath.splitext(path.partition("?")[0])[1].lower(), "")


def _robots_allow(site: SiteDesign, user_agent: str, path: str) -> bool:
    robots = site.pages.get("/robots.txt")
    if robots is None:
        return True
    return robots.answers[-1] is Answer.AS_DESIGNED and site.allows(user_agent, path)


def _follows(link: Link, scope: Scope) -> bool:
    return link.kind in scope.kinds and (scope.follow_rel_nofollow or not link.nofollow)


def _visit(site: SiteDesign, path: str, depth: int, scope: Scope) -> tuple[Expected, tuple[Link, ...]]:
    page = site.find(path)
    if page is None:
        return Expected(depth, 404, "text/html"), ()
    if Answer.AS_DESIGNED not in page.answers[: scope.max_attempts]:
        return Expected(depth, STATUS_OF.get(page.answer_to(scope.max_attempts - 1), 0)), ()
    tags = _tags_for_all(page.meta_robots) | _tags_for_all(page.x_robots_tag)
    tags = tags if scope.respect_tags else set()
    expected = Expected(
        depth,
        page.status,
        page.content_type.lower(),
        page.size_bytes,
        noindex=not tags.isdisjoint({"noindex", "none"}),
        location=page.links[0].to if page.layout is Layout.REDIRECT else None,
    )
    leads_on = page.layout in LINKING_LAYOUTS and tags.isdisjoint({"nofollow", "none"})
    return expected, page.links if leads_on else ()


def _tags_for_all(text: str) -> set[str]:
    """The tags for all robots. A header with a robot's name is for another one."""
    return set() if ":" in text else {tag.strip().lower() for tag in text.split(",")}


_Maker = Callable[[str, str, float, Tempo], SiteDesign]
_MAKERS: Mapping[str, _Maker] = {
    "library": library,
    "gazette": gazette,
    "museum": museum,
    "harbour": harbour,
    "observatory": observatory,
    "workshop": workshop,
    "almanac": almanac,
    "registry": registry,
    "plain": plain,
    "closed": closed,
}
DEFAULT_ROSTER = (
    *("library", "gazette", "museum", "harbour"),
    *("observatory", "workshop", "almanac", "registry"),
)


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a design, from which another process can make the same one."""

    seed: int
    scale: float = 1.0
    roster: tuple[str, ...] = DEFAULT_ROSTER
    tempo: Tempo = Tempo()


class WebDesign(msgspec.Struct, frozen=True):
    """The sites of a web, before they are served."""

    recipe: Recipe
    sites: Mapping[str, SiteDesign]

    @property
    def total_bytes(self) -> int:
        return sum(site.total_bytes for site in self.sites.values())

    def page(self, place: Place) -> PageDesign | None:
        site = self.sites.get(place.site)
        return None if site is None else site.find(place.path)

    def expected(self, scope: Scope | None = None) -> dict[Place, Expected]:
        """Each place that a crawl within this scope requests, and the result."""
        return expect(self.sites, scope or Scope())

    def reachable(self, scope: Scope | None = None) -> set[Place]:
        """The places that a crawl within this scope requests."""
        return set(self.expected(scope))


def design_web(
    seed: int,
    scale: float = 1.0,
    *,
    roster: Sequence[str] = DEFAULT_ROSTER,
    tempo: Tempo | None = None,
) -> WebDesign:
    """A web of the sites in `roster`. A site that is named again gets a number and other pages.

    At scale 1 it has about 400 pages in 6 MB. The special pages are always included; the scale changes the
    number of ordinary ones.
    """
    return design_from(Recipe(seed=seed, scale=scale, roster=tuple(roster), tempo=tempo or Tempo()))


def design_from(recipe: Recipe) -> WebDesign:
    if unknown := sorted(set(recipe.roster) - set(_MAKERS)):
        raise HeadwayError(f"no demo site is named {unknown[0]!r}; choose from {', '.join(_MAKERS)}")
    if not 0 < recipe.scale <= 1_000:
        raise HeadwayError(
            f"the scale of the demo web must be greater than 0 and at most 1000, not {recipe.scale}"
        )
    names = _names(recipe.roster)
    sites = {}
    for number, (name, kind) in enumerate(zip(names, recipe.roster, strict=True)):
        others = names[number + 1 :] + names[:number]
        make = _MAKERS[kind]
        if kind == "registry":
            make = partial(registry, neighbour=others[0] if others else None)
        site = make(str(recipe.seed), name, recipe.scale, recipe.tempo)
        sites[name] = _with_neighbours(site, others[:2])
    return WebDesign(recipe, sites)


def _names(roster: Sequence[str]) -> list[str]:
    """Names of sites: the first of a kind has the plain name, others get a number."""
    seen: Counter[str] = Counter()
    names = []
    for kind in roster:
        seen[kind] += 1
        names.append(kind if seen[kind] == 1 else f"{kind}-{seen[kind]}")
    return names


def _with_neighbours(site: SiteDesign, others: Sequence[str]) -> SiteDesign:
    """Link each home page to the next two sites, so that a crawl must observe its scope."""
    home = site.pages["/"]
    links = tuple(
        Link(Place(other, path), f"{text} {other}")
        for other in others
        for path, text in (("/", "Our neighbour"), ("/about.html", "About our neighbour"))
    )
    # The home page must grow with its links to have room for them.
    grown = {
        path: msgspec.structs.replace(
            page, links=page.links + links, size_bytes=page.size_bytes + 200 * len(links)
        )
        for path, page in site.pages.items()
        if page is home or page.copy_of == "/"
    }
    return msgspec.structs.replace(site, pages={**site.pages, **grown})
