"""https sites with a certificate, or a manner, that is no good."""

from __future__ import annotations

from tests.support.chaos.line import Line, html, whole
from tests.support.chaos.site import ChaosSite, Door

from headway.model.page import Kind


async def _page(line: Line) -> None:
    await line.send(whole(html("A page behind TLS", line.path)))


def _refused(door: Door, does: str, because: Kind = Kind.TLS) -> ChaosSite:
    return ChaosSite(
        name=door.value,
        does=does,
        bad=Kind.ROBOTS_UNREACHABLE,
        after=Kind.ROBOTS_UNREACHABLE,
        because=because,
        answer=_page,
        door=door,
    )


SITES = (
    ChaosSite(name="tls-good", does="is in order, to compare", bad=Kind.FETCHED, answer=_page, door=Door.TLS),
    _refused(Door.TLS_EXPIRED, "has a certificate that is out of date"),
    _refused(Door.TLS_OTHER_NAME, "has another site's certificate"),
    _refused(Door.TLS_UNKNOWN_AUTHORITY, "has a certificate of its own making"),
    _refused(Door.TLS_SPOKEN_PLAINLY, "speaks plain HTTP behind https"),
    _refused(Door.TLS_SILENT, "does not shake hands", Kind.TIMEOUT_CONNECT),
    _refused(Door.TLS_RESET, "resets in the handshake", Kind.RESET),
)
