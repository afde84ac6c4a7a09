"""Content codings taken off a payload, in a stream with a stop: a bomb costs a bounded amount of memory.

What cannot be decoded is kept as it came, and what breaks off in the middle is kept up to there: a crawler
is better off with half a page and a note than with nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator

import brotlicffi
import msgspec
import zstandard
from isal import isal_zlib

from headway.fetch.settings import Limits

_STEP_BYTES = 256 * 1024
_SALVAGE_STEP_BYTES = 64
_BROTLI_SLICE_BYTES = 4096
# RFC 9659: no more than this may be asked of one who decodes zstd on the web.
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024

# Not zlib's, nor a child of it. The package's stubs call it an instance.
_InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]


class Decoded(msgspec.Struct, frozen=True):
    body: bytes
    bomb: bool = False
    detail: str = ""
    """What was odd about it; empty for a clean stream."""


class _BrokenError(Exception):
    """The stream is not what it claims to be, or ends early; pieces until then have been yielded."""


def decode(payload: bytes, content_encoding: str, limits: Limits) -> Decoded:
    """Undo the codings in a Content-Encoding header, the last named first."""
    codings = [name for raw in content_encoding.split(",") if (name := raw.strip().lower())]
    codings = [name for name in codings if name != "identity"]
    if not codings or not payload:
        return Decoded(payload)
    if len(codings) > limits.max_codings:
        return Decoded(payload, detail=f"{len(codings)} content codings, kept as it came")
    body, notes = payload, []
    for coding in reversed(codings):
        opener = _OPENERS.get(coding)
        if opener is None:
            notes.append(f"unknown content coding {coding[:40]!r}, kept as it came")
            break
        allowed = min(
            limits.max_decoded_bytes,
            max(limits.ratio_counts_from_bytes, int(limits.max_decode_ratio * len(payload))),
        )
        body, bomb, note = _undo(opener, coding, body, allowed)
        if note:
            notes.append(note)
        if bomb:
            return Decoded(body, bomb=True, detail="; ".join(notes))
    return Decoded(body, detail="; ".join(notes))


_Opener = Callable[[bytes, int], Iterator[bytes]]


def _undo(opener: _Opener, coding: str, data: bytes, allowed_bytes: int) -> tuple[bytes, bool, str]:
    pieces: list[bytes] = []
    size = 0
    note = ""
    try:
        for piece in opener(data, min(_STEP_BYTES, allowed_bytes + 1)):
            pieces.append(piece)
            size += len(piece)
            if size > allowed_bytes:
                text = f"{coding}: {len(data)} bytes grow beyond {allowed_bytes}"
                return b"".join(pieces)[:allowed_bytes], True, text
    except _BrokenError as broken:
        if size == 0:
            return data, False, f"not {coding} ({broken}), kept as it came"
        note = f"{coding} breaks off after {size} bytes ({broken})"
    return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), False, note


def _gzip(data: bytes, step_bytes: int) -> Iterator[bytes]:
    """All members; padding or rubbish after the last is left out, as browsers do."""
    first = True
    while data:
        if not first and not data.startswith(b"\x1f\x8b"):
            return
        data = yield from _inflate(data, step_bytes, zlib.MAX_WBITS | 16)
        first = False


def _deflate(data: bytes, step_bytes: int) -> Iterator[bytes]:
    """The name means zlib's format; many servers send the bare stream."""
    looks_like_zlib = len(data) >= 2 and data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
    yield from _inflate(data, step_bytes, zlib.MAX_WBITS if looks_like_zlib else -zlib.MAX_WBITS)


def _inflate(data: bytes, step_bytes: int, window_bits: int) -> Generator[bytes, None, bytes]:
    """Yields pieces and returns what follows the end of the stream."""
    inflater = isal_zlib.decompressobj(window_bits)
    produced = 0
    waiting: bytes = data
    try:
        while not inflater.eof:
            piece = inflater.decompress(waiting, step_bytes)
            waiting = inflater.unconsumed_tail
            if piece:
                produced += len(piece)
                yield piece
            elif not waiting:
                break
    except _InflateError as error:
        yield from _salvage(data, window_bits, produced)
        raise _BrokenError(str(error)) from error
    if not inflater.eof:
        yield from _salvage(data, window_bits, produced)
        raise _BrokenError("it ends early")
    return bytes(inflater.unused_data)


def _salvage(data: bytes, window_bits: int, already_bytes: int) -> Iterator[bytes]:
    """What a failing call had decoded is lost with it, and the end of a cut stream may stay inside: go over
    it again in small steps, with the decoder that gives them."""
    inflater = zlib.decompressobj(window_bits)
    produced = 0
    try:
        for start in range(0, len(data), _SALVAGE_STEP_BYTES):
            waiting = data[start : start + _SALVAGE_STEP_BYTES]
            while waiting:
                piece = inflater.decompress(waiting, _STEP_BYTES)
                waiting = inflater.unconsumed_tail
                fresh = piece[max(0, already_bytes - produced) :]
                produced += len(piece)
                if fresh:
                    yield fresh
    except zlib.error:
        return


def _brotli(data: bytes, step_bytes: int) -> Iterator[bytes]:
    decompressor = brotlicffi.Decompressor()
    try:
        # In slices, because a call that fails takes with it what it had decoded.
        for start in range(0, len(data), _BROTLI_SLICE_BYTES):
            feed = data[start : start + _BROTLI_SLICE_BYTES]
            while True:
                piece = decompressor.process(feed, output_buffer_limit=step_bytes)
                feed = b""
                if piece:
                    yield piece
                if decompressor.is_finished():
                    return
                if not piece and decompressor.can_accept_more_data():
                    break
    except brotlicffi.error as error:
        raise _BrokenError(str(error)) from error
    raise _BrokenError("it ends early")


def _zstd(data: bytes, step_bytes: int) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    produced = 0
    try:
        announced = zstandard.frame_content_size(data)
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            while piece := reader.read(step_bytes):
                produced += len(piece)
                yield piece
    except zstandard.ZstdError as error:
        raise _BrokenError(str(error)) from error
    # The reader does not mind a frame that stops short.
    if produced < (announced if announced >= 0 else 1):
        raise _BrokenError("it ends early")


_OPENERS: dict[str, _Opener] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
