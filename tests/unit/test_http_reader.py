"""Answers as servers really write them: what is taken, what is mended, what is refused."""

from __future__ import annotations

import pytest

from headway.http.models import Limits
from headway.http.reader import ResponseReader
from headway.model.page import Kind

LIMITS = Limits(max_head_bytes=2048, max_headers=20, max_interim_responses=3, max_body_bytes=10_000)


def read(data: bytes, *, eof: bool = False, split: int | None = None, limits: Limits = LIMITS, **options):
    """What the reader makes of the bytes, given whole or cut into pieces."""
    reader = ResponseReader(limits, **options)
    step = split or max(1, len(data))
    for start in range(0, len(data), step):
        if reader.feed(memoryview(data[start : start + step])):
            break
    if eof:
        reader.feed_eof()
    return reader


def answer(*lines: str, body: bytes = b"") -> bytes:
    return ("\r\n".join(["HTTP/1.1 200 OK", *lines]) + "\r\n\r\n").encode("latin-1") + body


GOOD = {
    "sized": answer("Content-Length: 5", body=b"hello"),
    "chunked": answer("Transfer-Encoding: chunked", body=b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"),
    "chunked with extension and trailer": answer(
        "Transfer-Encoding: chunked", body=b"5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n"
    ),
    "after two 1xx": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    + answer("Content-Length: 5", body=b"hello"),
    "no reason phrase": b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
    "folded header": answer("X-Long: a", "\tb", "Content-Length: 5", body=b"hello"),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("split", [None, 1, 7])
def test_a_proper_answer_is_whole_however_it_is_cut(name, split):
    reader = read(GOOD[name], split=split)
    assert (reader.finished, reader.kind, reader.payload()) == (True, Kind.FETCHED, b"hello")
    assert reader.keep_alive
    assert not reader.truncated


MENDED = {
    "lines that end in LF": b"HTTP/1.1 200 OK\nContent-Length: 5\nX-A: b\n\nhello",
    "equal lengths said twice": answer("Content-Length: 5", "Content-Length: 5", body=b"hello"),
    "equal lengths in one line": answer("Content-Length: 5, 5", body=b"hello"),
    "blank before the colon": answer("Content-Length : 5", body=b"hello"),
    "a line that is no header": answer("<!-- cms -->", "Content-Length: 5", body=b"hello"),
    "a control character in a value": answer("X-A: b\x01c", "Content-Length: 5", body=b"hello"),
    "identity as a transfer coding": answer(
        "Transfer-Encoding: identity", "Content-Length: 5", body=b"hello"
    ),
    "line breaks before the status line": b"\r\n\r\n" + GOOD["sized"],
    "blank after the chunk size": answer("Transfer-Encoding: chunked", body=b"5 \r\nhello\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize("name", MENDED)
@pytest.mark.parametrize("split", [None, 1])
def test_what_real_servers_get_wrong_is_mended(name, split):
    reader = read(MENDED[name], split=split)
    assert (reader.finished, reader.kind, reader.payload()) == (True, Kind.FETCHED, b"hello")


def test_a_mended_head_is_kept_as_it_came_and_noted():
    reader = read(MENDED["lines that end in LF"])
    assert reader.head == b"HTTP/1.1 200 OK\nContent-Length: 5\nX-A: b\n\n"
    assert ("x-a", "b") in reader.reply.headers
    assert "repaired" in reader.detail


def test_chunked_wins_over_a_length_and_the_connection_is_not_trusted_again():
    reader = read(answer("Content-Length: 3", "Transfer-Encoding: chunked", body=b"5\r\nhello\r\n0\r\n\r\n"))
    assert (reader.kind, reader.payload(), reader.keep_alive) == (Kind.FETCHED, b"hello", False)


REFUSED = {
    "HTTP/0.9": b"<html>hello</html>",
    "another protocol": b"SSH-2.0-OpenSSH\r\n",
    "a TLS alert": b"\x15\x03\x01\x00\x02\x02\x28",
    "shoutcast": b"ICY 200 OK\r\n\r\n",
    "HTTP/2 in clear": b"HTTP/2 200\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "status of two digits": b"HTTP/1.1 20 OK\r\n\r\n",
    "lengths that differ": answer("Content-Length: 5", "Content-Length: 6", body=b"hello"),
    "a length that is no number": answer("Content-Length: five", body=b"hello"),
    "a negative length": answer("Content-Length: -5", body=b"hello"),
    "a length beyond all numbers": answer("Content-Length: " + "9" * 40),
    "a length hidden in a broken line": answer("Content-Length\x00: 5", body=b"hello"),
    "an unknown transfer coding": answer("Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
    "a chunk size that is no number": answer("Transfer-Encoding: chunked", body=b"zz\r\nhello\r\n0\r\n\r\n"),
    "a chunk longer than it says": answer("Transfer-Encoding: chunked", body=b"3\r\nhello\r\n0\r\n\r\n"),
    "chunks with bare LF": answer("Transfer-Encoding: chunked", body=b"5\nhello\n0\n\n"),
    "a chunk without its line break": answer("Transfer-Encoding: chunked", body=b"5\r\nhello0\r\n\r\n"),
    "switching protocols": b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    "1xx without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 5,
    "too many headers": answer(*(f"X-{n}: 1" for n in range(30))),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("split", [None, 1])
def test_what_makes_no_sense_is_a_protocol_error(name, split):
    reader = read(REFUSED[name], split=split)
    assert (reader.finished, reader.kind) == (True, Kind.PROTOCOL)
    assert reader.detail
    assert not reader.keep_alive


def test_upgrade_offers_on_a_page_are_nothing_special():
    reader = read(
        answer("Upgrade: h2,h2c", "Connection: Upgrade, Keep-Alive", "Content-Length: 5", body=b"hello")
    )
    assert (reader.kind, reader.payload(), reader.keep_alive) == (Kind.FETCHED, b"hello", True)


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body_end_with_their_head(status):
    head = f"HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n".encode()
    reader = read(head)
    assert (reader.kind, reader.payload(), reader.keep_alive) == (Kind.FETCHED, b"", True)
    reader = read(head + b"hello")
    assert (reader.kind, reader.payload(), reader.keep_alive) == (Kind.FETCHED, b"", False)


@pytest.mark.parametrize("extra", [b"x", b"HTTP/1.1 200 OK\r\n\r\n"])
@pytest.mark.parametrize("name", ["sized", "chunked"])
def test_bytes_beyond_the_answer_cost_the_connection(name, extra):
    reader = read(GOOD[name] + extra)
    assert (reader.kind, reader.payload(), reader.keep_alive) == (Kind.FETCHED, b"hello", False)


@pytest.mark.parametrize(
    ("lines", "version", "kept"),
    [
        ((), "1.1", True),
        (("Connection: close",), "1.1", False),
        (("Connection: Keep-Alive, Close",), "1.1", False),
        ((), "1.0", False),
        (("Connection: keep-alive",), "1.0", True),
    ],
)
def test_the_connection_is_kept_as_the_server_says(lines, version, kept):
    data = answer("Content-Length: 5", *lines, body=b"hello").replace(
        b"HTTP/1.1", b"HTTP/" + version.encode()
    )
    assert read(data).keep_alive is kept


def test_without_a_length_the_body_lasts_until_the_end():
    reader = read(answer(body=b"hello"), eof=True)
    assert (reader.kind, reader.payload(), reader.keep_alive) == (Kind.FETCHED, b"hello", False)


CUT = {
    "nothing": (b"", 0, b""),
    "in the head": (b"HTTP/1.1 200 OK\r\nContent-", 0, b""),
    "in a sized body": (answer("Content-Length: 9", body=b"hello"), 200, b"hello"),
    "in a chunk": (answer("Transfer-Encoding: chunked", body=b"9\r\nhello"), 200, b"hello"),
    "before the last chunk": (answer("Transfer-Encoding: chunked", body=b"5\r\nhello\r\n"), 200, b"hello"),
}


@pytest.mark.parametrize("name", CUT)
def test_an_answer_that_stops_short_is_a_reset_with_what_there_is(name):
    data, status, payload = CUT[name]
    reader = read(data, eof=True)
    assert (reader.kind, reader.payload()) == (Kind.RESET, payload)
    assert (reader.reply.status if reader.reply else 0) == status
    assert reader.truncated is bool(data)
    assert reader.started is bool(data)


def test_a_head_without_end_is_too_large():
    assert read(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 1000, split=100).kind is Kind.TOO_LARGE
    assert read(b"HTTP/1.1 200 OK\r\nX-A: " + b"b" * 10_000, split=100).kind is Kind.TOO_LARGE


def test_an_announced_length_beyond_the_limit_is_not_even_begun():
    reader = read(answer("Content-Length: 10001", body=b"hello"))
    assert (reader.kind, reader.payload(), reader.truncated) == (Kind.TOO_LARGE, b"", True)


@pytest.mark.parametrize(
    "data",
    [
        answer(body=b"x" * 20_000),
        answer("Transfer-Encoding: chunked", body=b"4e20\r\n" + b"x" * 20_000 + b"\r\n0\r\n\r\n"),
    ],
    ids=["until close", "chunked"],
)
def test_an_endless_body_stops_at_the_limit(data):
    reader = read(data, split=1000)
    assert (reader.finished, reader.kind, reader.truncated) == (True, Kind.TOO_LARGE, True)
    assert reader.payload() == b"x" * 10_000


@pytest.mark.parametrize(
    "data",
    [
        answer("Content-Length: 5", body=b"hello"),
        answer(body=b"hello"),
        answer("Transfer-Encoding: chunked", body=b"5\r\nhello\r\n0\r\n\r\n"),
    ],
    ids=["sized", "until close", "chunked"],
)
@pytest.mark.parametrize("split", [None, 1])
def test_a_limit_of_the_request_cuts_without_refusing(data, split):
    reader = read(data, split=split, eof=True, max_body_bytes=3)
    assert (reader.kind, reader.truncated, reader.payload()) == (Kind.FETCHED, True, b"hel")
    assert not reader.keep_alive
    reader = read(data, split=split, eof=True, max_body_bytes=5)
    assert (reader.kind, reader.truncated, reader.payload()) == (Kind.FETCHED, False, b"hello")


@pytest.mark.parametrize(
    "rubbish", [b"5;" + b"a" * 200_000, b"0\r\n" + b"X: y\r\n" * 40_000], ids=["extension", "trailers"]
)
def test_chunk_framing_without_end_is_refused(rubbish):
    assert read(answer("Transfer-Encoding: chunked", body=rubbish), split=1000).kind is Kind.PROTOCOL


def test_chunks_of_one_byte_are_taken():
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in b"x" * 3000) + b"0\r\n\r\n"
    reader = read(answer("Transfer-Encoding: chunked", body=body), split=1000)
    assert (reader.kind, reader.payload()) == (Kind.FETCHED, b"x" * 3000)


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/html", Kind.FETCHED),
        ("Text/HTML; charset=utf-8", Kind.FETCHED),
        ("", Kind.FETCHED),
        ("image/png", Kind.UNWANTED_TYPE),
        ("text/htmlx", Kind.UNWANTED_TYPE),
    ],
)
def test_only_wanted_types_are_read(content_type, kind):
    lines = [f"Content-Type: {content_type}"] if content_type else []
    reader = read(answer("Content-Length: 5", *lines, body=b"hello"), accept_types=frozenset({"text/html"}))
    assert (reader.kind, reader.reply.status) == (kind, 200)
    assert reader.payload() == (b"hello" if kind is Kind.FETCHED else b"")


def test_the_remaining_length_is_reported_where_it_is_known():
    reader = ResponseReader(LIMITS)
    assert reader.remaining_bytes is None
    reader.feed(answer("Content-Length: 9", body=b"hello"))
    assert reader.remaining_bytes == 4
    reader.feed(b"1234")
    assert reader.remaining_bytes == 0
    reader = ResponseReader(LIMITS)
    reader.feed(answer(body=b"hello"))
    assert reader.remaining_bytes is None
