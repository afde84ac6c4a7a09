"""Redirects in circles, without end, and to where nobody should go."""

from __future__ import annotations

from tests.support.chaos.line import Line, html, not_found, whole
from tests.support.chaos.site import BAD, ChaosSite, Script

from headway.model.page import Kind

LONGEST_CHAIN = 20
"""A crawl gives up a chain of more hops than this, as browsers do."""
_SHORT_CHAIN = 10


def _to(location: str) -> bytes:
    return whole(html("Elsewhere"), f"Location: {location}", status="302 Found")


def _leads(locations: dict[str, str]) -> Script:
    """From path to path; where no location is given there is a page."""

    async def answer(line: Line) -> None:
        location = locations.get(line.path)
        if location is None:
            await line.send(whole(html("Arrived", line.path)))
        else:
            await line.send(_to(location.replace("{origin}", line.origin)))

    return answer


async def _endless(line: Line) -> None:
    hop = 0 if line.path == BAD else int(line.path.rpartition("/")[2])
    await line.send(_to(f"/hop/{hop + 1}"))


_BAD_LOCATIONS = {
    "/to-script": "javascript:alert(1)",
    "/to-data": "data:text/html,x",
    "/to-file": "file:///etc/passwd",
    "/to-nothing": "",
    "/to-nonsense": "http://[",
    "/to-other-host": "http://elsewhere.invalid/",
    "/to-metadata": "http://169.254.169.254/latest/meta-data/",
    "/to-itself": "/to-itself#again",
}


async def _bad_locations(line: Line) -> None:
    if line.path == BAD:
        anchors = "".join(f"<a href={path}>x</a>\n" for path in (*_BAD_LOCATIONS, "/to-credentials"))
        await line.send(whole(f"<!doctype html><title>Bad places</title>{anchors}".encode()))
    elif line.path in _BAD_LOCATIONS:
        await line.send(_to(_BAD_LOCATIONS[line.path]))
    elif line.path == "/to-credentials":
        await line.send(_to(line.origin.replace("://", "://user:secret@") + "/arrived"))
    elif line.path == "/arrived" and b"authorization" not in line.request.lower():
        await line.send(whole(html("Arrived without a password")))
    else:
        await line.send(not_found())


SITES = (
    ChaosSite(
        name="redirect-to-itself", does="redirects to itself", bad=Kind.REDIRECT, answer=_leads({BAD: BAD})
    ),
    ChaosSite(
        name="redirect-circle",
        does="redirects in a circle of three",
        bad=Kind.REDIRECT,
        answer=_leads({BAD: "/b", "/b": "{origin}/c", "/c": "/"}),
        leads_to={"/b": Kind.REDIRECT, "/c": Kind.REDIRECT},
    ),
    ChaosSite(
        name="redirect-chain",
        does=f"redirects {_SHORT_CHAIN} times before there is a page",
        bad=Kind.REDIRECT,
        answer=_leads({BAD: "/1"} | {f"/{hop}": f"/{hop + 1}" for hop in range(1, _SHORT_CHAIN)}),
        leads_to={f"/{hop}": Kind.REDIRECT for hop in range(1, _SHORT_CHAIN)}
        | {f"/{_SHORT_CHAIN}": Kind.FETCHED},
    ),
    ChaosSite(
        name="redirect-endless",
        does="redirects to ever new places",
        bad=Kind.REDIRECT,
        answer=_endless,
        leads_to={f"/hop/{hop}": Kind.REDIRECT for hop in range(1, LONGEST_CHAIN + 1)},
    ),
    ChaosSite(
        name="redirect-huge",
        does="redirects to a URL of 100 KB",
        bad=Kind.TOO_LARGE,
        answer=_leads({BAD: "/" + "x" * 100_000}),
    ),
    ChaosSite(
        name="redirect-long",
        does="redirects to a URL of 50 KB",
        bad=Kind.REDIRECT,
        answer=_leads({BAD: "/" + "x" * 50_000}),
    ),
    ChaosSite(
        name="redirect-to-bad-places",
        does="redirects to scripts, files, other hosts and private addresses",
        bad=Kind.FETCHED,
        answer=_bad_locations,
        leads_to={
            **dict.fromkeys([*_BAD_LOCATIONS, "/to-credentials"], Kind.REDIRECT),
            "/arrived": Kind.FETCHED,
        },
    ),
)
