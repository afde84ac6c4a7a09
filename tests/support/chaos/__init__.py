"""A web that misbehaves in every way we know of: one site a way, each on a loopback port of its own.

Every site has two pages to begin with. `BAD` is where it misbehaves, `AFTER` is an ordinary page, which shows
whether the site can still be crawled then. `ChaosSite.expected` says how a fetch of each must end, so that
the list of behaviours and the list of expectations are one. Nothing in it is random.

    silence      resets, closes, stalls, trickles at every stage; full queues, shut ports
    framing      lengths that lie, broken chunks, bodies where none may be
    heads        invalid, endless, other protocols, interim answers, cookies
    bodies       endless, bombs, codings, charsets and types that lie
    markup       nesting, attributes and links beyond measure; links with tricks
    redirects    circles, endless chains, huge and bad places
    rules        robots.txt that is huge, late, circular, rubbish; a sitemap of entities
    encryption   certificates and handshakes

Apart from those, in `TRAPS`, are sites that go on for ever: served by name, since a crawl that follows them
has more than two pages to fetch.

    with ChaosProcess() as chaos:
        for name, site in chaos.sites.items():
            crawl(chaos.url(name, BAD), chaos.url(name, AFTER))

`python -m tests.support.chaos --list` prints what there is.
"""

from __future__ import annotations

from tests.support.chaos.process import ChaosProcess
from tests.support.chaos.roster import ROSTER
from tests.support.chaos.server import ServedChaos, serve_chaos
from tests.support.chaos.site import AFTER, BAD, ChaosSite
from tests.support.chaos.traps import TRAPS, TrapSite

__all__ = [
    "AFTER",
    "BAD",
    "ROSTER",
    "TRAPS",
    "ChaosProcess",
    "ChaosSite",
    "ServedChaos",
    "TrapSite",
    "serve_chaos",
]
