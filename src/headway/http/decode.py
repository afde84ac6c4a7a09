"""Removes content codings from a payload, in a stream with a limit: a bomb costs a bounded amount of memory.

A payload that cannot be decoded is kept as received, and a damaged one up to the damage: half a page with a
note is more useful to a crawler than none.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator

import brotlicffi
import msgspec
import zstandard
from isal import isal_zlib

from headway.http.models import Limits

_STEP_BYTES = 256 * 1024
_WINDOW_BYTES = 64 * 1024
_FIRST_OF_MEMBER_BYTES = 1024
"""Of a further member of a gzip file, taken at first: each call copies what it does not need."""
_MOST_MEMBERS = 10_000
"""Of a gzip file. Tools that make many begin one each 16 KB or more. It takes 20 bytes and 10 us."""
_UNPRODUCTIVE_BYTES = 1024 * 1024
"""No coding makes content longer but by some bytes. A stream that has this much more than it decodes to is
made of empty members, frames or blocks, which take up to 80 ns of CPU a byte."""
_IN_PLACE_BYTES = 512 * 1024
"""Decoded on the event loop at most: some 2 ms."""
_STEPS_IN_PLACE = 100
_SALVAGE_WINDOW_BYTES = 4096
_SALVAGE_STEP_BYTES = 64
_BROTLI_SLICE_BYTES = 4096
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
"""RFC 9659: the largest window that a zstd decoder on the web has to support."""

# Not a subclass of zlib.error. The package's type stubs call it an instance.
_InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]


class Decoded(msgspec.Struct, frozen=True):
    body: bytes
    bomb: bool = False
    detail: str = ""
    """What was wrong with the stream; empty if nothing was."""


class TooMuchWorkError(Exception):
    """The content is too long to be decoded on the event loop."""


class _BrokenError(Exception):
    """The stream is not in its coding, or ends early. The pieces until then have been yielded."""


def allowed_bytes(payload_bytes: int, limits: Limits) -> int:
    """How long the content of a payload may be."""
    by_ratio = int(limits.max_decode_ratio * payload_bytes)
    return min(limits.max_decoded_bytes, max(limits.ratio_counts_from_bytes, by_ratio))


def decode(payload: bytes, content_encoding: str, limits: Limits, *, in_place: bool = False) -> Decoded:
    """Remove the codings of a Content-Encoding header, the last first. `in_place`: raises TooMuchWorkError
    where that would hold up the event loop."""
    codings = [name for raw in content_encoding.split(",") if (name := raw.strip().lower())]
    codings = [name for name in codings if name != "identity"]
    if not codings or not payload:
        return Decoded(payload)
    if len(codings) > limits.max_codings:
        return Decoded(payload, detail=f"{len(codings)} content codings, kept as received")
    body, notes = payload, []
    for coding in reversed(codings):
        opener = _OPENERS.get(coding)
        if opener is None:
            notes.append(f"unknown content coding {coding[:40]!r}, kept as received")
            break
        allowed = allowed_bytes(len(payload), limits)
        body, bomb, note = _decode_one(opener, coding, body, allowed, in_place=in_place)
        if note:
            notes.append(note)
        if bomb:
            return Decoded(body, bomb=True, detail="; ".join(notes))
    return Decoded(body, detail="; ".join(notes))


_Opener = Callable[[bytes, int], Iterator[tuple[bytes, int]]]
"""Yields each piece of the content with the number of bytes of the stream that have been used for it."""


def _decode_one(
    opener: _Opener, coding: str, data: bytes, allowed_bytes: int, *, in_place: bool
) -> tuple[bytes, bool, str]:
    pieces: list[bytes] = []
    size = 0
    note = ""
    try:
        for step, (piece, used) in enumerate(opener(data, min(_STEP_BYTES, allowed_bytes + 1))):
            if piece:
                pieces.append(piece)
                size += len(piece)
            if in_place and (size > _IN_PLACE_BYTES or step > _STEPS_IN_PLACE):
                raise TooMuchWorkError
            if used > size + _UNPRODUCTIVE_BYTES:
                note = f"{coding}: {used} bytes decode to {size}, and the rest is not decoded"
                break
            if size > allowed_bytes:
                text = f"{coding}: {len(data)} bytes decode to more than {allowed_bytes}"
                return b"".join(pieces)[:allowed_bytes], True, text
    except _BrokenError as broken:
        if size == 0:
            return data, False, f"not {coding} ({broken}), kept as received"
        note = f"{coding} stream damaged after {size} bytes ({broken})"
    return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), False, note


def _gzip(data: bytes, step_bytes: int) -> Iterator[tuple[bytes, int]]:
    """All members. Padding or garbage after the last is ignored, as browsers do."""
    position = 0
    for number in range(_MOST_MEMBERS):
        if position >= len(data) or (number and not data.startswith(b"\x1f\x8b", position)):
            return
        position = yield from _inflate(data, position, step_bytes, zlib.MAX_WBITS | 16)
    if data.startswith(b"\x1f\x8b", position):
        raise _BrokenError(f"it has more than {_MOST_MEMBERS} members")


def _deflate(data: bytes, step_bytes: int) -> Iterator[tuple[bytes, int]]:
    """The name means the zlib format, but many servers send a raw deflate stream."""
    looks_like_zlib = len(data) >= 2 and data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
    yield from _inflate(data, 0, step_bytes, zlib.MAX_WBITS if looks_like_zlib else -zlib.MAX_WBITS)


def _inflate(
    data: bytes, begin: int, step_bytes: int, window_bits: int
) -> Generator[tuple[bytes, int], None, int]:
    """Yield the pieces of the stream that begins here; return where it ends."""
    inflater = isal_zlib.decompressobj(window_bits)
    produced, position = 0, begin
    window = _FIRST_OF_MEMBER_BYTES if begin else _WINDOW_BYTES
    waiting = b""
    try:
        while not inflater.eof:
            if not waiting:
                if position >= len(data):
                    break
                waiting = data[position : position + window]
                position += len(waiting)
                window = min(2 * window, _WINDOW_BYTES)
            piece = inflater.decompress(waiting, step_bytes)
            waiting = inflater.unconsumed_tail
            produced += len(piece)
            yield piece, position - len(waiting)
    except _InflateError as error:
        yield from _salvage(data, begin, window_bits, produced)
        raise _BrokenError(str(error)) from error
    if not inflater.eof:
        yield from _salvage(data, begin, window_bits, produced)
        raise _BrokenError("it ends early")
    return position - len(inflater.unused_data)


def _salvage(data: bytes, begin: int, window_bits: int, already_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Decode a damaged stream again with zlib, and yield what `isal` did not.

    A call that fails loses what it had decoded, and at the end of a cut stream isal may keep some bytes.
    """
    inflater = zlib.decompressobj(window_bits)
    produced = 0
    for position in range(begin, len(data), _SALVAGE_WINDOW_BYTES):
        window = data[position : position + _SALVAGE_WINDOW_BYTES]
        before = inflater.copy()
        try:
            pieces, is_whole = list(_in_steps(inflater, window)), True
        except zlib.error:
            pieces, is_whole = _until_damage(before, window), False
        for piece in pieces:
            fresh = piece[max(0, already_bytes - produced) :]
            produced += len(piece)
            yield fresh, position
        if not is_whole or inflater.eof:
            return


def _in_steps(inflater: zlib._Decompress, waiting: bytes) -> Iterator[bytes]:
    while waiting:
        yield inflater.decompress(waiting, _STEP_BYTES)
        waiting = inflater.unconsumed_tail


def _until_damage(inflater: zlib._Decompress, window: bytes) -> list[bytes]:
    """What can be decoded of the window with the damage, by a copy of what decoded the windows before it."""
    pieces: list[bytes] = []
    try:
        for start in range(0, len(window), _SALVAGE_STEP_BYTES):
            pieces += _in_steps(inflater, window[start : start + _SALVAGE_STEP_BYTES])
    except zlib.error:
        pass
    return pieces


def _brotli(data: bytes, step_bytes: int) -> Iterator[tuple[bytes, int]]:
    decompressor = brotlicffi.Decompressor()
    try:
        # In slices, because a call that fails loses what it had decoded.
        for start in range(0, len(data), _BROTLI_SLICE_BYTES):
            feed = data[start : start + _BROTLI_SLICE_BYTES]
            while True:
                piece = decompressor.process(feed, output_buffer_limit=step_bytes)
                feed = b""
                yield piece, start
                if decompressor.is_finished():
                    return
                if not piece and decompressor.can_accept_more_data():
                    break
    except brotlicffi.error as error:
        raise _BrokenError(str(error)) from error
    raise _BrokenError("it ends early")


def _zstd(data: bytes, step_bytes: int) -> Iterator[tuple[bytes, int]]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    produced = 0
    try:
        announced = zstandard.frame_content_size(data)
        # Where nothing comes of it, all is gone through in one call: 20 ns a byte, without the GIL.
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            while piece := reader.read(step_bytes):
                produced += len(piece)
                yield piece, 0
    except zstandard.ZstdError as error:
        raise _BrokenError(str(error)) from error
    # The reader does not report a frame that ends early.
    if produced < (announced if announced >= 0 else 1):
        raise _BrokenError("it ends early")


_OPENERS: dict[str, _Opener] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
