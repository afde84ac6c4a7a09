"""The few things that most misbehaving servers do, as scripts for a site."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.chaos.line import Line
from tests.support.chaos.site import Script


def says(data: bytes) -> Script:
    """And waits for the next request."""

    async def answer(line: Line) -> None:
        await line.send(data)

    return answer


def says_and_closes(data: bytes) -> Script:
    async def answer(line: Line) -> None:
        await line.send(data)
        line.close()

    return answer


def says_and_resets(data: bytes) -> Script:
    async def answer(line: Line) -> None:
        await line.send(data)
        line.reset()

    return answer


def says_and_stalls(data: bytes) -> Script:
    async def answer(line: Line) -> None:
        await line.send(data)
        await line.stall()

    return answer


def says_and_half_closes(data: bytes) -> Script:
    """Sends no more, and listens on."""

    async def answer(line: Line) -> None:
        await line.send(data)
        line.half_close()
        await line.stall()

    return answer


def goes_on(start: bytes, pieces: Iterable[bytes]) -> Script:
    """Without end, as far as the client lets it."""

    async def answer(line: Line) -> None:
        await line.send(start)
        await line.send_for_ever(pieces)

    return answer
