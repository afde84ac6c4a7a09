"""Extract items from pages by CSS and XPath rules, in headway's own crawls and in Scrapy.

A rule says to which pages it applies, what one item is (the page, or each of some elements), and what its
fields are. A page on which no field is found gives no item.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from headway import plugins
from headway.errors import JobError, install_command
from headway.model.page import Site
from headway.pages.headers import charset_of, decode, media_type_of
from headway.pages.url import page_of
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
_EXACT_DIGITS = 18
"""A whole number with more, sign included, may not fit into 64 bits."""
_XPATH_BEGINS = ("/", "./", "(", "@", "..")


class Field(msgspec.Struct, frozen=True):
    name: str
    xpath: str
    """The query as XPath; CSS has been translated."""
    type: FieldType = "text"
    every: bool = False
    """All matches, as a list; otherwise the first."""
    join: str | None = None
    regex: str | None = None
    """The value is the first group of the match, or the whole match if there is no group."""
    required: bool = False


class Rule(msgspec.Struct, frozen=True):
    fields: tuple[Field, ...] = ()
    item: str | None = None
    """The name of its items."""
    pages: tuple[str, ...] = ()
    """Path patterns of the pages to which it applies, as in robots.txt. Empty: all pages."""
    each: str | None = None
    """XPath of the elements that are one item each; None: the page is one item."""
    function: str | None = None
    """The dotted path of a user's function that returns the items, instead of fields."""

    def holds_on(self, path: str) -> bool:
        return not self.pages or any(fits(pattern, path) for pattern in self.pages)


class Extractor:
    def __init__(self, rules_by_site: Mapping[Site, Sequence[Rule]]) -> None:
        self.rules = {site: tuple(rules) for site, rules in rules_by_site.items() if rules}
        rules = [rule for rules in self.rules.values() for rule in rules]
        self._functions = {name: make_extractor(name) for rule in rules if (name := rule.function)}
        if any(rule.fields for rule in rules):
            _parsel()

    def __bool__(self) -> bool:
        return bool(self.rules)

    def applies_to(self, url: str, site: Site, content_type: str, body: bytes) -> bool:
        """Whether a rule is for such a page."""
        rules = self.rules.get(site)
        if not rules or not body or len(body) > _LARGEST_BYTES or media_type_of(content_type) not in _HTML:
            return False
        path = url.removeprefix(site)
        return any(rule.holds_on(path) for rule in rules)

    @property
    def is_of_this_process(self) -> bool:
        """Whether another process could not find its functions: they were given as objects."""
        return any(plugins.is_given(name) for name in self._functions)

    def items(self, url: str, site: Site, content_type: str, body: bytes) -> list[Item]:
        """The items of a page, in the order of the rules and of the document. The content of a page never
        causes an exception, except PluginError if a user's function raises."""
        if not self.applies_to(url, site, content_type, body):
            return []
        path = url.removeprefix(site)
        rules = tuple(rule for rule in self.rules[site] if rule.holds_on(path))
        text = decode(body, charset_of(content_type)).text
        page: Selector | None = None
        items: list[Item] = []
        for rule in rules:
            if rule.function is not None:
                items += _users_items(rule, self._functions[rule.function], url, text)
            else:
                if page is None:
                    page = _parsel().Selector(text=text, type="html")
                items += _items_of(rule, page, url)
        return items


def make_extractor(name: str) -> Callable[[str, str], Any]:
    """The extractor at a dotted path. JobError if it is not a function of a page's URL and its text."""
    what = "an extractor"
    made = plugins.make(name, is_made=plugins.is_function, what=what)
    try:
        plugins.check_method(made, "__call__", ("url", "html"), what)
    except JobError as problem:
        raise JobError(f"{name!r} cannot be used: {problem}") from None
    return cast("Callable[[str, str], Any]", made)


def _users_items(rule: Rule, function: Callable[[str, str], Any], url: str, text: str) -> list[Item]:
    """The items of a user's function, with the URL and the rule's item name added."""
    named = {"url": url} if rule.item is None else {"url": url, "item": rule.item}
    try:
        items = [{**named, **found} for found in function(url, text)]
        msgspec.json.encode(items)  # so that a value that cannot be stored fails here
    except (Exception, SystemExit) as problem:
        raise plugins.failure(f"the extractor {rule.function}", url, problem) from problem
    return items


def xpath_of(query: str) -> str:
    """A query as XPath. A query that starts like XPath is XPath, any other is CSS. JobError if it is
    invalid."""
    return check_xpath(query) if query.strip().startswith(_XPATH_BEGINS) else css_to_xpath(query)


def css_to_xpath(query: str) -> str:
    try:
        translated: str = _parsel().csstranslator.HTMLTranslator().css_to_xpath(query)
    except Exception as problem:  # cssselect has several exceptions without a common base class
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
    """The base URL of links on the page."""
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
    """The value of a node in the type of the field; None if it has no such value."""
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
    """The first number in a text. If it has commas and points, the last one is the decimal separator. A
    single comma is the decimal separator unless three digits follow."""
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
    if "." not in digits and len(digits) <= _EXACT_DIGITS:
        return int(digits)
    number = float(digits)  # also a whole number that no database and few programs can hold
    return number if math.isfinite(number) else None


def _folded(text: str) -> str:
    """The text with each run of white space as one space, and none at the ends."""
    return " ".join(text.split())


def _parsel() -> ModuleType:
    """Import parsel, which is optional and slow to import."""
    try:
        import parsel
    except ImportError:
        raise JobError(f"extraction rules need the package parsel: {install_command('extract')}") from None
    return parsel
