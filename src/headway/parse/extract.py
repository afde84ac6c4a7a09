"""Items out of pages, by rules of CSS and XPath: the same rules in a crawl of headway's own and in Scrapy.

A rule says on which pages it holds, what stands for one item there (the page itself, or each of some
elements), and what its fields are. A page on which no field is found gives no item.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import msgspec

from headway.errors import JobError
from headway.model.page import Site
from headway.parse.charset import decode
from headway.parse.headers import charset_of, media_type_of
from headway.parse.url import page_of
from headway.policy.scope import fits

if TYPE_CHECKING:
    from parsel import Selector

FieldType = Literal["text", "number", "url", "html"]
Value = str | float | int | None
Item = dict[str, Value | list[Value]]

RESERVED = frozenset({"url", "item"})
_HTML = frozenset({"", "text/html", "application/xhtml+xml"})
_LARGEST_BYTES = 16 * 1024 * 1024
_NUMBER = re.compile(r"[-+\u2212]?\d[\d.,\u00a0\u202f' ]*")
_XPATH_BEGINS = ("/", "./", "(", "@", "..")


class Field(msgspec.Struct, frozen=True):
    name: str
    xpath: str
    """CSS has been turned into it."""
    type: FieldType = "text"
    every: bool = False
    """All that match, as a list; else the first."""
    join: str | None = None
    regex: str | None = None
    """What its first group matches, or all of it without one."""
    required: bool = False


class Rule(msgspec.Struct, frozen=True):
    fields: tuple[Field, ...]
    item: str | None = None
    """What its items are called."""
    pages: tuple[str, ...] = ()
    """Paths on which it holds, as in robots.txt; none: on all."""
    each: str | None = None
    """XPath of the elements that are an item each; None: the page is one."""

    def holds_on(self, path: str) -> bool:
        return not self.pages or any(fits(pattern, path) for pattern in self.pages)


class Extractor:
    def __init__(self, rules_by_site: Mapping[Site, Sequence[Rule]]) -> None:
        self._rules = {site: tuple(rules) for site, rules in rules_by_site.items() if rules}
        if self._rules:
            _parsel()

    def __bool__(self) -> bool:
        return bool(self._rules)

    def items(self, url: str, site: Site, content_type: str, body: bytes) -> list[Item]:
        """In the order of the rules and of the document. Never raises on what a page holds."""
        rules = self._rules.get(site)
        if not rules or not body or len(body) > _LARGEST_BYTES or media_type_of(content_type) not in _HTML:
            return []
        path = url.removeprefix(site)
        rules = tuple(rule for rule in rules if rule.holds_on(path))
        if not rules:
            return []
        page = _parsel().Selector(text=decode(body, charset_of(content_type)).text, type="html")
        return [item for rule in rules for item in _items_of(rule, page, url)]


def xpath_of(query: str) -> str:
    """A query as XPath: what begins like XPath is taken for it, all else is CSS. JobError says what is wrong
    with it."""
    return check_xpath(query) if query.strip().startswith(_XPATH_BEGINS) else css_to_xpath(query)


def css_to_xpath(query: str) -> str:
    try:
        translated: str = _parsel().csstranslator.HTMLTranslator().css_to_xpath(query)
    except Exception as problem:  # cssselect has several, and no common one
        raise JobError(f"{query!r} is not a CSS selector: {problem}") from None
    return translated


def check_xpath(query: str) -> str:
    try:
        _parsel().Selector(text="<p></p>", type="html").xpath(query)
    except ValueError as problem:
        raise JobError(f"{query!r} is not an XPath expression: {problem}") from None
    return query


def _items_of(rule: Rule, page: Selector, url: str) -> Iterator[Item]:
    base = _base_of(page, url)
    for part in [page] if rule.each is None else page.xpath(rule.each):
        values = {field.name: _value_of(field, part, base) for field in rule.fields}
        if all(value in (None, []) for value in values.values()):
            continue
        if any(field.required and values[field.name] in (None, []) for field in rule.fields):
            continue
        item: Item = {"url": url}
        if rule.item is not None:
            item["item"] = rule.item
        yield item | values


def _base_of(page: Selector, url: str) -> str:
    """What links on the page are relative to."""
    href = page.xpath("//base/@href").get()
    base = page_of(href.strip(), base=url) if href else None
    return url if base is None else base.url


def _value_of(field: Field, part: Selector, base: str) -> Value | list[Value]:
    found = (_read(field, node, base) for node in part.xpath(field.xpath))
    values = (value for value in found if value is not None)
    if field.join is not None:
        return field.join.join(str(value) for value in values) or None
    return list(values) if field.every else next(values, None)


def _read(field: Field, node: Selector, base: str) -> Value:
    """A node as the field's type has it; None where it has nothing of the kind."""
    raw = node.root
    if field.type == "html":
        text = str(node.get())
    elif isinstance(raw, str | float | int):
        text = _folded(f"{raw:g}" if isinstance(raw, float) else str(raw))
    else:
        text = _folded(str(node.xpath("string()").get() or ""))
    if field.regex is not None:
        match = re.search(field.regex, text)
        if match is None:
            return None
        text = match[1] if match.re.groups and match[1] is not None else match[0]
    if not text:
        return None
    if field.type == "number":
        return number_of(text)
    if field.type == "url":
        page = page_of(text, base=base)
        return page.url if page is not None else None
    return text


def number_of(text: str) -> float | int | None:
    """The first number in a text. Where there are both, the last of comma and point is the decimal one; a
    single one is so unless three digits follow."""
    match = _NUMBER.search(text)
    if match is None:
        return None
    digits = re.sub(r"[\u00a0\u202f' ]", "", match[0]).rstrip(".,").replace("\u2212", "-")
    comma, point = digits.rfind(","), digits.rfind(".")
    last, other = (",", ".") if comma > point else (".", ",")
    if max(comma, point) >= 0:
        digits = digits.replace(other, "")
        whole, _, rest = digits.rpartition(last)
        is_decimal = digits.count(last) == 1 and (len(rest) != 3 or min(comma, point) >= 0 or last == ".")
        digits = f"{whole}.{rest}" if is_decimal else digits.replace(last, "")
    return float(digits) if "." in digits else int(digits)


def _folded(text: str) -> str:
    """With each run of blanks as one, and none at the ends."""
    return " ".join(text.split())


def _parsel() -> ModuleType:
    """An extra, and slow to import."""
    try:
        import parsel
    except ImportError:
        raise JobError(
            "extraction rules need the package parsel; install it with: pip install 'headway[extract]'"
        ) from None
    return parsel
