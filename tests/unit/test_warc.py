"""WARC files: every reader agrees on them, and no URL or header can break a record."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
import stat
import uuid
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator
from warcio.cli import main as warcio_main

from headway.archive import records
from headway.archive.warc import WarcArchive
from headway.errors import StoreError
from headway.model.page import Kind
from headway.pages.fingerprint import sha1_digests
from headway.ports import Original, Response

BODY = b"<html>" + random.Random(7).randbytes(3000).hex().encode() + b"</html>"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(BODY)
MEMORY_DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None
REQUEST = b"GET /p HTTP/1.1\r\nHost: www.example.org\r\n\r\n"


def make_response(**changes):
    values = {
        "kind": Kind.FETCHED,
        "url": "http://www.example.org/p",
        "requested_at": 1763251446.204475,
        "duration_s": 0.25,
        "status": 200,
        "request_head": REQUEST,
        "head": HEAD,
        "payload": BODY,
        "body": BODY,
        "peer": "192.0.2.7",
    }
    return Response(**(values | changes))


@pytest.fixture
def archive(tmp_path):
    (tmp_path / "archive").mkdir()
    archive = WarcArchive(tmp_path, info={"http-header-user-agent": "test/1.0"})
    yield archive
    archive.close()


def files_of(folder):
    return sorted((folder / "archive").iterdir())


def records_of(folder):
    """All records as warcio reads them: type, WARC headers, HTTP headers, payload."""
    read = []
    for path in files_of(folder):
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, check_digests="raise", verify_http=True):
                payload = record.raw_stream.read()
                read.append((record.rec_type, record.rec_headers, record.http_headers, payload))
    return read


def strict_payloads(path):
    """The responses' payloads by the letter of the format, with nothing but zlib."""
    rest, payloads = path.read_bytes(), []
    while rest:
        unpacker = zlib.decompressobj(31)
        text, rest = unpacker.decompress(rest), unpacker.unused_data
        header, block = text.split(b"\r\n\r\n", 1)
        version, *lines = header.decode().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines)
        assert version == "WARC/1.1"
        assert len(fields) == len(lines)
        assert block[int(fields["Content-Length"]) :] == b"\r\n\r\n"
        block = block[:-4]
        assert fields["WARC-Block-Digest"] == base32_sha1(block)
        if fields["WARC-Type"] == "response":
            payloads.append(block.split(b"\r\n\r\n", 1)[1])
            assert fields["WARC-Payload-Digest"] == base32_sha1(payloads[-1])
    return payloads


def base32_sha1(data):
    return "sha1:" + base64.b32encode(hashlib.sha1(data).digest()).decode()


def check_with_both_readers(folder):
    """`warcio check` and a strict reader find nothing wrong; returns the payloads of responses."""
    for path in files_of(folder):
        with pytest.raises(SystemExit) as exit_info:
            warcio_main(["check", str(path)])
        assert exit_info.value.code == 0
    return [payload for path in files_of(folder) for payload in strict_payloads(path)]


def test_a_capture_is_a_response_and_its_request(archive, tmp_path):
    archive.write(make_response(), digest="x")
    archive.close()
    kinds = [kind for kind, *_ in records_of(tmp_path)]
    assert kinds == ["warcinfo", "response", "request"]
    _, response, http, payload = records_of(tmp_path)[1]
    assert response.get_header("WARC-Target-URI") == "http://www.example.org/p"
    assert response.get_header("WARC-Date") == "2025-11-16T00:04:06.204475Z"
    assert response.get_header("WARC-IP-Address") == "192.0.2.7"
    assert response.get_header("WARC-Truncated") is None
    assert http.get_header("Content-Type") == "text/html"
    assert payload == BODY
    _, request, *_ = records_of(tmp_path)[2]
    assert request.get_header("WARC-Concurrent-To") == response.get_header("WARC-Record-ID")
    assert check_with_both_readers(tmp_path) == [BODY]


def test_the_capture_tells_where_the_record_lies(archive, tmp_path):
    archive.write(make_response(), digest="x")
    capture = archive.write(make_response(url="http://www.example.org/second"), digest="x")
    archive.flush()
    data = (tmp_path / capture.warc_file).read_bytes()
    member = data[capture.warc_offset : capture.warc_offset + capture.warc_length]
    text = zlib.decompressobj(31).decompress(member)
    assert b"WARC-Target-URI: http://www.example.org/second\r\n" in text
    assert text.endswith(BODY + b"\r\n\r\n")


def test_every_record_is_a_gzip_member_of_its_own(archive, tmp_path):
    for _ in range(3):
        archive.write(make_response(), digest="x")
    archive.close()
    rest, members = files_of(tmp_path)[0].read_bytes(), 0
    while rest:
        unpacker = zlib.decompressobj(31)
        assert unpacker.decompress(rest).startswith(b"WARC/1.1\r\n")
        rest, members = unpacker.unused_data, members + 1
    assert members == 1 + 3 * 2


def test_warcinfo_names_the_software_and_the_file(archive, tmp_path):
    archive.write(make_response(), digest="x")
    archive.close()
    kind, headers, _, block = records_of(tmp_path)[0]
    assert kind == "warcinfo"
    assert headers.get_header("WARC-Filename") == files_of(tmp_path)[0].name
    assert b"software: headway" in block
    assert b"http-header-user-agent: test/1.0" in block


def test_chunked_answers_are_kept_without_their_chunks(archive, tmp_path):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/html\r\n\r\n"
    archive.write(make_response(head=head), digest="x")
    archive.close()
    _, _, http, payload = records_of(tmp_path)[1]
    assert http.get_header("Transfer-Encoding") is None
    assert http.get_header("X-Orig-Transfer-Encoding") == "chunked"
    assert http.get_header("Content-Length") == str(len(BODY))
    assert payload == BODY
    assert check_with_both_readers(tmp_path) == [BODY]


def test_payload_digests_agree_whatever_the_chunking(archive, tmp_path):
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding:  Chunked\r\n\r\n"
    archive.write(make_response(head=chunked), digest="x")
    archive.write(make_response(), digest="x")
    archive.close()
    digests = {
        headers.get_header("WARC-Payload-Digest")
        for kind, headers, *_ in records_of(tmp_path)
        if kind == "response"
    }
    assert len(digests) == 1


def test_a_truncated_answer_says_so_and_names_the_length_it_has(archive, tmp_path):
    cases = {
        Kind.FETCHED: "length",
        Kind.TIMEOUT_IDLE: "time",
        Kind.RESET: "disconnect",
        Kind.TLS: "unspecified",
    }
    for kind in cases:
        archive.write(make_response(kind=kind, payload=BODY[:100], truncated=True), digest="x")
    archive.close()
    responses = [entry for entry in records_of(tmp_path) if entry[0] == "response"]
    assert [headers.get_header("WARC-Truncated") for _, headers, *_ in responses] == list(cases.values())
    for _, _, http, payload in responses:
        assert http.get_header("Content-Length") == "100"
        assert http.get_header("X-Orig-Content-Length") == str(len(BODY))
        assert payload == BODY[:100]


def test_a_304_may_name_the_length_of_a_body_it_does_not_carry(archive, tmp_path):
    head = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1234\r\n\r\n"
    archive.write(make_response(head=head, payload=b"", status=304), digest="x")
    archive.close()
    assert records_of(tmp_path)[1][2].get_header("Content-Length") == "1234"


def test_an_answer_without_a_head_is_kept_as_a_resource(archive, tmp_path):
    archive.write(make_response(head=b"", status=0), digest="x")
    archive.close()
    kind, _, _, payload = records_of(tmp_path)[1]
    assert (kind, payload) == ("resource", BODY)
    check_with_both_readers(tmp_path)


def test_an_identical_payload_becomes_a_revisit(archive, tmp_path):
    original = archive.write(make_response(), digest="x")
    refers_to = Original("http://www.example.org/p", 1763251446.204475)
    copy = archive.write(make_response(url="http://www.example.org/q"), digest="x", revisit_of=refers_to)
    archive.close()
    entry = [entry for entry in records_of(tmp_path) if entry[0] == "revisit"]
    [(_, headers, http, payload)] = entry
    first = records_of(tmp_path)[1][1]
    assert headers.get_header("WARC-Profile") == records.REVISIT_PROFILE
    assert headers.get_header("WARC-Refers-To-Target-URI") == first.get_header("WARC-Target-URI")
    assert headers.get_header("WARC-Refers-To-Date") == first.get_header("WARC-Date")
    assert headers.get_header("WARC-Payload-Digest") == first.get_header("WARC-Payload-Digest")
    assert http.get_header("Content-Length") == str(len(BODY))
    assert payload == b""
    assert copy.warc_length < original.warc_length
    check_with_both_readers(tmp_path)


def test_equal_contents_in_other_octets_are_kept_in_full(tmp_path):
    (tmp_path / "archive").mkdir()
    kept = sha1_digests([gzip.compress(BODY)])[0]
    archive = WarcArchive(tmp_path, payload_digest_of={"content": kept}.get)
    refers_to = Original("http://www.example.org/p", 1.0)
    archive.write(make_response(), digest="content", revisit_of=refers_to)
    archive.write(make_response(), digest="unknown", revisit_of=refers_to)
    archive.close()
    assert [kind for kind, *_ in records_of(tmp_path) if kind != "request"] == [
        "warcinfo",
        "response",
        "response",
    ]


def test_a_copy_of_an_uncommitted_capture_is_a_revisit_too(tmp_path):
    (tmp_path / "archive").mkdir()
    archive = WarcArchive(tmp_path, payload_digest_of=lambda _: None)
    archive.write(make_response(), digest="content")
    refers_to = Original("http://www.example.org/p", 1763251446.204475)
    archive.write(make_response(), digest="content", revisit_of=refers_to)
    archive.close()
    kinds = [kind for kind, *_ in records_of(tmp_path) if kind != "request"]
    assert kinds == ["warcinfo", "response", "revisit"]


def test_files_are_turned_over_at_their_size(tmp_path):
    (tmp_path / "archive").mkdir()
    archive = WarcArchive(tmp_path, max_file_bytes=3000)
    captures = [archive.write(make_response(), digest="x") for _ in range(20)]
    lengths = archive.flush()
    archive.close()
    assert len(lengths) == len(files_of(tmp_path)) > 3
    assert {capture.warc_file for capture in captures} == set(lengths)
    for name, length_bytes in lengths.items():
        assert (tmp_path / name).stat().st_size == length_bytes < 3000 + 2000
    assert check_with_both_readers(tmp_path) == [BODY] * 20
    for path in files_of(tmp_path):
        with path.open("rb") as stream:
            assert next(iter(ArchiveIterator(stream))).rec_type == "warcinfo"


def test_nothing_is_made_before_the_first_capture(archive, tmp_path):
    assert archive.flush() == {}
    assert files_of(tmp_path) == []


def test_another_start_at_the_same_second_takes_another_name(tmp_path):
    (tmp_path / "archive").mkdir()
    for _ in range(5):
        archive = WarcArchive(tmp_path)
        archive.write(make_response(), digest="x")
        archive.close()
    assert len(files_of(tmp_path)) == 5


def test_files_are_writable_only_by_their_owner(archive, tmp_path):
    archive.write(make_response(), digest="x")
    assert stat.S_IMODE(files_of(tmp_path)[0].stat().st_mode) & ~0o644 == 0


def test_a_missing_folder_is_a_clear_error(tmp_path):
    archive = WarcArchive(tmp_path / "gone")
    with pytest.raises(StoreError, match="cannot be reached"):
        archive.write(make_response(), digest="x")


def test_nothing_is_written_outside_the_folder_whatever_the_url(archive, tmp_path):
    for url in (
        "http://../../etc/passwd",
        "file:///etc/passwd",
        "http://h/../../../x",
        "http://h/%2e%2e/\x00",
    ):
        archive.write(make_response(url=url), digest="../../x")
    archive.close()
    assert {path.name for path in tmp_path.iterdir()} == {"archive"}
    assert len(files_of(tmp_path)) == 1


ODD_URLS = st.text(max_size=40).map(lambda tail: "http://www.example.org/" + tail)
ODD_LINES = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [
            b"", b" ", b"\t", b"\x0b", b"\xa0", b"\x85", b"X: y", b" folded", b"Transfer-Encoding: chunked",
            b"transfer-encoding:gzip, chunked", b"Content-Length: 5", b"Content-Length: 5, 6",
            b"Content-Length: -1", b"content-length : 7", b"no colon", b": no name", b"WARC/1.1",
            b"X: \x00\xff", b"X:\r", b"\rX: y",
            b"Content-Encoding: gzip",
        ]
    ),
)  # fmt: skip
ODD_HEADS = st.builds(
    lambda status, lines, end: end.join([status, *lines]) + end + end,
    st.sampled_from(
        [b"HTTP/1.1 200 OK", b"HTTP/1.0 404", b"HTTP/2 200", b"HTTP/1.1  200", b"ICY 200 OK", b"junk", b" "]
    ),
    st.lists(ODD_LINES, max_size=6),
    st.sampled_from([b"\r\n", b"\n"]),
)


@settings(max_examples=150, deadline=None)
@given(url=ODD_URLS, head=ODD_HEADS, payload=st.binary(max_size=60), peer=st.text(max_size=20))
@example("http://h/\r\nWARC-Type: warcinfo\r\n\r\nWARC/1.1\r\n", HEAD, b"x", "1\r\nX: y")
@example("http://h/\udc80 \u202e", HEAD, b"WARC/1.1\r\nWARC-Type: response\r\n\r\n", "fe80::1%eth0")
@example("http://h/", b"HTTP/1.1 200 OK\r\n \r\nX: y\r\n\r\n", b"p", "::1")
def test_no_url_head_or_payload_breaks_a_record(url, head, payload, peer):
    with TemporaryDirectory(dir=MEMORY_DISK) as name:
        folder = Path(name)
        (folder / "archive").mkdir()
        archive = WarcArchive(folder)
        archive.write(make_response(url=url, head=head, payload=payload, peer=peer), digest="x")
        archive.write(make_response(), digest="x")
        archive.close()
        read = records_of(folder)
        assert strict_payloads(files_of(folder)[0]) == [payload, BODY]
    assert [kind for kind, *_ in read] == ["warcinfo", "response", "request", "response", "request"]
    _, headers, http, kept = read[1]
    assert kept == payload
    uri = headers.get_header("WARC-Target-URI")
    assert uri.isascii()
    assert uri.isprintable()
    assert http.get_header("Content-Length") in {None, str(len(payload))}
    assert http.get_header("Transfer-Encoding") is None


@given(st.binary(max_size=300))
def test_digests_are_sha1_in_base32(data):
    assert sha1_digests([data, (data[:7], data[7:])]) == [base32_sha1(data)] * 2


def test_record_ids_are_random_uuids():
    ids = {records.new_record_id() for _ in range(200)}
    assert len(ids) == 200
    for each in ids:
        parsed = uuid.UUID(each.strip("<>").removeprefix("urn:uuid:"))
        assert (parsed.version, parsed.variant) == (4, uuid.RFC_4122)


def test_what_is_compressed_small_is_read_back_whole(archive, tmp_path):
    bodies = [b"", b"\x00" * 3_000_000, bytes(range(256)) * 50]
    for body in bodies:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        archive.write(make_response(head=head, payload=body), digest="x")
    archive.close()
    assert check_with_both_readers(tmp_path) == bodies
    assert gzip.decompress(files_of(tmp_path)[0].read_bytes()).count(b"WARC/1.1\r\n") == 7
