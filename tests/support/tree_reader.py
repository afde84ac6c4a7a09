"""HTML read by way of a tree, to hold our own reader against: `pages.scanner` must give the same elements."""

from __future__ import annotations

from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser

from headway.pages.scanner import Element

_SELECTOR = "a,area,base,frame,iframe,link,meta,title"


def tree_elements(octets: bytes) -> Iterator[Element]:
    """What `scanner.scan` gives, but for anchors without a link, which are given here as well."""
    for node in LexborHTMLParser(octets).css(_SELECTOR):
        name = node.tag or ""
        yield name, {"text": node.text()} if name == "title" else node.attributes
