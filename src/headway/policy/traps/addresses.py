"""What a URL alone gives away of a trap: a path that repeats itself, a session id, a date.

Everything takes time in proportion to the URL's length, whatever it is made of.
"""

from __future__ import annotations

import re
from collections import Counter

LONGEST_PERIOD = 8
REPEATS = 3
MOST_OF_ONE = 4
"""A name that comes so often in one path, in whatever company, is going round in circles as well."""

_LETTER = re.compile(r"[^\W\d_]")
_VARYING = re.compile(r"[0-9a-fA-F]{12,}|\d+")

# Names that nothing but sessions have, and those that need a value that looks like one.
_SURE = r"phpsessid|jsessionid|aspsessionid\w*|cfid|cftoken|zenid|oscsid|xtcsid|sessionid|session_id|sessid"
_LIKELY = r"sid|sess|session|s"
_TOKEN = r"(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{16,}"  # noqa: S105
_SESSION = re.compile(
    rf"(?P<lead>[?&;])(?:(?:{_SURE})=[^&;?#/]*|(?:{_LIKELY})={_TOKEN}(?![\w-]))|/\(S\([a-z0-9]{{16,}}\)\)",
    re.IGNORECASE,
)

_DATE = re.compile(
    r"(?<!\d)(?P<year>[12]\d{3})(?P<between>[-/_.])(?:0[1-9]|1[0-2])(?!\d)"
    r"|[?&;](?:y|yr|year|jahr|annee|anno)=(?P<named>[12]\d{3})(?!\d)",
    re.IGNORECASE,
)


def path_of(url: str, site: str) -> str:
    """Path and query."""
    return url[len(site) :]


def repeats_itself(path: str) -> bool:
    """Whether a run of segments follows itself three times, or one segment comes four times.

    Numbers do not count: /1/1/1/ is somebody's way of counting.
    """
    if path.count("/") < REPEATS:
        return False
    names = path.partition("?")[0].strip("/").split("/")
    if len(set(names)) == len(names):
        return False
    if any(count >= MOST_OF_ONE and _LETTER.search(name) for name, count in Counter(names).items()):
        return True
    return any(_has_run(names, period) for period in range(1, min(LONGEST_PERIOD, len(names) // REPEATS) + 1))


def _has_run(names: list[str], period: int) -> bool:
    same = 0
    for position in range(period, len(names)):
        same = same + 1 if names[position] == names[position - period] else 0
        if same >= (REPEATS - 1) * period:
            run = names[position - period + 1 : position + 1]
            if any(_LETTER.search(name) for name in run):
                return True
    return False


def shape_of(path: str) -> str:
    """The path with `#` for each number and each long hexadecimal name: what counts up has one shape."""
    return _VARYING.sub("#", path)


def without_session(path: str) -> str | None:
    """The path without its session ids; None if it has none."""
    if "=" not in path and "(" not in path:
        return None
    bare, count = _SESSION.subn(_lead_of_next, path)
    return bare if count else None


def _lead_of_next(match: re.Match[str]) -> str:
    # What stood behind the first parameter keeps its own &: the result is a name for a page, not an address.
    return match["lead"] or "/"


def year_of(path: str) -> int | None:
    """The year of the first date in a path, such as /2030/05/, ?date=2030-05-17 or ?year=2030."""
    match = _DATE.search(path)
    return int(match["year"] or match["named"]) if match else None


def pairs_of(path: str) -> tuple[str, list[str]]:
    """The path before the query, and the query's parameters as they are written."""
    bare, _, query = path.partition("?")
    return bare, query.replace(";", "&").split("&") if query else []
