"""Servers that reset, close, stall or trickle, at every stage of an answer, or never take the connection."""

from __future__ import annotations

from tests.support.chaos.line import Line, head, html, not_found, whole
from tests.support.chaos.scripts import (
    says_and_closes,
    says_and_half_closes,
    says_and_resets,
    says_and_stalls,
)
from tests.support.chaos.site import ChaosSite, Door

from headway.model.page import Kind

_TRICKLE_PAUSE_S = 0.2
"""Within any time-out between two arrivals, so that only the one for the whole fetch can end it."""
_BODY = html("Cut short", "word " * 400)
_HEAD = head(length=len(_BODY))
_STAGES = {
    "before-status": (b"", "before the status line"),
    "in-head": (_HEAD[:40], "in the head"),
    "after-head": (_HEAD, "after the head"),
    "mid-body": (_HEAD + _BODY[: len(_BODY) // 2], "in the middle of the body"),
}


async def _trickle_head(line: Line) -> None:
    await line.trickle(whole(_BODY), _TRICKLE_PAUSE_S)


async def _trickle_body(line: Line) -> None:
    await line.send(_HEAD)
    await line.trickle(_BODY, _TRICKLE_PAUSE_S)


async def _never_reached(line: Line) -> None:
    await line.send(not_found())


def _sites_for_stage(stage: str, sent: bytes, where: str) -> list[ChaosSite]:
    stalls_as = Kind.TIMEOUT_IDLE if sent else Kind.TIMEOUT_FIRST_BYTE
    return [
        ChaosSite(
            name=f"reset-{stage}", does=f"resets {where}", bad=Kind.RESET, answer=says_and_resets(sent)
        ),
        ChaosSite(
            name=f"close-{stage}", does=f"closes {where}", bad=Kind.RESET, answer=says_and_closes(sent)
        ),
        ChaosSite(
            name=f"stall-{stage}", does=f"falls silent {where}", bad=stalls_as, answer=says_and_stalls(sent)
        ),
        ChaosSite(
            name=f"half-close-{stage}",
            does=f"closes its half {where}, and listens on",
            bad=Kind.RESET,
            answer=says_and_half_closes(sent),
        ),
    ]


def _unreachable(name: str, does: str, door: Door, because: Kind) -> ChaosSite:
    return ChaosSite(
        name=name,
        does=does,
        bad=Kind.ROBOTS_UNREACHABLE,
        after=Kind.ROBOTS_UNREACHABLE,
        because=because,
        door=door,
        answer=_never_reached,
    )


SITES = (
    *(site for stage, (sent, where) in _STAGES.items() for site in _sites_for_stage(stage, sent, where)),
    ChaosSite(
        name="trickle-head",
        does="sends the head a byte at a time",
        bad=Kind.TIMEOUT_TOTAL,
        answer=_trickle_head,
    ),
    ChaosSite(
        name="trickle-body",
        does="sends the body a byte at a time",
        bad=Kind.TIMEOUT_TOTAL,
        answer=_trickle_body,
    ),
    ChaosSite(
        name="half-close-when-done",
        does="closes its half after a whole answer",
        bad=Kind.FETCHED,
        answer=says_and_half_closes(whole(_BODY)),
    ),
    _unreachable("deaf", "has a full queue and takes no connection", Door.DEAF, Kind.TIMEOUT_CONNECT),
    _unreachable("shut", "does not listen", Door.SHUT, Kind.CONNECT),
)
