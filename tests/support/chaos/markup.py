"""HTML that is deep, wide or long beyond measure, and links that nobody should follow."""

from __future__ import annotations

import functools
from collections.abc import Callable

from tests.support.chaos.line import Line, html, not_found, whole
from tests.support.chaos.site import BAD, ChaosSite, Script

from headway.model.page import Kind

_MEGABYTE = 10**6
_START = b"<!doctype html><title>Much</title>"
_FOUND = b"<a href=/found>found</a>"


def _nested() -> bytes:
    return _START + _FOUND + b"<div>" * 100_000


def _long_attribute() -> bytes:
    return _START + b'<p title="' + b"x" * (10 * _MEGABYTE) + b'">' + _FOUND


def _long_link() -> bytes:
    return _START + b'<a href="/' + b"x" * (10 * _MEGABYTE) + b'">long</a>' + _FOUND


def _many_attributes() -> bytes:
    return _START + b"<a " + b" ".join(b"a%d=1" % number for number in range(200_000)) + b">x</a>" + _FOUND


def _open_tags() -> bytes:
    return _START + _FOUND + b"<a href='" * 500_000


def _open_comment() -> bytes:
    return _START + _FOUND + b"<!-- " * 500_000


def _open_quotes() -> bytes:
    return _START + _FOUND + b"<a b=\"c' d='e\" " * 200_000


def _many_references() -> bytes:
    return _START + b'<a href="/' + b"&amp;" * 400_000 + b'">long</a>' + _FOUND


def _long_title() -> bytes:
    return b"<!doctype html><title>" + b"word " * (2 * _MEGABYTE) + b"</title>" + _FOUND


def _many_tables() -> bytes:
    return _START + _FOUND + b"<table><tr><td>" * 30_000


def _many_links() -> bytes:
    """The one that is found comes first: nobody reads all of them."""
    return _START + _FOUND + b"".join(b"<a href=//h%d.invalid>x</a>" % number for number in range(200_000))


_LONG_PAGES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "nested": ("nests 100,000 deep", _nested),
    "nested-tables": ("nests 30,000 tables", _many_tables),
    "long-attribute": ("has an attribute of 10 MB", _long_attribute),
    "long-link": ("has a link of 10 MB", _long_link),
    "many-attributes": ("has a tag with 200,000 attributes", _many_attributes),
    "open-tags": ("opens 500,000 tags and closes none", _open_tags),
    "open-comment": ("opens 500,000 comments and closes none", _open_comment),
    "open-quotes": ("opens quotes within quotes", _open_quotes),
    "many-references": ("has a link of 400,000 character references", _many_references),
    "many-links": ("links to 200,000 hosts", _many_links),
    "long-title": ("has a title of 10 MB", _long_title),
}


@functools.cache
def _made(make: Callable[[], bytes]) -> bytes:
    return whole(make())


def _long_page(make: Callable[[], bytes]) -> Script:
    async def answer(line: Line) -> None:
        await line.send(_made(make) if line.path == BAD else whole(html("Found")))

    return answer


_TRICKS = (
    "javascript:fetch('/never')",
    "JaVaScRiPt:void(0)",
    "java\tscript:alert(1)",
    "data:text/html,<a href=/never>x</a>",
    "file:///etc/passwd",
    "ftp://127.0.0.1/never",
    "gopher://127.0.0.1:25/_HELO",
    "blob:{origin}/never",
    "view-source:{origin}/never",
    "mailto:never@example.invalid",
    "http://",
    "http:///",
    "http://[::1",
    "http://[fe80::1%25eth0]/never",
    "http://127.0.0.1:99999/never",
    "http://exa mple.invalid/never",
    "http://%00.invalid/never",
    "http://xn--a.invalid/never",
    "//elsewhere.invalid/never",
    "http://elsewhere.invalid\\@127.0.0.1/never",
    "http://\u202e\u2066moc.elgoog.invalid/never",
    "x" * 70_000,
)
"""Links that lead to no page of the site, or to none at all."""

_FOLLOWED = {
    "{host_credentials}/credentials": "/credentials",
    "/control%00%0d%0aInjected:%20yes": "/control%00%0D%0AInjected:%20yes",
    "/tab\there\nand\rthere": "/tabhereandthere",
    "/up/../../../../etc/passwd": "/etc/passwd",
    "/%2e%2e/%2E%2e/up": "/up",
    "/..%2f..%2fetc%2fshadow": "/..%2F..%2Fetc%2Fshadow",
    "\\back\\slash": "/back/slash",
    "/full\uff0fwidth": "/full%EF%BC%8Fwidth",
    "/bidi\u202etxt.exe\u202c": "/bidi%E2%80%AEtxt.exe%E2%80%AC",
    "/zero\u200bwidth\ufeff": "/zero%E2%80%8Bwidth%EF%BB%BF",
    "/lone\ufffdsurrogate": "/lone%EF%BF%BDsurrogate",
    "/a|b{c}^`d[e]": "/a%7Cb%7Bc%7D%5E%60d%5Be%5D",
    "http://127.1:{port}/short-host": "/short-host",
    "http://0x7f000001:{port}/number-host": "/number-host",
    "http://\uff11\uff12\uff17.0.0.1:{port}/wide-digits": "/wide-digits",
}
"""Links as they are written, and the path that is asked for in the end."""


async def _tricky_links(line: Line) -> None:
    if line.path == BAD:
        origin = line.origin
        port = origin.rpartition(":")[2]
        with_credentials = origin.replace("://", "://user:secret@")
        hrefs = [
            href.replace("{origin}", origin)
            .replace("{port}", port)
            .replace("{host_credentials}", with_credentials)
            for href in (*_TRICKS, *_FOLLOWED)
        ]
        anchors = "".join(f'<a href="{href}">x</a>\n' for href in hrefs)
        text = f"<!doctype html><title>Tricks</title>{anchors}"
        await line.send(whole(text.encode()))
    elif line.path not in _FOLLOWED.values():
        await line.send(not_found())
    elif b"\r\nauthorization:" in line.request.lower() or b"\r\ninjected:" in line.request.lower():
        await line.send(whole(html("Told too much"), status="500 Told Too Much"))
    else:
        await line.send(whole(html(f"Page {len(line.path)}", line.path.encode().hex())))


SITES = (
    *(
        ChaosSite(
            name=name,
            does=does,
            bad=Kind.FETCHED,
            answer=_long_page(make),
            prepare=functools.partial(_made, make),
            leads_to={"/found": Kind.FETCHED},
            is_heavy=True,
        )
        for name, (does, make) in _LONG_PAGES.items()
    ),
    ChaosSite(
        name="tricky-links",
        does="links to scripts, files, credentials, controls and Unicode tricks",
        bad=Kind.FETCHED,
        answer=_tricky_links,
        leads_to=dict.fromkeys(_FOLLOWED.values(), Kind.FETCHED),
    ),
)
