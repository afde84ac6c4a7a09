"""Laws of decoding: it gives back what was coded, never more than allowed, and never raises."""

from __future__ import annotations

import functools
import gzip
import zlib

import brotlicffi
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.http.decode import decode
from headway.http.models import Limits

CODERS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": functools.partial(brotlicffi.compress, quality=2),
    "zstd": zstandard.compress,
}
SMALL = Limits(max_decoded_bytes=50_000, max_decode_ratio=20, ratio_counts_from_bytes=10_000)
BEGINS_WITH_NOTHING = {
    "gzip": b"\x1f\x8c",  # the second octet of its mark is another
    "deflate": b"\xff\xff",  # neither the head of zlib's format nor a kind of block
    "br": b"\x11",  # a window that is reserved
    "zstd": b"\x28\xb5\x2f\xfe",  # the last octet of its mark is another
}
codings = st.sampled_from(sorted(CODERS))


@given(st.binary(min_size=1, max_size=5_000), st.lists(codings, min_size=1, max_size=4))
def test_decoding_undoes_coding(content, stack):
    coded = content
    for coding in stack:
        coded = CODERS[coding](coded)
    decoded = decode(coded, ", ".join(stack), Limits())
    assert (decoded.body, decoded.bomb) == (content, False)


@given(codings, st.binary(min_size=1, max_size=300), st.integers(1, 2_000))
@settings(max_examples=60)
def test_never_more_than_allowed(coding, pattern, times):
    decoded = decode(CODERS[coding](pattern * times), coding, SMALL)
    assert len(decoded.body) <= SMALL.max_decoded_bytes
    assert decoded.bomb or decoded.body == pattern * times


@given(codings, st.binary(max_size=3_000))
def test_rubbish_is_kept_and_never_raises(coding, rubbish):
    """Octets that no coder would begin with: whatever follows them is had as it came, with a note."""
    rubbish = BEGINS_WITH_NOTHING[coding] + rubbish
    decoded = decode(rubbish, coding, SMALL)
    assert (decoded.body, decoded.bomb) == (rubbish, False)
    assert f"not {coding}" in decoded.detail


@given(codings, st.binary(min_size=1, max_size=3_000), st.data())
def test_what_breaks_off_is_kept_up_to_there_with_a_note(coding, content, data):
    coded = CODERS[coding](content)
    cut = coded[: data.draw(st.integers(1, len(coded) - 1))]
    decoded = decode(cut, coding, Limits())
    assert content.startswith(decoded.body) or decoded.body == cut
    assert coding in decoded.detail


@given(codings, st.binary(min_size=50, max_size=3_000), st.data())
def test_damage_never_raises(coding, content, data):
    coded = bytearray(CODERS[coding](content * 3))
    for _ in range(data.draw(st.integers(1, 4))):
        coded[data.draw(st.integers(0, len(coded) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(1, len(coded)))
    assert len(decode(bytes(coded[:end]), coding, SMALL).body) <= SMALL.max_decoded_bytes
