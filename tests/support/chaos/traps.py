"""Sites that go on for ever. Each has true pages, also behind the first pages of its trap; all must be found,
and the crawl must come to its end by itself, with the reason for what it left out."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.support.chaos.line import Line, not_found, whole
from tests.support.chaos.site import ChaosSite, Script

from headway.model.page import Kind

_VOCABULARY = tuple(
    f"{first}{second}"
    for first, second in itertools.product(
        ("lan", "mor", "tes", "ril", "gan", "vol", "pes", "kur", "din", "sal", "ber", "tom"),
        ("da", "ve", "lo", "mi", "sur", "ten", "ka", "pon", "ra", "sti", "gle", "zu"),
    )
)
_WEEK = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
_DAYS = " ".join(map(str, range(1, 32)))
TRUE_PAGES = 24
_HIDDEN = 3
"""So many of the true pages are found on the first pages of the trap alone."""


class TrapSite(ChaosSite, frozen=True, kw_only=True):
    trap: str
    """The reason that the crawl must give."""

    @property
    def true_paths(self) -> frozenset[str]:
        return frozenset({"/", "/after", *map(_article, range(TRUE_PAGES))})


def _article(number: int) -> str:
    return f"/article/{_VOCABULARY[number]}.html"


def _page(title: str, text: str, links: Iterable[str]) -> bytes:
    anchors = " ".join(f'<a href="{href}">{href.rpartition("/")[2] or "here"}</a>' for href in links)
    return f"<!doctype html><title>{title}</title><h1>{title}</h1><p>{text}</p><p>{anchors}</p>".encode()


def _story(name: str, words: int = 120) -> str:
    """Always the same words for a name, and others for another."""
    dice = random.Random(name)
    return " ".join(dice.choices(_VOCABULARY, k=words))


def _with_articles(entrance: Iterable[str], trap: Script) -> Script:
    """A home page with most of the articles and the way into the trap; the trap answers for the rest."""
    listed = [_article(number) for number in range(TRUE_PAGES - _HIDDEN)]
    articles = {_article(number) for number in range(TRUE_PAGES)}
    home = _page("Home", _story("home"), [*listed, *entrance])

    async def answer(line: Line) -> None:
        if line.path == "/":
            await line.send(whole(home))
        elif line.path in articles:
            await line.send(whole(_page(line.path, _story(line.path), ["/"])))
        else:
            await trap(line)

    return answer


def _hidden(step: int) -> list[str]:
    """What the first pages of a trap have to offer."""
    return [_article(TRUE_PAGES - _HIDDEN + step)] if 0 <= step < _HIDDEN else []


async def _calendar(line: Line) -> None:
    """Months and their days, all empty but for the first few."""
    parts = line.path.strip("/").split("/")
    if len(parts) == 4:
        text = f"No events on this day. {_WEEK} {parts[3]} of {parts[2]} {parts[1]}. Ask us for a date!"
        await line.send(whole(_page("Calendar", text, [f"/calendar/{parts[1]}/{parts[2]}/"])))
        return
    year, month = int(parts[1]), int(parts[2])
    around = [divmod(year * 12 + month - 1 + step, 12) for step in (-12, -1, 1, 12)]
    links = [f"/calendar/{y}/{m + 1:02}/" for y, m in around]
    links += [f"/calendar/{year}/{month:02}/{day:02}" for day in range(1, 29)]
    text = f"Calendar of {month} {year}. {_WEEK} {_DAYS} There are no events this month."
    await line.send(whole(_page("Calendar", text, links + _hidden((year - 2026) * 12 + month - 1))))


async def _dated_stories(line: Line) -> None:
    """A calendar whose pages have all something else to say: only its dates give it away."""
    parts = line.path.strip("/").split("/")
    year, month = int(parts[1]), int(parts[2])
    following = divmod(year * 12 + month, 12)
    links = [f"/diary/{following[0]}/{following[1] + 1:02}/", *_hidden((year - 2026) * 12 + month - 1)]
    await line.send(whole(_page(f"{month} {year}", _story(line.path), links)))


async def _spiral(line: Line) -> None:
    """A relative link where an absolute one was meant."""
    step = line.path.count("/") - 2
    text = "All about our services. " + _story("services")
    await line.send(whole(_page("Services", text, ["services/", "more/", *_hidden(step)])))


async def _sessions(line: Line) -> None:
    """A shop that knows its guests by a number in each address."""
    path, _, query = line.path.partition("?")
    number = int(path.removeprefix("/room/") or 0) if path.startswith("/room/") else -1
    if not 0 <= number < 30:
        await line.send(not_found())
        return
    links = []
    for room in range(30):
        token = f"{zlib.crc32(f'{query}{room}{number}'.encode()):08x}{number:04x}{room:04x}{len(query):04x}"
        links.append(f"/room/{room}?lang=en&PHPSESSID={token}")
    await line.send(whole(_page(f"Room {number}", _story(f"room {number}"), links + _hidden(number))))


async def _lost(line: Line) -> None:
    """Any address gets the same page, which has suggestions."""
    name = line.path.rpartition("/")[2]
    dice = random.Random(line.path)
    words = [f"{one}-{two}" for one, two in zip(*[dice.choices(_VOCABULARY, k=4)] * 2, strict=True)]
    step = int(name) if name.isdecimal() else _HIDDEN
    links = [f"/lost/{word}-{dice.choice(_VOCABULARY)}" for word in words] + _hidden(step)
    text = f"We are sorry, but {name} could not be found. " + _story("sorry")
    await line.send(whole(_page("Sorry", text, links)))


_FACETS = {
    "colour": ("red", "green", "blue", "black", "white"),
    "size": ("s", "m", "l", "xl"),
    "brand": ("acme", "umbrella", "initech", "hooli"),
    "price": ("low", "mid", "high"),
    "sort": ("name", "price", "new"),
    "view": ("list", "grid", "table"),
}


async def _shop(line: Line) -> None:
    """Every choice can be combined with every other: some 5,000 lists of the same forty things."""
    chosen = dict(parse_qsl(urlsplit(line.path).query))
    links = [
        "/shop?" + urlencode({**chosen, facet: value})
        for facet, values in _FACETS.items()
        for value in values
        if chosen.get(facet) != value
    ]
    seed = " ".join(f"{name}={value}" for name, value in sorted(chosen.items()))
    await line.send(whole(_page("Shop", _story(seed, 40), links + _hidden(len(chosen) - 1))))


async def _numbers(line: Line) -> None:
    """Each thing leads to the next twenty, and there is hardly anything to be said of any."""
    number = int(line.path.removeprefix("/thing/"))
    links = [f"/thing/{number + step}" for step in range(1, 21)] + _hidden(number)
    text = f"This is number {number}. " + _story("thing", 60)
    await line.send(whole(_page("A thing", text, links)))


def _trap(name: str, does: str, reason: str, entrance: Iterable[str], answer: Script) -> TrapSite:
    script = _with_articles(entrance, answer)
    return TrapSite(name=name, does=does, bad=Kind.FETCHED, answer=script, trap=f"trap: {reason}")


SITES = (
    _trap(
        "trap-calendar", "has a calendar without end", "endless calendar", ["/calendar/2026/01/"], _calendar
    ),
    _trap(
        "trap-diary",
        "has a diary of the future, without end",
        "endless calendar",
        ["/diary/2026/01/"],
        _dated_stories,
    ),
    _trap("trap-spiral", "has a path that leads into itself", "repeating path", ["/services/"], _spiral),
    _trap(
        "trap-sessions",
        "has a new session id in every link",
        "session id",
        [f"/room/{number}?lang=en&PHPSESSID=0" for number in range(3)],
        _sessions,
    ),
    _trap(
        "trap-soft-404",
        "has the same page at any address",
        "same page everywhere",
        [f"/lost/{number}" for number in range(_HIDDEN)],
        _lost,
    ),
    _trap(
        "trap-combinations",
        "lets six choices be combined",
        "combined parameters",
        ["/shop?colour=red", "/shop?size=m&sort=name", "/shop?brand=acme&price=low&view=list"],
        _shop,
    ),
    _trap(
        "trap-numbers",
        "counts its pages without end",
        "endless numbering",
        ["/thing/0", "/thing/1"],
        _numbers,
    ),
)
TRAPS = {site.name: site for site in SITES}
