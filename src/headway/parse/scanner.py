"""HTML read in one linear pass, without a tree, as octets of UTF-8: all that markup is made of is ASCII, and
stands for itself there, so that only what is taken out of a page need be decoded.

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
from headway.parse.turns import LET_OTHERS_EVERY, let_others

Element = tuple[str, Mapping[str, str | None]]
"""A tag's name and attributes, names in lower case, character references resolved; None stands for an
empty value. The text of a title comes as its attribute `text`."""
Found = Element | str
"""A link of which nothing but its href matters, as nearly all are, comes as that."""

_NAMES = b"a area base frame iframe link meta title script style textarea xmp noembed plaintext"
# A quote opens a value only behind an equals sign; one that is never closed does not count as a quote.
_INSIDE = rb"""(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+|))*+"""
_PLAIN = rb"""[a-z][a-z0-9:_-]*+="[^"]*+\""""
"""An attribute as most people write it."""
_STYLE = (
    rb"""link(?:\s++(?!rel=)%b)*+\s++rel="(?:stylesheet|(?:shortcut )?icon|preload|preconnect)\""""
    rb"""(?:\s++%b)*+\s*+/?+>"""
) % (_PLAIN, _PLAIN)
_REMARK = (
    rb"""meta\s++(?:name="(?:author|description|generator|keywords|viewport)"|http-equiv="[cC]ontent-[tT]ype"|"""
    rb"""(?:charset|property)="[^"]*+")(?:\s++(?!name=|http-equiv=)%b)*+\s*+/?+>"""
) % _PLAIN


def _in_either_case(name: str) -> bytes:
    return "".join(f"[{letter}{letter.upper()}]" for letter in name).encode()


_FIRST = "".join(sorted({case for name in _NAMES.decode().split() for case in name[0] + name[0].upper()}))
_ELEMENT = re.compile(
    # A class rejects most tags at once, and letters in either case cost less than ignoring case. What says
    # nothing to us is passed over, and links as most people write them are taken in one step.
    rb"<(?=[%b!])" % _FIRST.encode()
    + rb"(?:a(?:\s++(?!href=)%b)*+\s*+>|%b|%b|" % (_PLAIN, _STYLE, _REMARK)
    + rb"""a(?:\s++(?!href=|rel=)%b)*+\s++href="([^"]*+)"(?:\s++(?!rel=)%b)*+\s*+>|""" % (_PLAIN, _PLAIN)
    + rb"(%b)(?=[\s/>])" % b"|".join(map(_in_either_case, _NAMES.decode().split()))
    + rb"(%b)(>)?|!--)" % _INSIDE
)
_TAG = re.compile(rb"<[A-Za-z]%b>" % _INSIDE)
_RAW_TEXT = {
    name: re.compile(rb"(?i:</%b)(?=[\s/>])" % name.encode())
    for name in ("iframe", "noembed", "script", "style", "textarea", "title", "xmp")
} | {"plaintext": re.compile(rb"(?!)")}
_SILENT = frozenset({"noembed", "plaintext", "script", "style", "textarea", "xmp"})
_ATTRIBUTE = re.compile(
    rb"""([^\s/>=][^\s/>=]*+)(?:\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s>]*+)))?""",
)
# The lengths keep a number of a million digits from being reckoned out.
_REFERENCE = re.compile(
    r"&(?:#(?:[xX][0-9a-fA-F]{1,8}|[0-9]{1,10});?|[A-Za-z][A-Za-z0-9]*+(?:;|(?!=)))",
)
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LONGEST_TITLE = 4000
_MARK = ord("!")
_LONG_TAG = 8192
_LONGEST_IN_C = 262_144
"""Octets. C code lets nobody else run: a page beyond this would hold up all sites for milliseconds."""
_READ = frozenset({"charset", "content", "href", "http-equiv", "name", "rel", "src", "type"})
_LONGEST_ESCAPED = 524_288
"""Characters. What is written in more is no link, whatever it stands for."""


def elements_of(octets: bytes) -> Iterable[Found]:
    """The elements that may hold a link or a word to robots, in document order. Never raises."""
    if fast is None or len(octets) > _LONGEST_IN_C:
        return scan(octets)
    elements: list[Found] = fast.scan(octets, unescape_attribute, unescape_text, _LONGEST_TITLE)
    return elements


def scan(octets: bytes) -> Iterator[Found]:
    """The same, one after the other.

    Linear: what has no end ends the page, as it does in a browser, so that nothing is searched twice.
    """
    position = 0
    while position >= 0 and (element := _ELEMENT.search(octets, position)):
        href, tag, inside, end = element.groups()
        start = element.start()
        if octets[start + 1] == _MARK:
            position = _behind_comment(octets, element.end())
            continue
        before = octets.rfind(b"<", position, start)
        # What looks like a tag may stand in another's attribute: `<img alt="<a href=x>">`.
        if before >= 0 and octets.find(b">", before, start) < 0 and octets[before + 1] in _LETTERS:
            around = _TAG.match(octets, before)
            position = around.end() if around else -1
        elif href is not None:
            position = element.end()
            yield _said(href)
        elif tag is None:  # it says nothing to us
            position = element.end()
        elif end is None:
            position = -1
        elif (name := tag.decode().lower()) in _RAW_TEXT:
            raw_text = _RAW_TEXT[name].search(octets, element.end())
            if name not in _SILENT:
                yield _with_text(name, inside, octets, element.end(), raw_text)
            position = raw_text.end() if raw_text else -1
        else:
            position = element.end()
            yield name, attributes_of(inside)


def _with_text(
    name: str, inside: bytes, octets: bytes, begin: int, raw_text: re.Match[bytes] | None
) -> tuple[str, dict[str, str]]:
    attributes = attributes_of(inside)
    if name == "title":
        end = raw_text.start() if raw_text else len(octets)
        title = octets[begin : min(end, begin + _LONGEST_TITLE)]
        attributes["text"] = unescape_text(title.decode("utf-8", "replace"))
    return name, attributes


def attributes_of(inside: bytes) -> dict[str, str]:
    """The attributes written between a tag's name and its end. Of two with one name the first counts.

    Of a tag beyond measure only those that we read are given.
    """
    found: dict[str, str] = {}
    if len(inside) <= _LONG_TAG:
        for written, double, single, bare in _ATTRIBUTE.findall(inside):
            name = written.decode("utf-8", "replace").lower()
            if name not in found:
                found[name] = _said(double or single or bare)
        return found
    # One at a time, not all at once: on a tag of megabytes that would keep the interpreter from others.
    for number, match in enumerate(_ATTRIBUTE.finditer(inside), 1):
        if not number % LET_OTHERS_EVERY:
            let_others()
        name = match[1].decode("utf-8", "replace").lower()
        if name in _READ and name not in found:
            found[name] = _said(match[2] or match[3] or match[4] or b"")
    return found


def _said(value: bytes) -> str:
    text = value.decode("utf-8", "replace")
    return unescape_attribute(text) if "&" in text else text


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


def _behind_comment(octets: bytes, position: int) -> int:
    """Where the comment that was opened before `position` is over, or -1. Searched without a pattern, which
    takes a tenth of the time on a comment of megabytes."""
    for short in (b">", b"->"):
        if octets.startswith(short, position):
            return position + len(short)
    end = octets.find(b"-->", position)
    odd_end = octets.find(b"--!>", position, end if end >= 0 else len(octets))
    if odd_end >= 0:
        return odd_end + 4
    return end + 3 if end >= 0 else -1
