"""The kinds of values that a key of the job file can have: how each is written, read and checked.

A `Kind` is what the schema, the documentation and the error texts say about a value, so that the check and
its description cannot differ. Reading gives a plain number in a base unit (seconds, bytes, bytes per second)
or the text in its normal form, or raises UnitError, which says what is wrong and what to write instead.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import math
import re
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from headway.errors import JobError, UnitError
from headway.http.models import parse_proxy
from headway.pages.extract import check_xpath, css_to_xpath, make_extractor, xpath_of
from headway.pages.url import page_of
from headway.planning.policies import check_policy
from headway.policy.ordering import check_ordering, make_scorer
from headway.policy.timetable import DAY_MINUTES, parse_days, parse_hours
from headway.units import Bytes, BytesPerSecond, Instant, Seconds, parse_duration, parse_rate, parse_size

Duration: TypeAlias = str | float | dt.timedelta
"""How long: "6 h", a number of seconds, or a timedelta."""
Deadline: TypeAlias = str | float | dt.timedelta | dt.datetime | dt.time
"""By when: a duration from the start, "07:30" or a time, "2030-01-31T07:30" or a datetime."""

LONGEST_S = 100 * 365 * 86400.0
"""A hundred years: a longer duration is a mistake."""
LARGEST = 2**63 - 1
"""The largest whole number that the store can hold."""


def parse_rate_or_zero(text: str) -> BytesPerSecond:
    return BytesPerSecond(0.0) if text.strip() == "0" else parse_rate(text)


_MEDIA_TYPE = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+", re.ASCII)
_VISIBLE = re.compile(r"[\x20-\x7e]+")
_CLOCK_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """What a value can be. `read` turns a value as written into the value that the crawl works with."""

    noun: str
    """As in "expected a duration"."""
    example: Any
    plural: str = ""
    types: tuple[type, ...] = (str,)
    """The TOML types that are accepted."""
    parse: Callable[[Any], Any] = lambda value: value
    unit: str = ""
    """Of a number that is written without one; empty where that would be a mistake."""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()

    def read(self, value: Any, example: Any = None) -> Any:
        """Raises UnitError (or another HeadwayError) when the value is not of this kind. `example` is a value
        of the key, for the error text."""
        result = self.parse(value)
        if problem := self._out_of_range(result):
            expected = f"{self.noun} ({self.range()})" if self.range() else self.noun
            shown = toml(self.example if example is None else example)
            raise UnitError(f"{_shown(value)} {problem}; write {expected} such as {shown}")
        return result

    def _out_of_range(self, number: Any) -> str:
        if isinstance(number, float) and not math.isfinite(number):
            return "is not a finite number"
        if self.least is not None and number < self.least:
            return "is too small"
        if self.above is not None and not number > self.above:
            return "is too small"
        if self.most is not None and number > self.most:
            return "is more than a hundred years" if self.most == LONGEST_S else "is too large: 2^63 or more"
        return ""

    def range(self) -> str:
        """Which values are accepted, for error texts and the documentation."""
        if self.choices:
            return ", ".join(map(toml, self.choices))
        return f"{self.least:g} or more" if self.least is not None else "above 0" if self.above == 0 else ""

    def json_schema(self) -> dict[str, Any]:
        """Without bounds on quantities that are written as text: JSON Schema cannot compare them."""
        if self.choices:
            return {"enum": list(self.choices)}
        if object in self.types:
            return {}
        names = {str: "string", bool: "boolean", int: "integer", float: "number"}
        kinds = [names[kind] for kind in self.types if not (kind is int and float in self.types)]
        schema: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
        if set(self.types) - {str, bool}:
            schema |= {} if self.least is None else {"minimum": self.least}
            schema |= {} if self.above is None else {"exclusiveMinimum": self.above}
        return schema


def toml(value: Any) -> str:
    """A value as it is written in a job file."""
    if isinstance(value, dict):
        pairs = ", ".join(
            f"{key if re.fullmatch(r'[A-Za-z0-9_-]+', key) else toml(key)} = {toml(item)}"
            for key, item in value.items()
        )
        return f"{{ {pairs} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    return msgspec.json.encode(value).decode()


def given(value: Any) -> str:
    """What was written in the place of what was expected, for an error text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"the text {_shown(value)}"
    if isinstance(value, int | float):
        return f"the number {value}"
    return (
        "a table"
        if isinstance(value, dict)
        else "a list"
        if isinstance(value, list | tuple)
        else _shown(value)
    )


def as_written(value: Any) -> Any:
    """A Python or TOML value for a duration or a deadline, as the text that the run folder stores.

    Raises UnitError for a number that is no length of time.
    """
    if isinstance(value, dt.timedelta):
        value = value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value <= LONGEST_S:
            raise UnitError(f"{value!r} is not a number of seconds between 0 and a hundred years")
        return f"{value!r} s"
    return value.isoformat() if isinstance(value, dt.date | dt.time) else value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


# -- quantities -------------------------------------------------------------------------------------------

RATE = Kind(noun="a rate", example="5 Mbit/s", parse=parse_rate, above=0)
RATE_OR_NONE = Kind(noun="a rate, or 0 for a pause", example="5 Mbit/s", parse=parse_rate_or_zero, least=0)
SIZE = Kind(noun="a size", example="1 GB", parse=parse_size, above=0, most=LARGEST)
_LENGTH = Kind(
    noun="a duration",
    example="15 s",
    types=(str, float, int),
    parse=lambda value: parse_duration(as_written(value)),
    unit="seconds",
    most=LONGEST_S,
)
PAUSE = msgspec.structs.replace(_LENGTH, least=0)
TIMEOUT = msgspec.structs.replace(_LENGTH, above=0)
COUNT = Kind(noun="a whole number", example=100, types=(int,), least=1, most=LARGEST)
DEPTH = msgspec.structs.replace(COUNT, noun="a number of links from a seed", least=0, example=3)
WEIGHT = Kind(noun="a number", example=2.0, types=(float, int), above=0)
FLAG = Kind(noun="true or false", example=True, types=(bool,))
SCORE = Kind(noun="a number", plural="numbers", example=10, types=(float, int))
TEXT = Kind(noun="text", plural="texts", example="text")
ANYTHING = Kind(noun="a value", plural="values", example="text", types=(object,))


class Rounds(int):
    """How many rounds of a crawl are kept, in place of a size."""


_ROUNDS = re.compile(r"\s*(\d{1,9})\s*(?:rounds?|nights?|x)\s*")


def parse_kept(text: str) -> Rounds | Bytes:
    """ "30 rounds" or "20 GB". Raises UnitError."""
    if found := _ROUNDS.fullmatch(text):
        return Rounds(found[1])
    try:
        return parse_size(text)
    except UnitError:
        raise UnitError(
            f"{text!r} is neither a number of rounds nor a size; write '30 rounds' or '20 GB'"
        ) from None


KEPT = Kind(noun="a number of rounds or a size", example="30 rounds", parse=parse_kept, least=1, most=LARGEST)


def parse_mail_address(text: str) -> str:
    if not _MAIL_ADDRESS.fullmatch(text):
        raise UnitError(f"{text!r} is not an e-mail address such as 'you@example.org'")
    return text


_MAIL_ADDRESS = re.compile(
    r"[^\s@,;<>-][^\s@,;<>]{0,62}@[A-Za-z0-9][A-Za-z0-9.-]{0,252}|[A-Za-z_][A-Za-z0-9_-]{0,31}"
)
MAIL = Kind(
    noun="an e-mail address",
    plural="e-mail addresses",
    example="you@example.org",
    parse=parse_mail_address,
)


def parse_webhook(text: str) -> str:
    if page_of(text) is None:
        raise UnitError(f"{_shown(text)} is not an http or https URL such as 'https://example.org/hook'")
    return text


WEBHOOK = Kind(noun="a URL", example="https://example.org/hook", parse=parse_webhook)


def clock_minute(text: str) -> int:
    """The minute of the day of a time such as "22:00"; "24:00" is the end of the day."""
    match = re.fullmatch(r"\s*(\d{1,2}):(\d\d)\s*", text)
    minute = -1 if match is None else int(match[1]) * 60 + int(match[2])
    if match is None or int(match[2]) > 59 or minute > DAY_MINUTES:
        raise UnitError(f"{text!r} is not a time of day such as '22:00'")
    return minute


class LinkPart(float):
    """A bandwidth as a part of what the link carries, above 0 and at most 1."""


_LINK_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*of\s+(?:the\s+)?link\s*")


def parse_bound(text: str) -> BytesPerSecond | LinkPart:
    """ "5 Mbit/s" or "60% of link". Raises UnitError."""
    if "%" not in text:
        return parse_rate(text)
    found = _LINK_PART.fullmatch(text)
    if found is None:
        raise UnitError(
            f"{text!r} is neither a rate nor a part of the link; write '5 Mbit/s' or '60% of link'"
        )
    percent = float(found[1])
    if not 0 < percent <= 100:
        raise UnitError(f"{text!r}: a part of the link is above 0% and at most 100%, such as '60% of link'")
    return LinkPart(percent / 100)


def network(text: str) -> str:
    """An address or a network in canonical form."""
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise UnitError(f"{text!r} is neither an address nor a network such as '192.0.2.0/24'") from None


def contact(text: str) -> str:
    """An e-mail address or a web page. It is sent with each request."""
    is_page = text.startswith(("https://", "http://")) and page_of(text) is not None
    if not text.isascii() or not (
        is_page or re.fullmatch(r"[\w.!#$%&'*+/=?^`{|}~-]+@[\w-]+(\.[\w-]+)+", text)
    ):
        raise UnitError(f"{text!r} is neither an e-mail address nor the URL of a web page")
    return text


CONTACT = Kind(noun="an e-mail address or a URL", example="crawl@example.org", parse=contact)
NETWORK = Kind(noun="a network", example="192.0.2.0/24", parse=network)
BOUND = Kind(noun="a rate or a part of the link", example="5 Mbit/s", parse=parse_bound, above=0)


def rate(text: str) -> BytesPerSecond:
    return BytesPerSecond(RATE.read(text))


def size(text: str) -> Bytes:
    return Bytes(SIZE.read(text))


def pause(value: Duration) -> Seconds:
    """A length of time that may be zero."""
    return Seconds(PAUSE.read(value))


def timeout(value: Duration) -> Seconds:
    return Seconds(TIMEOUT.read(value))


def count(number: int) -> int:
    return int(COUNT.read(number))


def deadline_at(value: Deadline, started_at: Instant, zone: dt.tzinfo) -> Instant:
    """The instant that a deadline means for a crawl that starts at `started_at`."""
    text = str(as_written(value)).strip()
    started = dt.datetime.fromtimestamp(started_at, zone)
    if clock := _CLOCK_TIME.fullmatch(text):
        hour, minute, second = (int(part or 0) for part in clock.groups())
        due = started.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return Instant((due if due > started else due + dt.timedelta(days=1)).timestamp())
    if re.match(r"\d{4}-\d\d-\d\d", text):
        try:
            due = dt.datetime.fromisoformat(text)
        except ValueError:
            raise UnitError(_no_deadline(text)) from None
        if due.tzinfo is None:
            due = due.replace(tzinfo=zone)
        length_s = due.timestamp() - started_at
        if length_s <= 0:
            raise UnitError(f"{text!r} is in the past: the crawl starts at {started:%Y-%m-%d %H:%M:%S %z}")
    else:
        try:
            length_s = parse_duration(text)
        except UnitError:
            raise UnitError(_no_deadline(text)) from None
        if length_s <= 0:
            raise UnitError(f"{text!r} leaves no time at all; a deadline must be after the start")
    if length_s > LONGEST_S:
        raise UnitError(f"{text!r} is more than a hundred years away; leave it out to have no deadline")
    return Instant(started_at + length_s)


def _no_deadline(text: str) -> str:
    return f"{text!r} is not a deadline such as '2 h', '07:30' or '2030-01-31T07:30'"


DEADLINE = Kind(noun="a deadline", example="2 h", types=(str, float, int), unit="seconds")
"""Read by `deadline_at` when the start is known."""

# -- texts ------------------------------------------------------------------------------------------------


def user_agent(text: str) -> str:
    """It is sent as a header; its first word is matched against robots.txt."""
    if not _VISIBLE.fullmatch(text) or text != text.strip():
        raise UnitError(
            f"{text!r} is not one line of plain ASCII such as 'mybot/1.0 (+https://example.org/bot)'"
        )
    return text


def proxy(url: str) -> str:
    try:
        parse_proxy(url)
    except JobError:
        raise UnitError(
            f"{without_login(url)!r} is not a proxy such as 'http://proxy.example:3128'; "
            "only http:// proxies are supported (they carry https as well)"
        ) from None
    return url


def without_login(url: str) -> str:
    """A URL without the user and password that it may contain, for texts that others can read."""
    scheme = url[: url.find("://") + 3] if "://" in url else ""
    return scheme + url.removeprefix(scheme).rpartition("@")[2]


def regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as problem:
        raise UnitError(f"{text!r} is not a regular expression: {problem}") from None
    return text


def _media_type(text: str) -> str:
    if text != "*" and not _MEDIA_TYPE.fullmatch(text):
        raise UnitError(f"{text!r} is not a media type such as 'text/html', nor '*' for all")
    return text.lower()


def _host(text: str) -> str:
    page = page_of(f"http://{text}/") if text and not re.search(r"[/\\?#@\s]", text) else None
    if page is None:
        raise UnitError(f"{text!r} is not a host such as 'www.example.org' or 'www.example.org:8080'")
    return page.site.partition("://")[2]


def _pattern(text: str) -> str:
    """Path rules have the syntax of robots.txt, where a rule starts at the path."""
    if not text.startswith(("/", "*")):
        raise UnitError(f"{text!r} is not a path such as '/papers/' or '*.pdf$'; it begins with / or *")
    return text


def _date(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise UnitError(f"{text!r} is not a date such as '2030-12-25'") from None


def _zone(name: str) -> dt.tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise UnitError(f"{name!r} is not a time zone such as 'Europe/Berlin'") from None


def _prefix(text: str) -> str:
    if not text.startswith("/") or re.search(r"[*$?#\s]", text):
        raise UnitError(f"{text!r} is not the beginning of a path such as '/papers/'; '/' is the whole site")
    return text


def _port(number: int) -> int:
    if number > 65535:
        raise UnitError(f"{number} is not a port; ports are 1 to 65535")
    return number


def secret_reference(text: str) -> str:
    """Where a secret is. The text itself may be one, so it is in no message."""
    place, colon, name = text.partition(":")
    if place not in {"env", "file"} or not colon or not name.strip():
        raise UnitError(
            "write where the secret is, as 'env:NAME' (an environment variable) or 'file:PATH'; a job file is"
            " no place for a password"
        )
    return text


URL = Kind(noun="a URL", plural="URLs", example="https://www.example.org/")
"""Read with its site, since the seeds of a site belong together."""
USER_AGENT = Kind(noun="text", example="mybot/1.0 (+https://example.org/bot)", parse=user_agent)
PROXY = Kind(noun="the URL of a proxy", example="http://proxy.example:3128", parse=proxy)
REGEX = Kind(noun="a regular expression", example=r"\d+", parse=regex)
MEDIA_TYPE = Kind(noun="a media type", plural="media types", example="text/html", parse=_media_type)
HOST = Kind(noun="a host", plural="hosts", example="www.example.org", parse=_host)
SUFFIX = Kind(
    noun="a domain",
    plural="domains",
    example=".example.org",
    parse=lambda text: _host(text.removeprefix(".")),
)
PATTERN = Kind(noun="a path pattern", plural="path patterns", example="/papers/", parse=_pattern)
PREFIX = Kind(noun="the beginning of a path", example="/papers/", parse=_prefix)
SECRET = Kind(noun="the place of a secret", example="env:SITE_LOGIN", parse=secret_reference)
PORT = Kind(noun="a port", plural="ports", example=8080, types=(int,), least=1, parse=_port)
DATE = Kind(noun="a date", plural="dates", example="2030-12-25", parse=_date)
ZONE = Kind(noun="a time zone", example="Europe/Berlin", parse=_zone)
DAYS = Kind(noun="a list of days", example="mon-fri", parse=parse_days)
CLOCK = Kind(noun="a time of day", example="22:00", parse=clock_minute)
HOURS = Kind(noun="a time range", example="08:00-18:00", parse=parse_hours)
STRATEGY = Kind(noun="an ordering", example="deadline", parse=check_ordering)
POLICY = Kind(noun="a policy", example="headway", parse=check_policy)
EXTRACTOR = Kind(noun="the path of a function", example="mypackage.items:books", parse=make_extractor)
SCORER = Kind(noun="the path of a function", example="mypackage.scores:score", parse=make_scorer)
COUNTRY = Kind(noun="a country", example="DE")
SELECTOR = Kind(noun="a CSS selector or an XPath", plural="selectors", example="h1::text", parse=xpath_of)
CSS = Kind(noun="a CSS selector", example="h1::text", parse=css_to_xpath)
XPATH = Kind(noun="an XPath", example="//h1", parse=check_xpath)


def choice(*names: str) -> Kind:
    return Kind(noun="one of the choices", example=names[0], choices=names)


# -- the calendar -----------------------------------------------------------------------------------------


def machine_zone() -> dt.tzinfo:
    """The machine's own time zone, with its summer time, which a fixed offset does not have."""
    try:
        with Path("/etc/localtime").open("rb") as file:
            return zoneinfo.ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return dt.datetime.now().astimezone().tzinfo or dt.UTC


def check_type(kind: Kind, value: Any, name: str, example: Any) -> None:
    """Raises UnitError when a value has a type that this kind does not have, or is none of its choices."""
    if isinstance(value, kind.types) and (type(value) is not bool or {bool, object} & set(kind.types)):
        if kind.choices and value not in kind.choices:
            raise UnitError(f"{_shown(value)} is none of {', '.join(map(repr, kind.choices))}")
        return
    shown = f"{name} = {toml(example)}"
    if type(value) in {int, float} and kind.parse in {parse_rate, parse_bound, parse_size}:
        raise UnitError(f"the unit is missing; write it as text, such as {shown}")
    raise UnitError(f"expected {kind.noun} such as {shown}, but got {given(value)}")
