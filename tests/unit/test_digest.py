from __future__ import annotations

import base64
import gzip
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.pages import fingerprint, sha1
from headway.pages.fingerprint import content_digests, digest_like, sha1_digests

LENGTHS = st.sampled_from([0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 200, 1000, 5000])
OCTETS = st.builds(
    lambda length, seed: bytes((seed + i * i) & 255 for i in range(length)), LENGTHS, st.integers(0, 255)
)
MESSAGES = st.lists(OCTETS | st.tuples(OCTETS, OCTETS), max_size=20)


def content_digest(content: bytes) -> str:
    return content_digests([content])[0]


def by_hashlib(message: bytes | tuple[bytes, bytes]) -> str:
    octets = message if isinstance(message, bytes) else b"".join(message)
    return "sha1:" + base64.b32encode(hashlib.sha1(octets, usedforsecurity=False).digest()).decode()


def test_the_digest_is_that_of_the_archive() -> None:
    assert content_digest(b"abc") == "sha1:VGMT4NSHA2AWVOR6EVYXQUGCNSONBWE5"
    assert content_digest(b"") == "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"


def test_sha_256_is_computed_where_it_is_asked_for() -> None:
    digest = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert content_digests([b"abc"], "sha256") == [digest]
    assert digest_like(digest, b"abc") == digest
    assert digest_like(content_digest(b""), b"abc") == content_digest(b"abc")


def test_one_octet_makes_another_digest() -> None:
    assert content_digest(b"a page") != content_digest(b"a page ")


def test_what_is_compressed_twice_has_one_digest_when_the_content_is_taken() -> None:
    first, second = gzip.compress(b"x" * 999, 1, mtime=1), gzip.compress(b"x" * 999, 9, mtime=2)
    assert content_digest(first) != content_digest(second)
    assert content_digest(gzip.decompress(first)) == content_digest(gzip.decompress(second))


@given(MESSAGES)
def test_many_digests_are_those_of_hashlib(messages: list[bytes | tuple[bytes, bytes]]) -> None:
    assert sha1_digests(messages) == [by_hashlib(message) for message in messages]


@pytest.mark.skipif(sha1 is None, reason="built without a compiler")
@given(MESSAGES)
def test_every_way_that_the_processor_has_gives_the_same_digests(
    messages: list[bytes | tuple[bytes, bytes]],
) -> None:
    assert sha1 is not None
    for way in sha1.ways():
        assert sha1.digests(messages, way) == [by_hashlib(message) for message in messages]


def test_without_a_compiler_the_digests_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "sha1", None)
    assert content_digests([b"abc", b""]) == [by_hashlib(b"abc"), by_hashlib(b"")]


@pytest.mark.skipif(sha1 is None, reason="built without a compiler")
@pytest.mark.parametrize("odd", [["text"], [(b"a", b"b", b"c")], [()], [(b"a", "b")]])
def test_what_is_no_message_is_refused(odd: list[object]) -> None:
    assert sha1 is not None
    with pytest.raises(TypeError, match="message"):
        sha1.digests(odd)
