from __future__ import annotations

import gzip

from headway.parse.digest import content_digest


def test_the_digest_is_what_sha256sum_prints() -> None:
    assert content_digest(b"abc") == (
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
    assert content_digest(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_one_octet_makes_another_digest() -> None:
    assert content_digest(b"a page") != content_digest(b"a page ")


def test_what_is_compressed_twice_has_one_digest_when_the_content_is_taken() -> None:
    first, second = gzip.compress(b"x" * 999, 1, mtime=1), gzip.compress(b"x" * 999, 9, mtime=2)
    assert content_digest(first) != content_digest(second)
    assert content_digest(gzip.decompress(first)) == content_digest(gzip.decompress(second))
