"""Reading the head of an answer."""

from __future__ import annotations

from functools import lru_cache

import httptools

from headway.fetch.head import HeadError, repair
from headway.fetch.replyhead import Framing, ReplyHead


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
    headers = []
    noted: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = _known_names.get(raw_name) or _lower(raw_name), raw_value.decode("latin-1")
        headers.append((name, value))
        if name in _NOTED:
            noted[name] = f"{noted[name]},{value}" if name in noted else value
    framing, length_bytes = _framing(status, noted)
    return ReplyHead(
        status,
        tuple(headers),
        framing,
        length_bytes,
        _keep_alive(head, noted.get("connection", "")) and framing is not Framing.UNTIL_CLOSE,
        _media_type(noted.get("content-type", "")),
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
    lowered = name.decode("latin-1").lower()
    if len(_known_names) < 512 and len(name) < 64:
        _known_names[name] = lowered
    return lowered


def _framing(status: int, noted: dict[str, str]) -> tuple[Framing, int]:
    if status in {204, 304} or status < 200:
        return Framing.EMPTY, 0
    if coding := noted.get("transfer-encoding", "").strip().lower():
        if coding == "chunked":
            return Framing.CHUNKED, 0
        if coding != "identity":
            raise HeadError(f"transfer coding {coding[:40]!r}")
    length = noted.get("content-length")
    if length is None:
        return Framing.UNTIL_CLOSE, 0
    if not (length.isascii() and length.isdigit()):
        raise HeadError(f"Content-Length is {length[:40]!r}")
    length_bytes = int(length)
    return (Framing.SIZED if length_bytes else Framing.EMPTY), length_bytes


@lru_cache(maxsize=256)
def _media_type(content_type: str) -> str:
    return content_type.split(",", 1)[0].split(";", 1)[0].strip().lower()


def _keep_alive(head: bytes, connection: str) -> bool:
    if not connection:
        return head.startswith(b"HTTP/1.1")
    wishes = {wish.strip() for wish in connection.lower().split(",")}
    if head.startswith(b"HTTP/1.1"):
        return "close" not in wishes
    return "keep-alive" in wishes and "close" not in wishes
