from __future__ import annotations

import pytest

from headway.pages.headers import decode, in_utf_8

TEXT = "<p>naïve – Привет"


@pytest.mark.parametrize(
    ("mark", "encoding", "name"),
    [
        (b"\xef\xbb\xbf", "utf-8", "utf-8"),
        (b"\xff\xfe", "utf-16-le", "utf-16le"),
        (b"\xfe\xff", "utf-16-be", "utf-16be"),
    ],
)
def test_a_byte_order_mark_is_believed_first_and_removed(mark: bytes, encoding: str, name: str) -> None:
    content = mark + ("<meta charset=koi8-r>" + TEXT).encode(encoding)
    decoded = decode(content, "windows-1251")
    assert (decoded.text, decoded.charset, decoded.codec) == ("<meta charset=koi8-r>" + TEXT, name, "utf-8")


def test_the_http_header_comes_before_the_document() -> None:
    content = "<meta charset=utf-8>Привет".encode("koi8-r")
    assert decode(content, "KOI8-R").text == "<meta charset=utf-8>Привет"


@pytest.mark.parametrize(
    "declaration",
    [
        "<meta charset=windows-1251>",
        "<META CharSet = ' Windows-1251 '>",
        "<meta http-equiv=Content-Type content='text/html; charset=windows-1251'>",
        "<meta content='text/html; charset=\"windows-1251\"' http-equiv=content-type>",
        "<meta name=x><meta charset=nonsense><meta charset=cp1251>",
        "<!-- <meta charset=utf-8> --><meta charset=windows-1251>",
        "<?xml version='1.0' encoding='windows-1251'?>",
    ],
)
def test_the_document_is_believed_when_the_header_is_silent_or_unknown(declaration: str) -> None:
    content = (declaration + "Привет").encode("windows-1251")
    for header in ("", "no-such-charset", "utf\u20138"):
        decoded = decode(content, header)
        assert decoded.text.endswith("Привет")
        assert decoded.charset == "windows-1251"
        assert decoded.codec == "cp1251"


def test_only_the_first_1024_bytes_are_looked_at() -> None:
    declaration = b"<meta charset=windows-1251>"
    assert decode(b" " * 997 + declaration + b"\xef ").charset == "windows-1251"
    assert decode(b" " * 1024 + declaration + b"\xef ").charset == "windows-1252"


def test_a_document_that_calls_itself_utf_16_in_ascii_is_utf_8() -> None:
    assert decode("<meta charset=utf-16>é".encode()).text.endswith("é")
    assert decode(b"<meta charset=x-user-defined>\x80").charset == "windows-1252"


def test_without_a_declaration_utf_8_is_taken_if_it_fits() -> None:
    assert decode(TEXT.encode()) == (TEXT, "utf-8", "utf-8")
    assert decode(b"") == ("", "utf-8", "utf-8")
    assert decode("naïve".encode("latin-1")) == ("naïve", "windows-1252", "cp1252")


def test_a_character_cut_off_at_the_end_does_not_speak_against_utf_8() -> None:
    assert decode("é€".encode()[:-1]) == ("é", "utf-8", "utf-8")


@pytest.mark.parametrize(
    ("label", "name", "octets", "text"),
    [
        ("latin1", "windows-1252", b"\x93x\x94", "\u201cx\u201d"),
        ("ISO-8859-1", "windows-1252", b"\x80", "\u20ac"),
        ("us-ascii", "windows-1252", b"\xe9", "é"),
        ("gb2312", "gbk", "中文".encode("gbk"), "中文"),
        ("x-sjis", "shift_jis", "\u2460".encode("cp932"), "\u2460"),
        ("ks_c_5601-1987", "euc-kr", "한글".encode("cp949"), "한글"),
        ("big5-hkscs", "big5", "中文".encode("big5"), "中文"),
        ("iso-8859-9", "windows-1254", b"\xfd", "ı"),
        ("tis-620", "windows-874", b"\xa1", "ก"),
        ("utf8", "utf-8", "é".encode(), "é"),
        ("unicode", "utf-16le", "é".encode("utf-16-le"), "é"),
    ],
)
def test_labels_mean_what_browsers_take_them_for(label: str, name: str, octets: bytes, text: str) -> None:
    assert decode(octets, label)[:2] == (text, name)


@pytest.mark.parametrize(
    "label", ["hex", "rot13", "idna", "punycode", "zip", "unicode_escape", "raw_unicode_escape"]
)
def test_python_codecs_that_are_no_charsets_are_unknown(label: str) -> None:
    assert decode(b"\\u0041x", label) == ("\\u0041x", "utf-8", "utf-8")


def test_octets_that_mean_nothing_are_replaced() -> None:
    assert decode(b"a\xff\xfeb", "utf-8").text == "a\ufffd\ufffdb"
    assert decode(b"abc\xff", "iso-2022-kr").charset == "replacement"


@pytest.mark.parametrize(
    "http_charset", ["", "utf-8", "windows-1251", "shift_jis", "utf-16le", "iso-2022-jp", "nonsense"]
)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<p>plain",
        TEXT.encode(),
        TEXT.encode("utf-16"),
        b"\xef\xbb\xbf" + TEXT.encode(),
        "<meta charset=koi8-r>Привет".encode("koi8-r"),
        b"<p>\xe9\xff",
        b"<meta charset=utf-8>\xe9<",
    ],
)
def test_in_utf_8_it_says_what_the_text_says(content: bytes, http_charset: str) -> None:
    octets, *told = in_utf_8(content, http_charset)
    text, *expected = decode(content, http_charset)
    assert (octets.decode("utf-8", "replace"), told) == (text, expected)


def test_what_is_utf_8_already_is_not_touched() -> None:
    content = TEXT.encode()
    assert in_utf_8(content).octets is content
    assert in_utf_8(content, "utf-8").octets is content
