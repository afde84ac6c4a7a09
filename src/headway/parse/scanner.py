"""HTML read in one linear pass, without a tree.

It takes a fraction of the time of the quickest tree builder, which on a hostile page may take quadratic time,
and finds the same elements on all but the most broken pages; on some, more than a browser would: links within
`<noframes>` and `<template>` count. `_fast.c` does the same in C, where headway was built with a compiler.
"""

from __future__ import annotations

import html
import html.entities
import re
from collections.abc import Iterable, Iterator, Mapping

from headway.parse.compiled import fast

Element = tuple[str, Mapping[str, str | None]]
"""A tag's name and attributes, names in lower case, character references resolved; None stands for an
empty value. The text of a title comes as its attribute `text`."""

_NAMES = "a area base frame iframe link meta title script style textarea xmp noembed plaintext"
# A quote opens a value only behind an equals sign; one that is never closed does not count as a quote.
_INSIDE = r"""(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+|))*+"""
_PLAIN = r"""[a-z][a-z0-9:_-]*+="[^"]*+\""""
"""An attribute as most people write it."""
_STYLE = (
    rf"""link(?:\s++(?!rel=){_PLAIN})*+\s++rel="(?:stylesheet|(?:shortcut )?icon|preload|preconnect)\""""
    rf"""(?:\s++{_PLAIN})*+\s*+/?+>"""
)
_REMARK = (
    r"""meta\s++(?:name="(?:author|description|generator|keywords|viewport)"|http-equiv="[cC]ontent-[tT]ype"|"""
    rf"""(?:charset|property)="[^"]*+")(?:\s++(?!name=|http-equiv=){_PLAIN})*+\s*+/?+>"""
)
_ELEMENT = re.compile(
    # A class rejects most tags at once, and letters in either case cost less than ignoring case. What says
    # nothing to us is passed over, and links as most people write them are taken in one step.
    rf"""<(?=[{"".join(sorted({case for name in _NAMES.split() for case in name[0] + name[0].upper()}))}!])"""
    rf"""(?:a(?:\s++(?!href=){_PLAIN})*+\s*+>|{_STYLE}|{_REMARK}|"""
    rf"""a(?:\s++(?!href=|rel=){_PLAIN})*+\s++href="([^"]*+)"(?:\s++(?!rel=){_PLAIN})*+\s*+>|"""
    rf"""({"|".join("".join(f"[{it}{it.upper()}]" for it in name) for name in _NAMES.split())})(?=[\s/>])"""
    rf"""({_INSIDE})(>)?|!--)"""
)
_TAG = re.compile(rf"<[A-Za-z]{_INSIDE}>")
_RAW_TEXT = {
    name: re.compile(rf"(?ai:</{name})(?=[\s/>])")
    for name in ("iframe", "noembed", "script", "style", "textarea", "title", "xmp")
} | {"plaintext": re.compile(r"(?!)")}
_SILENT = frozenset({"noembed", "plaintext", "script", "style", "textarea", "xmp"})
_ATTRIBUTE = re.compile(
    r"""([^\s/>=][^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]*+)))?""",
)
# The lengths keep a number of a million digits from being reckoned out.
_REFERENCE = re.compile(
    r"&(?:#(?:[xX][0-9a-fA-F]{1,8}|[0-9]{1,10});?|[A-Za-z][A-Za-z0-9]*+(?:;|(?!=)))",
)
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LONGEST_TITLE = 1000
_LONG_TAG = 8192
_LONGEST_IN_C = 262_144
"""Characters. C code lets nobody else run: a page beyond this would hold up all sites for milliseconds."""
_READ = frozenset({"charset", "content", "href", "http-equiv", "name", "rel", "src", "type"})
_LONGEST_ESCAPED = 524_288
"""Characters. What is written in more is no link, whatever it stands for."""


def elements_of(text: str) -> Iterable[Element]:
    """The elements that may hold a link or a word to robots, in document order. Never raises."""
    if fast is None or len(text) > _LONGEST_IN_C:
        return scan(text)
    elements: list[Element] = fast.scan(text, unescape_attribute, unescape_text, _LONGEST_TITLE)
    return elements


def scan(text: str) -> Iterator[Element]:
    """The same, one after the other.

    Linear: what has no end ends the page, as it does in a browser, so that nothing is searched twice.
    """
    position = 0
    while position >= 0 and (element := _ELEMENT.search(text, position)):
        href, name, inside, end = element.groups()
        start = element.start()
        if text[start + 1] == "!":
            position = _behind_comment(text, element.end())
            continue
        before = text.rfind("<", position, start)
        # What looks like a tag may stand in another's attribute: `<img alt="<a href=x>">`.
        if before >= 0 and text.find(">", before, start) < 0 and text[before + 1] in _LETTERS:
            around = _TAG.match(text, before)
            position = around.end() if around else -1
        elif href is not None:
            position = element.end()
            yield "a", {"href": unescape_attribute(href) if "&" in href else href}
        elif name is None:  # it says nothing to us
            position = element.end()
        elif end is None:
            position = -1
        elif name.lower() in _RAW_TEXT:
            raw_text = _RAW_TEXT[name.lower()].search(text, element.end())
            if name.lower() not in _SILENT:
                yield _with_text(name.lower(), inside, text, element.end(), raw_text)
            position = raw_text.end() if raw_text else -1
        else:
            position = element.end()
            yield name.lower(), attributes_of(inside)


def _with_text(
    name: str, inside: str, text: str, begin: int, raw_text: re.Match[str] | None
) -> tuple[str, dict[str, str]]:
    attributes = attributes_of(inside)
    if name == "title":
        end = raw_text.start() if raw_text else len(text)
        attributes["text"] = unescape_text(text[begin : min(end, begin + _LONGEST_TITLE)])
    return name, attributes


def attributes_of(inside: str) -> dict[str, str]:
    """The attributes written between a tag's name and its end. Of two with one name the first counts.

    Of a tag beyond measure only those that we read are given.
    """
    found: dict[str, str] = {}
    if len(inside) <= _LONG_TAG:
        for written, double, single, bare in _ATTRIBUTE.findall(inside):
            name = written.lower()
            if name not in found:
                value = double or single or bare
                found[name] = unescape_attribute(value) if "&" in value else value
        return found
    # One at a time, not all at once: on a tag of megabytes that would keep the interpreter from others.
    for match in _ATTRIBUTE.finditer(inside):
        name = match[1].lower()
        if name in _READ and name not in found:
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
