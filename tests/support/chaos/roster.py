"""All sites of the chaos web, by name."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.chaos import bodies, encryption, framing, heads, markup, redirects, rules, silence
from tests.support.chaos.site import ChaosSite
from tests.support.chaos.traps import TRAPS

from headway.errors import HeadwayError

ROOMS = {
    "silence": silence.SITES,
    "framing": framing.SITES,
    "heads": heads.SITES,
    "bodies": bodies.SITES,
    "markup": markup.SITES,
    "redirects": redirects.SITES,
    "rules": rules.SITES,
    "encryption": encryption.SITES,
}
ROSTER = {site.name: site for sites in ROOMS.values() for site in sites}
_EVERYTHING = {**ROSTER, **TRAPS}


def named(names: Iterable[str]) -> dict[str, ChaosSite]:
    chosen = {}
    for name in names:
        if name not in _EVERYTHING:
            raise HeadwayError(
                f"no site of the chaos web is called {name!r}; there are {', '.join(_EVERYTHING)}"
            )
        chosen[name] = _EVERYTHING[name]
    return chosen
