"""The head of an answer as a value: what it says, and how its body is delimited."""

from __future__ import annotations

import enum

import httptools
import msgspec

from headway.fetch.head import HeadError, repair


class Framing(enum.Enum):
    EMPTY = "empty"
    SIZED = "sized"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until-close"


class ReplyHead(msgspec.Struct, frozen=True):
    status: int
    headers: tuple[tuple[str, str], ...]
    framing: Framing
    length_bytes: int = 0
    keep_alive: bool = True
    media_type: str = ""
    content_encoding: str = ""
    note: str = ""


class _Collector:
    """What httptools calls; kept apart from the reader so that no cycle is left behind."""

    __slots__ = ("complete", "pairs")

    def __init__(self) -> None:
        self.pairs: list[tuple[bytes, bytes]] = []
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.pairs.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete = True


_NOTED = frozenset({"connection", "content-length", "content-type", "content-encoding", "transfer-encoding"})


def parse_head(head: bytes, max_headers: int) -> ReplyHead:
    """Read a whole head, empty line included; HeadError when it makes no sense."""
    note = ""
    try:
        status, pairs = _tokenize(head)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        rebuilt, note = repair(head)
        try:
            status, pairs = _tokenize(rebuilt)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise HeadError(str(error) or "unasked-for upgrade") from error
    if len(pairs) > max_headers:
        raise HeadError(f"{len(pairs)} headers, more than {max_headers}")
    headers = tuple([(_lower(name), value.decode("latin-1")) for name, value in pairs])
    noted: dict[str, str] = {}
    for name, value in headers:
        if name in _NOTED:
            noted[name] = f"{noted[name]},{value}" if name in noted else value
    framing, length_bytes = _framing(status, noted)
    return ReplyHead(
        status,
        headers,
        framing,
        length_bytes,
        _keep_alive(head, noted.get("connection", "")) and framing is not Framing.UNTIL_CLOSE,
        noted.get("content-type", "").split(",", 1)[0].split(";", 1)[0].strip().lower(),
        noted.get("content-encoding", ""),
        note,
    )


def _tokenize(head: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    collector = _Collector()
    parser = httptools.HttpResponseParser(collector)
    parser.feed_data(head)
    if not collector.complete:
        raise httptools.HttpParserError("the head has no end")
    return parser.get_status_code(), collector.pairs


_known_names: dict[bytes, str] = {}


def _lower(name: bytes) -> str:
    """Header names are few, so most are decoded once; a hostile server must not fill the memory with them."""
    lowered = _known_names.get(name)
    if lowered is None:
        lowered = name.decode("latin-1").lower()
        if len(_known_names) < 512 and len(name) < 64:
            _known_names[name] = lowered
    return lowered


def _framing(status: int, noted: dict[str, str]) -> tuple[Framing, int]:
    if status in {204, 304} or status < 200:
        return Framing.EMPTY, 0
    coding = noted.get("transfer-encoding", "").strip().lower()
    if coding == "chunked":
        return Framing.CHUNKED, 0
    if coding not in {"", "identity"}:
        raise HeadError(f"transfer coding {coding[:40]!r}")
    length = noted.get("content-length")
    if length is None:
        return Framing.UNTIL_CLOSE, 0
    if not (length.isascii() and length.isdigit()):
        raise HeadError(f"Content-Length is {length[:40]!r}")
    return (Framing.SIZED, int(length)) if int(length) else (Framing.EMPTY, 0)


def _keep_alive(head: bytes, connection: str) -> bool:
    if not connection:
        return head.startswith(b"HTTP/1.1")
    wishes = {wish.strip() for wish in connection.lower().split(",")}
    if head.startswith(b"HTTP/1.1"):
        return "close" not in wishes
    return "keep-alive" in wishes and "close" not in wishes
