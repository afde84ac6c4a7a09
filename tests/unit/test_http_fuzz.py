"""Whatever bytes come, in whatever pieces: the reader comes to a verdict, the same one, and never raises."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.http.models import Limits
from headway.http.reader import ResponseReader
from headway.model.page import Kind

LIMITS = Limits(max_head_bytes=500, max_headers=10, max_body_bytes=200, max_interim_responses=2)

fragments = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 404 No\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 101 Up\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 300\r\n",
        b"content-length:7,7\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Connection: close\r\n",
        b"Upgrade: x\r\nConnection: upgrade\r\n",
        b"X: y\r\n z\r\n",
        b"\r\n",
        b"\n",
        b"hello",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"\0\xff",
    ]
)
streams = st.lists(fragments | st.binary(max_size=20), max_size=25).map(b"".join) | st.lists(
    fragments, max_size=12
).map(lambda parts: b"HTTP/1.1 200 OK\r\n" + b"".join(parts))


def verdict(stream: bytes, sizes: list[int]) -> tuple[object, ...]:
    reader = ResponseReader(LIMITS)
    start = 0
    for size in [*sizes, len(stream)]:
        if start < len(stream) and not reader.finished:
            reader.feed(memoryview(stream[start : start + size]))
            start += size
    reader.feed_eof()
    assert reader.finished
    assert len(reader.payload()) == reader.received_bytes <= LIMITS.max_body_bytes
    assert len(reader.head) <= LIMITS.max_head_bytes
    status = reader.reply.status if reader.reply else 0
    return reader.kind, status, reader.payload(), reader.head


@given(streams, st.lists(st.integers(1, 40), max_size=30))
@settings(max_examples=400, deadline=None)
def test_the_verdict_does_not_depend_on_how_the_bytes_come(stream, sizes):
    whole = verdict(stream, [])
    pieces = verdict(stream, sizes)
    assert whole == pieces or whole[0] in {Kind.PROTOCOL, Kind.TOO_LARGE}
    assert (pieces[0] is Kind.FETCHED) == (whole[0] is Kind.FETCHED)
