"""All sites of the chaos web, by name."""

from __future__ import annotations

from collections.abc import Iterable

from headway.errors import HeadwayError
from headway.testing.chaos import bodies, encryption, framing, heads, markup, redirects, rules, silence
from headway.testing.chaos.site import ChaosSite

ROSTER = {
    site.name: site
    for room in (silence, framing, heads, bodies, markup, redirects, rules, encryption)
    for site in room.SITES
}


def named(names: Iterable[str]) -> dict[str, ChaosSite]:
    chosen = {}
    for name in names:
        if name not in ROSTER:
            raise HeadwayError(f"no site of the chaos web is called {name!r}; there are {', '.join(ROSTER)}")
        chosen[name] = ROSTER[name]
    return chosen
