"""The bytes of a page: plausible text, HTML of an exact size in its charset, and files of other types."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from html import escape
from random import Random

import brotlicffi
import zstandard

from headway.demoweb.model import (
    HTML_LAYOUTS,
    CharsetHint,
    Layout,
    Link,
    LinkKind,
    PageDesign,
    Place,
    SiteDesign,
)

_ADJECTIVES = (
    *("old", "quiet", "northern", "careful", "broad", "narrow", "painted", "early", "late", "wooden"),
    *("stone", "copper", "restored", "forgotten", "open", "seasonal", "borrowed", "western", "plain"),
    *("winding", "shallow", "patient", "printed", "illustrated", "coastal", "inland", "modest", "useful"),
)
_NOUNS = (
    *("harbour", "atlas", "lantern", "bridge", "orchard", "ledger", "telescope", "archive", "river"),
    *("workshop", "garden", "tower", "railway", "manuscript", "collection", "market", "lighthouse"),
    *("quarry", "meadow", "compass", "observatory", "courtyard", "ferry", "loom", "almanac", "staircase"),
    *("windmill", "vineyard", "catalogue", "reservoir", "chapel", "printing press", "herbarium", "canal"),
)
_PEOPLE = (
    *("the curator", "a visitor", "the keeper", "a young engineer", "the librarian", "an apprentice"),
    *("the town council", "a retired teacher", "the surveyor", "our correspondent", "the harbour master"),
    *("a travelling botanist", "the editor", "the caretaker", "a group of students", "the committee"),
)
_VERBS = (
    *("described", "restored", "measured", "photographed", "catalogued", "visited", "repaired", "lost"),
    *("drew", "reopened", "inherited", "surveyed", "copied", "donated", "defended", "examined", "moved"),
)
_PLACES = (
    *("near the estuary", "behind the town hall", "on the eastern road", "above the valley"),
    *("beside the mill", "under the old arches", "across the square", "at the edge of the forest"),
    *("along the sea wall", "in the upper town", "by the second lock", "next to the reading room"),
)
_TIMES = (
    *("in the spring of 1871", "after the flood", "during the long winter", "before the railway came"),
    *("on a Thursday", "for nearly thirty years", "within a single season", "at the turn of the century"),
    *("every autumn", "in the year of the comet", "shortly after midnight", "to everyone's surprise"),
)
_REASONS = (
    *("because nobody else would", "although the budget was small", "as the minutes record"),
    *("which few had expected", "and the report was never published", "so the plans were redrawn"),
    *("while the weather held", "and two of the drawings survive", "until the funds ran out"),
    *("and the key is still kept there", "though the dates disagree", "as any map of the time shows"),
)
_FOREIGN = (
    *("the café “Zürich”", "a naïve façade", "señor Núñez", "the Ångström gauge", "crème brûlée"),
    *("the Łódź line", "Ærø’s ferry", "the smörgåsbord", "Übersee & Söhne", "the “Café Müller”"),
)
_LATIN_1_ONLY = ("a naïve façade", "señor Núñez", "the Ångström gauge", "crème brûlée", "Übersee & Söhne")
_WINDOWS_1252_ONLY = (*_LATIN_1_ONLY, "the café “Zürich”", "Ærø’s ferry", "a price of 12 €")
_FOREIGN_BY_CHARSET = {"iso-8859-1": _LATIN_1_ONLY, "windows-1252": _WINDOWS_1252_ONLY}


class Writer:
    """Makes up titles and sentences. Two writers with equal generators write the same."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def title(self) -> str:
        pick = self._rng.choice
        form = self._rng.randrange(4)
        if form == 0:
            return f"The {pick(_ADJECTIVES)} {pick(_NOUNS)}"
        if form == 1:
            return f"{pick(_NOUNS).capitalize()} and {pick(_NOUNS)}"
        if form == 2:
            return f"Notes on the {pick(_NOUNS)} {pick(_PLACES)}"
        return f"{pick(_ADJECTIVES).capitalize()} {pick(_NOUNS)}, {pick(_ADJECTIVES)} {pick(_NOUNS)}"

    def sentence(self, charset: str = "") -> str:
        """A sentence; with a charset, some have words that are only readable in it."""
        pick = self._rng.choice
        thing = f"the {pick(_ADJECTIVES)} {pick(_NOUNS)}"
        if charset and self._rng.random() < 0.3:
            thing = pick(_FOREIGN_BY_CHARSET.get(charset, _FOREIGN))
        form = self._rng.randrange(3)
        if form == 0:
            text = f"{pick(_PEOPLE)} {pick(_VERBS)} {thing} {pick(_PLACES)} {pick(_TIMES)}"
        elif form == 1:
            text = f"{pick(_TIMES)}, {pick(_PEOPLE)} {pick(_VERBS)} {thing}, {pick(_REASONS)}"
        else:
            text = f"{thing} stood {pick(_PLACES)}, {pick(_REASONS)}"
        return f"{text[0].upper()}{text[1:]}."


class Sentences:
    """A stock of sentences, from which long texts are drawn quickly."""

    def __init__(self, seed: str, charset: str = "", stock: int = 240) -> None:
        writer = Writer(Random(f"{seed}/sentences/{charset}"))
        self._stock = [writer.sentence(charset) for _ in range(stock)]

    def stream(self, rng: Random) -> Iterator[str]:
        stock, count, uniform = self._stock, len(self._stock), rng.random
        while True:
            yield stock[int(uniform() * count)]


_LINE_CHARS = 78


def plain_text(title: str, sentences: Iterator[str], size_bytes: int) -> bytes:
    lines = [title, "=" * len(title), ""]
    length = sum(len(line) + 1 for line in lines)
    while length < size_bytes:
        lines.append(next(sentences))
        length += len(lines[-1]) + 1
    return "\n".join(lines).encode()[: size_bytes - 1] + b"\n"


def stylesheet(size_bytes: int) -> bytes:
    rules = b"body { font: 1rem/1.5 Georgia, serif; max-width: 44rem; margin: 2rem auto; }\n"
    rules += b"nav a { margin-right: 1rem; }\nh1 { font-weight: normal; }\n"
    return rules + b"/*" + b"-" * (size_bytes - len(rules) - 5) + b"*/\n"


def postscript(title: str, sentences: Iterator[str], size_bytes: int) -> bytes:
    head = f"%!PS-Adobe-3.0\n%%Title: {title}\n%%Pages: 1\n%%EndComments\n"
    head += f"/Times-Roman findfont 18 scalefont setfont\n72 720 moveto ({title}) show\n"
    tail = b"showpage\n%%EOF\n"
    return head.encode() + _comments(sentences, size_bytes - len(head) - len(tail)) + tail


def pdf(title: str, sentences: Iterator[str], size_bytes: int) -> bytes:
    """A page with the title, padded with comment lines, which viewers ignore."""
    text = title.replace("\\", "").replace("(", "").replace(")", "")
    stream = f"BT /F1 18 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
            b" /Resources << /Font << /F1 5 0 R >> >> >>"
        ),
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman >>",
    ]
    out, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"xref\n0 6\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % at for at in offsets)
    trailer = b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%010d\n%%%%EOF\n"
    room = size_bytes - len(out) - len(table) - len(trailer % 0)
    out += _comments(sentences, room)
    return bytes(out) + table + trailer % len(out)


def png(shade: int, size_bytes: int) -> bytes:
    """A grey square of 64 pixels, padded with a text chunk."""
    rows = b"".join(b"\0" + bytes((shade + x + y) % 256 for x in range(64)) for y in range(64))
    head = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0))
    tail = _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")
    comment = b"Comment\0" + b"." * (size_bytes - len(head) - len(tail) - 12 - 8)
    return head + _chunk(b"tEXt", comment) + tail


def empty_zip(size_bytes: int) -> bytes:
    """An archive without entries, padded with its comment."""
    comment = b"." * (size_bytes - 22)
    return b"PK\5\6" + b"\0" * 16 + struct.pack("<H", len(comment)) + comment


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _comments(sentences: Iterator[str], size_bytes: int) -> bytes:
    """Lines of text, each after a %, of exactly this size."""
    lines: list[str] = []
    left = size_bytes
    while left > 0:
        line = f"% {next(sentences)}"[: min(_LINE_CHARS, left - 1)] if left > 1 else ""
        lines.append(line)
        left -= len(line) + 1
    return "".join(f"{line}\n" for line in lines).encode()


_STYLE = (
    "<style>body{font:1rem/1.5 Georgia,serif;max-width:44rem;margin:2rem auto;padding:0 1rem}"
    "footer{color:#666;border-top:1px solid #ccc;margin-top:2rem}</style>\n"
)
FIXED_BYTES = 1_100
"""The most bytes that a page needs besides its text, title and links."""
BYTES_A_LINK = 80
"""The most bytes that a link needs besides its address and text: its element, and an origin."""


def least_size_bytes(page: PageDesign) -> int:
    """A size that is enough for the page, with any ports."""
    chars = FIXED_BYTES + 2 * len(page.title) + len(page.base_href)
    for link in page.links:
        address = link.href or (link.to.path if link.to is not None else "")
        chars += BYTES_A_LINK + 2 * len(address.encode()) + len(link.text)
    return chars * (2 if page.charset.startswith("utf-16") else 1)


def html_page(
    site: SiteDesign, page: PageDesign, origins: Mapping[str, str], sentences: Iterator[str]
) -> bytes:
    encode = _encoder(page.charset)
    bom = {"utf-16": b"\xff\xfe", "utf-8": b"\xef\xbb\xbf"}[page.charset] if _has_bom(page) else b""
    spell = _Speller(site.name, origins)
    before, after = (_frameset if page.layout is Layout.FRAMESET else _article)(site, page, spell)
    head, tail = bom + encode(before), encode(after)
    return head + _paragraphs(sentences, page.size_bytes - len(head) - len(tail), encode) + tail


def _has_bom(page: PageDesign) -> bool:
    return page.charset_hint is CharsetHint.BOM


def _encoder(charset: str) -> Callable[[str], bytes]:
    codec = "utf-16-le" if charset == "utf-16" else charset
    return lambda text: text.encode(codec)


class _Speller:
    """Makes the attribute value of a link."""

    def __init__(self, site: str, origins: Mapping[str, str]) -> None:
        self._site = site
        self._origins = origins
        self._port = origins[site].rpartition(":")[2]

    def __call__(self, link: Link) -> str:
        if link.href:
            return link.href.replace("{port}", self._port)
        if link.to is None:
            return ""
        return escape(link.to.path if link.to.site == self._site else link.to.url(self._origins))


def _head(page: PageDesign, spell: _Speller) -> str:
    parts = ["<!doctype html>\n<html lang=en><head>\n"]
    if page.charset_hint is CharsetHint.META:
        parts.append(f'<meta charset="{page.charset}">\n')
    parts.append(f"<title>{escape(page.title)}</title>\n")
    if page.base_href:
        parts.append(f'<base href="{page.base_href}">\n')
    if page.meta_robots:
        parts.append(f'<meta name="robots" content="{page.meta_robots}">\n')
    for link in page.links:
        if link.kind is LinkKind.REFRESH:
            parts.append(f'<meta http-equiv="refresh" content="30; url={spell(link)}">\n')
        elif link.kind is LinkKind.CANONICAL:
            parts.append(f'<link rel="canonical" href="{spell(link)}">\n')
        elif link.kind is LinkKind.ALTERNATE:
            parts.append(f'<link rel="alternate" type="application/atom+xml" href="{spell(link)}">\n')
        elif link.kind is LinkKind.STYLESHEET:
            parts.append(f'<link rel="stylesheet" href="{spell(link)}">\n')
    parts.append(_STYLE + "</head>\n")
    return "".join(parts)


def _article(site: SiteDesign, page: PageDesign, spell: _Speller) -> tuple[str, str]:
    """The HTML before the text, and after it."""
    before = [f"{_head(page, spell)}<body>\n<h1>{escape(page.title)}</h1>\n"]
    for kind, write in _IN_BODY.items():
        links = [(spell(link), link) for link in page.links if link.kind is kind]
        if links:
            before.append(write(links))
    before.append("<main>\n")
    behind = f"</main>\n<footer>{escape(site.title)}: {escape(site.character)}</footer>\n</body></html>\n"
    return "".join(before), behind


def _frameset(_: SiteDesign, page: PageDesign, spell: _Speller) -> tuple[str, str]:
    frames = "".join(f'<frame src="{spell(link)}">\n' for link in page.links if link.kind is LinkKind.FRAME)
    before = f'{_head(page, spell)}<frameset cols="30%,*">\n{frames}<noframes><body>\n'
    return before, "</body></noframes>\n</frameset></html>\n"


def _list(links: list[tuple[str, Link]]) -> str:
    items = (
        f'<li><a href="{href}"{" rel=nofollow" * link.nofollow}>{escape(link.text)}</a></li>\n'
        for href, link in links
    )
    return f"<nav><ul>\n{''.join(items)}</ul></nav>\n"


def _map(links: list[tuple[str, Link]]) -> str:
    areas = "".join(
        f'<area shape=rect coords="0,0,9,9" alt="{escape(link.text)}" href="{href}">' for href, link in links
    )
    return f"<map name=plan>{areas}</map>\n"


def _images(links: list[tuple[str, Link]]) -> str:
    return "".join(f'<img src="{href}" alt="{escape(link.text)}">\n' for href, link in links)


def _iframes(links: list[tuple[str, Link]]) -> str:
    return "".join(f'<iframe src="{href}" title="{escape(link.text)}"></iframe>\n' for href, link in links)


_IN_BODY: Mapping[LinkKind, Callable[[list[tuple[str, Link]]], str]] = {
    LinkKind.A: _list,
    LinkKind.AREA: _map,
    LinkKind.IMAGE: _images,
    LinkKind.IFRAME: _iframes,
}


def _paragraphs(sentences: Iterator[str], size_bytes: int, encode: Callable[[str], bytes]) -> bytes:
    """Paragraphs of exactly this size, padded with line feeds, which no browser shows."""
    parts: list[bytes] = []
    left = size_bytes
    for count in (5, 1):
        while True:
            text = " ".join(escape(next(sentences), quote=False) for _ in range(count))
            part = encode(f"<p>{text}</p>\n")
            if len(part) > left:
                break
            parts.append(part)
            left -= len(part)
    line_feed = encode("\n")
    return b"".join(parts) + line_feed * (left // len(line_feed))


_SITEMAP_XMLNS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
CHANGED_ON = "2026-11-02"
"""The date of last modification of every page, in sitemaps and feeds."""


def content_of(site: SiteDesign, page: PageDesign, origins: Mapping[str, str]) -> bytes:
    """The body before content coding. It depends on the design and the origins only."""
    if page.copy_of:
        page = site.pages[page.copy_of]
    rng = Random(f"{site.seed}{page.path}")
    if page.layout in HTML_LAYOUTS:
        hint = page.charset if page.charset != "utf-8" else ""
        return html_page(site, page, origins, _sentences(site.seed, hint).stream(rng))
    ascii_text = _sentences(site.seed, "").stream(rng)
    match page.layout:
        case Layout.TEXT:
            return plain_text(page.title, ascii_text, page.size_bytes)
        case Layout.PDF:
            return pdf(page.title, ascii_text, page.size_bytes)
        case Layout.POSTSCRIPT:
            return postscript(page.title, ascii_text, page.size_bytes)
        case Layout.PNG:
            return png(rng.randrange(256), page.size_bytes)
        case Layout.CSS:
            return stylesheet(page.size_bytes)
        case Layout.ZIP:
            return empty_zip(page.size_bytes)
    return _service_file(site, page, origins)


def encoded(content: bytes, coding: str) -> bytes:
    """Apply a content coding. Equal input gives equal bytes."""
    match coding:
        case "gzip":
            return _gzip(content)
        case "deflate":
            return zlib.compress(content, 6)
        case "br":
            compressed: bytes = brotlicffi.compress(content, quality=4)
            return compressed
        case "zstd":
            return zstandard.ZstdCompressor(level=3).compress(content)
    raise ValueError(f"unknown content coding {coding!r}")


def _gzip(content: bytes) -> bytes:
    data = bytearray(gzip.compress(content, 6, mtime=0))
    data[9] = 255  # "unknown system": the default differs between versions of Python
    return bytes(data)


@cache
def _sentences(seed: str, charset: str) -> Sentences:
    return Sentences(seed, charset)


def _service_file(site: SiteDesign, page: PageDesign, origins: Mapping[str, str]) -> bytes:
    match page.layout:
        case Layout.ROBOTS:
            return _robots(site, origins).encode()
        case Layout.FEED:
            return _feed(site, page, origins).encode()
        case Layout.SITEMAP:
            text = _sitemap("urlset", "url", page, origins)
        case Layout.SITEMAP_INDEX:
            text = _sitemap("sitemapindex", "sitemap", page, origins)
        case Layout.REDIRECT:
            return f"<!doctype html>\n<title>Moved</title>\n<p>{escape(page.title)}</p>\n".encode()
        case _:
            raise ValueError(f"no way to render {page.layout}")
    return _gzip(text.encode()) if page.path.endswith(".gz") else text.encode()


def _robots(site: SiteDesign, origins: Mapping[str, str]) -> str:
    lines = [f"# {site.title}"]
    for group in site.robots:
        lines += ["", *(f"User-agent: {agent}" for agent in group.agents)]
        lines += [f"Disallow: {pattern}" for pattern in group.disallow]
        lines += [f"Allow: {pattern}" for pattern in group.allow]
        if group.crawl_delay_s is not None:
            lines.append(f"Crawl-delay: {group.crawl_delay_s:g}")
    lines += ["", *(f"Sitemap: {Place(site.name, path).url(origins)}" for path in site.sitemaps)]
    return "\n".join(lines).rstrip() + "\n"


def _sitemap(outer: str, inner: str, page: PageDesign, origins: Mapping[str, str]) -> str:
    entries = "".join(
        f"<{inner}><loc>{escape(link.to.url(origins))}</loc><lastmod>{CHANGED_ON}</lastmod></{inner}>\n"
        for link in page.links
        if link.to is not None
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{outer} {_SITEMAP_XMLNS}>\n{entries}</{outer}>\n'


def _feed(site: SiteDesign, page: PageDesign, origins: Mapping[str, str]) -> str:
    home = escape(site.home.url(origins))
    entries = "".join(
        f"<entry><title>{escape(link.text)}</title><id>{url}</id>"
        f'<link href="{url}"/><updated>{CHANGED_ON}T08:00:00Z</updated></entry>\n'
        for link in page.links
        if link.to is not None and link.kind is LinkKind.A
        for url in [escape(link.to.url(origins))]
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n'
        f"<title>{escape(site.title)}</title><id>{home}</id>"
        f"<updated>{CHANGED_ON}T08:00:00Z</updated>\n{entries}</feed>\n"
    )
