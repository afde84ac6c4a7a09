"""HTML read in one linear pass, without a tree.

For pages on which a tree builder may take quadratic time. It finds the same elements on all but the most
broken pages, and more than a browser would on some: links within `<noframes>` and `<template>` count.
"""

from __future__ import annotations

import html
import html.entities
import re
from collections.abc import Iterator, Mapping

Element = tuple[str, Mapping[str, str | None]]
"""A tag's name and attributes, names in lower case, character references resolved; None stands for an
empty value. The text of a title comes as its attribute `text`."""

_START = re.compile(
    r"<(?:(a|area|base|frame|iframe|link|meta|title|script|style|textarea|xmp|noembed|plaintext)(?=[\s/>])|!--)",
    re.IGNORECASE,
)
# A quote opens a value only behind an equals sign; one that is never closed does not count as a quote.
_INSIDE = re.compile(r"""((?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+|))*+)>""")
_RAW_TEXT = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("iframe", "noembed", "script", "style", "textarea", "title", "xmp")
}
_SILENT = frozenset({"noembed", "script", "style", "textarea", "xmp"})
_ATTRIBUTE = re.compile(
    r"""([^\s/>=][^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]*+)))?""",
)
# The lengths keep a number of a million digits from being reckoned out.
_REFERENCE = re.compile(
    r"&(?:#(?:[xX][0-9a-fA-F]{1,8}|[0-9]{1,10});?|[A-Za-z][A-Za-z0-9]*+(?:;|(?!=)))",
)
_LONGEST_TITLE = 1000
_LONG_TAG = 8192
_READ = frozenset({"charset", "content", "href", "http-equiv", "name", "rel", "src", "type"})
_LONGEST_ESCAPED = 524_288
"""Characters. What is written in more is no link, whatever it stands for."""


def scan(text: str) -> Iterator[Element]:
    """The elements that may hold a link or a word to robots, in document order. Never raises.

    Linear: what has no end ends the page, as it does in a browser, so that nothing is searched twice.
    """
    position = 0
    while start := _START.search(text, position):
        if start[1] is None:
            position = _behind_comment(text, start.end())
            if position < 0:
                return
            continue
        if _is_within_tag(text, position, start.start()):
            position = start.end()
            continue
        inside = _INSIDE.match(text, start.end())
        name = start[1].lower()
        if inside is None or name == "plaintext":
            return
        position = inside.end()
        raw_text_end = None
        if name in _RAW_TEXT:
            raw_text_end = _RAW_TEXT[name].search(text, position)
        if name not in _SILENT:
            attributes = attributes_of(inside[1])
            if name == "title":
                title_end = raw_text_end.start() if raw_text_end else len(text)
                attributes["text"] = unescape_text(text[position : min(title_end, position + _LONGEST_TITLE)])
            yield name, attributes
        if name in _RAW_TEXT:
            if raw_text_end is None:
                return
            position = raw_text_end.end()


def attributes_of(inside: str) -> dict[str, str]:
    """The attributes written between a tag's name and its end. Of two with one name the first counts.

    Of a tag beyond measure only those that we read are given.
    """
    found: dict[str, str] = {}
    is_long = len(inside) > _LONG_TAG
    # One at a time, not all at once: on a tag of megabytes that would keep the interpreter from others.
    for match in _ATTRIBUTE.finditer(inside):
        name = match[1].lower()
        if name in found or (is_long and name not in _READ):
            continue
        value = match[2] or match[3] or match[4] or ""
        found[name] = unescape_attribute(value) if "&" in value else value
    return found


def unescape_attribute(value: str) -> str:
    """Character references resolved as in an attribute, where `&reg` in `?a=1&region=2` stands for itself."""
    if len(value) > _LONGEST_ESCAPED:
        return value
    return _REFERENCE.sub(_resolved, value)


def unescape_text(text: str) -> str:
    return _REFERENCE.sub(_resolved, text) if "&" in text else text


def _resolved(match: re.Match[str]) -> str:
    reference = match[0]
    if reference[1] == "#":
        return html.unescape(reference)
    return html.entities.html5.get(reference[1:], reference)


def _behind_comment(text: str, position: int) -> int:
    """Where the comment that was opened before `position` is over, or -1. Searched without a pattern, which
    takes a tenth of the time on a comment of megabytes."""
    for short in (">", "->"):
        if text.startswith(short, position):
            return position + len(short)
    end = text.find("-->", position)
    odd_end = text.find("--!>", position, end if end >= 0 else len(text))
    if odd_end >= 0:
        return odd_end + 4
    return end + 3 if end >= 0 else -1


def _is_within_tag(text: str, since: int, position: int) -> bool:
    """Whether what looks like a tag stands in another tag's attribute, as in `<img alt="<a href=x>">`."""
    before = text.rfind("<", since, position)
    return before >= 0 and text[before + 1 : before + 2].isalpha() and text.find(">", before, position) < 0
