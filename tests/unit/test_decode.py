"""Content codings: taken off in a stream with a stop, and never at the cost of what can be read."""

from __future__ import annotations

import functools
import gzip
import zlib
from pathlib import Path

import brotlicffi
import pytest
import zstandard

from headway.http.decode import decode
from headway.http.models import Limits

VECTORS = Path(__file__).parents[3] / "shared" / "data" / "vectors" / "compression"
LIMITS = Limits()
TEXT = b"".join(
    b"<p>line %d of a page in which no two are alike: %x</p>\n" % (number, pow(3, number, 2**89 - 1))
    for number in range(6000)
)


def raw_deflate(data: bytes) -> bytes:
    return zlib.compress(data)[2:-4]


CODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": functools.partial(brotlicffi.compress, quality=4),
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("coding", CODERS)
@pytest.mark.parametrize("text", [b"", b"x", TEXT], ids=["nothing", "one byte", "a page"])
def test_what_was_coded_comes_back(coding, text):
    decoded = decode(CODERS[coding](text), coding, LIMITS)
    assert (decoded.body, decoded.bomb, decoded.detail) == (text, False, "")


def test_deflate_without_its_header_is_understood():
    assert decode(raw_deflate(TEXT), "deflate", LIMITS).body == TEXT


def test_all_members_and_frames_are_read():
    assert decode(gzip.compress(TEXT) + gzip.compress(b"end"), "gzip", LIMITS).body == TEXT + b"end"
    assert decode(zstandard.compress(TEXT) + zstandard.compress(b"end"), "zstd", LIMITS).body == TEXT + b"end"


def test_padding_after_gzip_is_left_out():
    assert decode(gzip.compress(TEXT) + b"\0" * 512, "gzip", LIMITS).body == TEXT


def test_stacked_codings_come_off_in_reverse():
    coded = brotlicffi.compress(gzip.compress(zlib.compress(TEXT)))
    assert decode(coded, "deflate, gzip,BR", LIMITS).body == TEXT


def test_identity_is_nothing():
    assert decode(TEXT, "identity", LIMITS).body == TEXT
    assert decode(gzip.compress(TEXT), "identity, gzip", LIMITS).body == TEXT
    assert decode(b"", "gzip", LIMITS).body == b""


def test_an_unknown_coding_is_kept_and_noted():
    decoded = decode(TEXT, "utf-8", LIMITS)
    assert decoded.body == TEXT
    assert "utf-8" in decoded.detail
    assert decode(gzip.compress(TEXT), "compress, gzip", LIMITS).body == TEXT


def test_too_many_codings_are_not_begun():
    decoded = decode(TEXT, ", ".join(["gzip"] * 50), LIMITS)
    assert (decoded.body, bool(decoded.detail)) == (TEXT, True)


@pytest.mark.parametrize("coding", CODERS)
def test_content_that_is_not_coded_at_all_is_kept(coding):
    decoded = decode(b"<html>plain, whatever the header says</html>", coding, LIMITS)
    assert decoded.body == b"<html>plain, whatever the header says</html>"
    assert "kept as received" in decoded.detail


@pytest.mark.parametrize("coding", CODERS)
def test_what_breaks_off_is_kept_up_to_there(coding):
    coded = CODERS[coding](TEXT)
    decoded = decode(coded[: len(coded) * 3 // 4], coding, LIMITS)
    assert TEXT.startswith(decoded.body)
    assert len(decoded.body) > len(TEXT) // 3


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_damage_loses_only_what_follows(coding):
    coded = bytearray(CODERS[coding](TEXT))
    for place in range(len(coded) * 3 // 4, len(coded) * 3 // 4 + 40):
        coded[place] ^= 0xFF
    decoded = decode(bytes(coded), coding, LIMITS)
    assert decoded.body[: len(TEXT) // 3] == TEXT[: len(TEXT) // 3]
    assert decoded.detail


@pytest.mark.parametrize("coding", CODERS)
def test_a_bomb_is_stopped_at_the_limit(coding):
    limits = Limits(max_decoded_bytes=300_000, ratio_counts_from_bytes=1_000_000)
    decoded = decode(CODERS[coding](b"\0" * 5_000_000), coding, limits)
    assert decoded.bomb
    assert len(decoded.body) <= 300_000
    assert "decode to more" in decoded.detail


@pytest.mark.parametrize("coding", CODERS)
def test_a_ratio_beyond_reason_is_a_bomb(coding):
    limits = Limits(max_decode_ratio=10, ratio_counts_from_bytes=1_000)
    assert decode(CODERS[coding](b"\0" * 1_000_000), coding, limits).bomb
    assert not decode(CODERS[coding](b"\0" * 900), coding, limits).bomb


def test_a_bomb_in_two_layers_is_stopped_in_either():
    limits = Limits(max_decoded_bytes=1_000_000, ratio_counts_from_bytes=1_000_000)
    bomb = gzip.compress(gzip.compress(b"\0" * 50_000_000))
    assert decode(bomb, "gzip, gzip", limits).bomb


def test_zstd_with_a_window_beyond_the_webs_is_not_taken():
    parameters = zstandard.ZstdCompressionParameters(
        window_log=27, compression_level=1, write_content_size=False
    )
    coded = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = coded.compress(TEXT) + coded.flush()
    assert "kept as received" in decode(data, "zstd", LIMITS).detail


@pytest.mark.skipif(not VECTORS.is_dir(), reason="the vectors of codings are not beside this repository")
class TestVectors:
    @pytest.mark.parametrize(
        ("name", "coding"),
        [
            ("html-br.bin", "br"),
            ("html-gzip.bin", "gzip"),
            ("html-gzip-deflate.bin", "gzip, deflate"),
            ("html-gzip-deflate-gzip.bin", "gzip, deflate, gzip"),
            ("html-rawdeflate.bin", "deflate"),
            ("html-zlibdeflate.bin", "deflate"),
            ("html-zstd-static-content-size.bin", "zstd"),
            ("html-zstd-static-no-content-size.bin", "zstd"),
            ("html-zstd-streaming-no-content-size.bin", "zstd"),
            ("feed-sample1.xml.gz", "gzip"),
        ],
    )
    def test_pages_of_others_are_read(self, name, coding):
        decoded = decode((VECTORS / name).read_bytes(), coding, LIMITS)
        assert decoded.body.lstrip().startswith(b"<")
        assert decoded.detail == ""

    @pytest.mark.parametrize("coding", ["br", "deflate", "gzip", "zstd"])
    def test_bombs_of_others_are_noticed(self, coding):
        decoded = decode((VECTORS / f"bomb-{coding}.bin").read_bytes(), coding, LIMITS)
        assert decoded.bomb

    def test_truncated_files_of_others_are_read_as_far_as_they_go(self):
        decoded = decode((VECTORS / "truncated-crc-error.gz").read_bytes(), "gzip", LIMITS)
        assert decoded.body.rstrip(b">").endswith(b"</html")
        decoded = decode((VECTORS / "truncated-crc-error-short.gz").read_bytes(), "gzip", LIMITS)
        assert decoded.body.rstrip(b">").endswith(b"</html")
        wanted = (VECTORS / "unexpected-eof-output.txt").read_bytes()
        decoded = decode((VECTORS / "unexpected-eof.gz").read_bytes(), "gzip", LIMITS)
        assert decoded.body.decode("cp1252") == wanted.decode("utf-8")
