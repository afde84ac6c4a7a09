"""Scan HTML in one linear pass, without a tree, as UTF-8 bytes. Markup is ASCII, so only the values found
have to be decoded.

It takes a fraction of the time of the fastest tree builder, which may take quadratic time on a hostile page.
It finds the same elements on all but very broken pages, and on some more than a browser would: links in
`<noframes>` and `<template>` count. `_fast.c` does the same in C if headway was built with a compiler.
"""

from __future__ import annotations

import html
import html.entities
import re
from collections.abc import Iterable, Iterator, Mapping

from headway.pages import LET_OTHERS_EVERY, OF_REFERENCE, Work, fast, let_others

Element = tuple[str, Mapping[str, str | None]]
"""The name and attributes of a tag, names in lower case, character references resolved. None is an empty
value. The text of a title is its attribute `text`."""
Found = Element | str
"""An element. A link with no relevant attribute but its href, as nearly all are, is just the href."""

_NAMES = b"a area base frame iframe link meta title script style textarea xmp noembed plaintext"
# A quote opens a value only after an equals sign; a quote that is never closed does not count.
_INSIDE = rb"""(?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+|))*+"""
_PLAIN = rb"""[a-z][a-z0-9:_-]*+="[^"]*+\""""
"""An attribute in the most common syntax."""
_IGNORED_LINK = (
    rb"""link(?:\s++(?!rel=)%b)*+\s++rel="(?:stylesheet|(?:shortcut )?icon|preload|preconnect)\""""
    rb"""(?:\s++%b)*+\s*+/?+>"""
) % (_PLAIN, _PLAIN)
_IGNORED_META = (
    rb"""meta\s++(?:name="(?:author|description|generator|keywords|viewport)"|http-equiv="[cC]ontent-[tT]ype"|"""
    rb"""(?:charset|property)="[^"]*+")(?:\s++(?!name=|http-equiv=)%b)*+\s*+/?+>"""
) % _PLAIN


def _in_either_case(name: str) -> bytes:
    return "".join(f"[{letter}{letter.upper()}]" for letter in name).encode()


_FIRST = "".join(sorted({case for name in _NAMES.decode().split() for case in name[0] + name[0].upper()}))
_ELEMENT = re.compile(
    # A character class rejects most tags immediately, and letters in either case are faster than ignoring
    # case. Irrelevant elements are skipped, and links in the most common syntax are matched in one step.
    rb"<(?=[%b!])" % _FIRST.encode()
    + rb"(?:a(?:\s++(?!href=)%b)*+\s*+>|%b|%b|" % (_PLAIN, _IGNORED_LINK, _IGNORED_META)
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
# The lengths are limited so that a number of a million digits is not converted.
_REFERENCE = re.compile(
    r"&(?:#(?:[xX][0-9a-fA-F]{1,8}|[0-9]{1,10});?|[A-Za-z][A-Za-z0-9]*+(?:;|(?!=)))",
)
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LONGEST_TITLE = 4000
_MARK = ord("!")
_LONG_TAG = 8192
_LONG_PAGE = 262_144
"""Bytes. A longer page is searched a part at a time, so that other threads run in between."""
_READ = frozenset({"charset", "content", "href", "http-equiv", "name", "rel", "src", "type"})
_LONGEST_VALUE = 16_385
"""Bytes of an attribute's value that are decoded: one more than the longest link has."""
_UNITS_AT_ONCE = 200_000
"""Units of work between two calls of `let_others`: some 1 ms."""
_OF_ELEMENT = 50
_START = re.compile(rb"<(?=[%b!])" % _FIRST.encode())


def elements_of(octets: bytes, work: Work | None = None) -> Iterable[Found]:
    """The elements that may have a link or a directive to robots, in document order, as far as `work` allows.
    Raises only what `work` does."""
    work = work or Work()
    if fast is None:
        return scan(octets, work)
    found: list[Found]
    found, position, units = fast.scan(
        octets, unescape_attribute, unescape_text, _LONGEST_TITLE, 0, _UNITS_AT_ONCE
    )
    return _and_the_rest(octets, work, found, position) if work.spend(units) and position >= 0 else found


def _and_the_rest(octets: bytes, work: Work, found: list[Found], position: int) -> Iterator[Found]:
    assert fast is not None
    while True:
        yield from found
        if position < 0:
            return
        let_others()
        found, position, units = fast.scan(
            octets, unescape_attribute, unescape_text, _LONGEST_TITLE, position, _UNITS_AT_ONCE
        )
        if not work.spend(units):
            return


def scan(octets: bytes, work: Work | None = None) -> Iterator[Found]:
    """`elements_of` in Python, as an iterator.

    Linear: an element or comment that is not closed ends the page, as in a browser, so that nothing is
    searched twice.
    """
    work = work or Work()
    position, counted, number = 0, 0, 0
    while position >= 0 and (element := _next_element(octets, position)):
        number += 1
        if not number % LET_OTHERS_EVERY:
            let_others()
        href, tag, inside, end = element.groups()
        start = element.start()
        if octets[start + 1] == _MARK:
            position = _end_of_comment(octets, element.end())
            continue
        before = octets.rfind(b"<", position, start)
        # The match may be in an attribute of another tag: `<img alt="<a href=x>">`.
        if before >= 0 and octets.find(b">", before, start) < 0 and octets[before + 1] in _LETTERS:
            around = _TAG.match(octets, before)
            position = around.end() if around else -1
            continue
        found: Found | None = None
        if href is not None:
            position = element.end()
            found = _value(href)
        elif tag is None:  # an irrelevant element
            position = element.end()
        elif end is None:
            position = -1
        elif (name := tag.decode().lower()) in _RAW_TEXT:
            raw_text = _RAW_TEXT[name].search(octets, element.end())
            if name not in _SILENT:
                found = _with_text(name, inside, octets, element.end(), raw_text)
            position = raw_text.end() if raw_text else -1
        else:
            position = element.end()
            found = name, attributes_of(inside)
        if found is not None:
            yield found
            behind = position if position >= 0 else len(octets)
            # In C only the references of values that are read count. Few pages have others in tags.
            if not work.spend(
                _OF_ELEMENT + behind - counted + OF_REFERENCE * octets.count(b"&", start, element.end())
            ):
                return
            counted = behind
    work.spend(len(octets) - counted)


def _next_element(octets: bytes, position: int) -> re.Match[bytes] | None:
    length = len(octets)
    if length <= _LONG_PAGE:
        return _ELEMENT.search(octets, position)
    while position < length:
        end = min(position + _LONG_PAGE, length)
        begin = _START.search(octets, position, min(end + 1, length))
        if begin is None:
            position = end
            let_others()
        elif element := _ELEMENT.match(octets, begin.start()):
            return element
        else:
            position = begin.end()
    return None


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
    """The attributes between the name and the end of a tag. Of two with the same name the first counts.

    For a very long tag, only the attributes that headway uses are returned.
    """
    found: dict[str, str] = {}
    if len(inside) <= _LONG_TAG:
        for written, double, single, bare in _ATTRIBUTE.findall(inside):
            name = written.decode("utf-8", "replace").lower()
            if name not in found:
                found[name] = _value(double or single or bare)
        return found
    # One at a time: `findall` on a tag of megabytes would block other threads.
    for number, match in enumerate(_ATTRIBUTE.finditer(inside), 1):
        if not number % LET_OTHERS_EVERY:
            let_others()
        name = match[1].decode("utf-8", "replace").lower()
        if name in _READ and name not in found:
            found[name] = _value(match[2] or match[3] or match[4] or b"")
    return found


def _value(value: bytes) -> str:
    if len(value) > _LONGEST_VALUE:
        value = value[:_LONGEST_VALUE]
    text = value.decode("utf-8", "replace")
    return unescape_attribute(text) if "&" in text else text


def unescape_attribute(value: str) -> str:
    """Resolve character references as in an attribute: `&reg` in `?a=1&region=2` is not a reference."""
    return _REFERENCE.sub(_resolved, value)


def unescape_text(text: str) -> str:
    return _REFERENCE.sub(_resolved, text) if "&" in text else text


def _resolved(match: re.Match[str]) -> str:
    reference = match[0]
    if reference[1] == "#":
        return html.unescape(reference)
    return html.entities.html5.get(reference[1:], reference)


def _end_of_comment(octets: bytes, position: int) -> int:
    """The end of the comment that was opened before `position`, or -1. Without a regular expression, this
    takes a tenth of the time on a comment of megabytes."""
    for short in (b">", b"->"):
        if octets.startswith(short, position):
            return position + len(short)
    end = octets.find(b"-->", position)
    odd_end = octets.find(b"--!>", position, end if end >= 0 else len(octets))
    if odd_end >= 0:
        return odd_end + 4
    return end + 3 if end >= 0 else -1
