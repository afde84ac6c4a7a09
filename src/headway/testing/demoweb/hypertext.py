"""A page design made into HTML of exactly its size, in its charset, with its links as they are spelled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape

from headway.testing.demoweb.page import CharsetHint, Layout, Link, LinkKind, PageDesign
from headway.testing.demoweb.site import SiteDesign

_STYLE = (
    "<style>body{font:1rem/1.5 Georgia,serif;max-width:44rem;margin:2rem auto;padding:0 1rem}"
    "footer{color:#666;border-top:1px solid #ccc;margin-top:2rem}</style>\n"
)
FIXED_BYTES = 1_100
"""The most that a page needs beside its text, title and links."""
BYTES_A_LINK = 80
"""The most that a link needs beside its address and text: its element, and an origin."""


def least_size_bytes(page: PageDesign) -> int:
    """A size in which the page surely fits, whatever the ports."""
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
    """Writes the attribute text of a link."""

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
    """What stands before the text, and what behind it."""
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
    """Text of exactly this many bytes; the last line is filled with line feeds, which nobody sees."""
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
