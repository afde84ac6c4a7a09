"""Records made in C are those that Python makes, whichever threads make them."""

from __future__ import annotations

import os
import random
import re
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headway.archive import records
from headway.archive.warc import WarcArchive
from headway.errors import StoreError
from headway.model.page import Capture, Kind
from headway.pages.fingerprint import content_digests
from headway.ports import Original, Response
from headway.units import Instant, Seconds

_ID = re.compile(rb"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

needs_c = pytest.mark.skipif(records.load_sealer(0) is None, reason="built without a compiler")


def answer(dice: random.Random, number: int) -> Response:
    payload = dice.randbytes(dice.choice([0, 1, 70, 5000])) + b"word " * dice.choice([0, 20, 4000, 40_000])
    head = dice.choice(
        [
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"HTTP/1.0 200\r\nx: " + "é".encode() * dice.choice([1, 500]) + b"\r\n\r\n",
            b"",
        ]
    )
    return Response(
        kind=dice.choice([Kind.FETCHED, Kind.RESET]),
        url=f"http://example.org/{number}/" + "ü x" * dice.choice([0, 1, 900]),
        requested_at=Instant(1e9 + number),
        duration_s=Seconds(0.1),
        status=200,
        request_head=dice.choice([b"", b"GET / HTTP/1.1\r\n\r\n", b"GET /" + b"x" * 9000 + b"\r\n\r\n"]),
        head=head,
        payload=payload,
        body=payload,
        truncated=dice.choice([False, False, True]),
        peer=dice.choice(["192.0.2.1", "2001:db8::1", "", "odd"]),
    )


def write_all(archive: WarcArchive, answers: list[Response]) -> list[Capture]:
    captures = []
    for number, response in enumerate(answers):
        original = Original("http://example.org/first", Instant(5.0)) if number % 5 == 4 else None
        captures.append(
            archive.write(response, digest=content_digests([response.body])[0], revisit_of=original)
        )
    archive.flush()
    return captures


def records_at(folder: Path, captures: list[Capture]) -> list[bytes]:
    """What is found at each capture, with the request behind it; ids in the order in which they occur."""
    found = []
    for capture in captures:
        octets = (folder / capture.warc_file).read_bytes()[capture.warc_offset :]
        inflate = zlib.decompressobj(31)
        main = inflate.decompress(octets)
        assert capture.warc_length == len(octets) - len(inflate.unused_data)
        request = zlib.decompressobj(31).decompress(inflate.unused_data) if inflate.unused_data else b""
        if not request.startswith(b"WARC/1.1\r\nWARC-Type: request"):
            request = b""  # the next capture
        for number, each in enumerate(dict.fromkeys(_ID.findall(main + request))):
            main, request = (part.replace(each, b"id-%d" % number) for part in (main, request))
        found.append(main + request)
    return found


@needs_c
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_records_made_in_c_are_those_made_in_python(tmp_path: Path, threads: int) -> None:
    dice = random.Random(threads)
    answers = [answer(dice, number) for number in range(200)]
    kept = []
    for name in ("python", "c"):
        (tmp_path / name / "archive").mkdir(parents=True)
        archive = WarcArchive(tmp_path / name, threads=threads, max_file_bytes=3_000_000)
        if name == "python":
            archive._sealer = None
        archive.defers = True
        captures = write_all(archive, answers)
        archive.close()
        kept.append(records_at(tmp_path / name, captures))
    assert kept[0] == kept[1]


@needs_c
def test_a_deferred_capture_has_its_place_at_the_commit_and_in_the_order_of_writing(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    archive = WarcArchive(tmp_path, threads=2)
    archive.defers = True
    dice = random.Random(1)
    captures = [archive.write(answer(dice, number), digest="") for number in range(100)]
    notes = archive.notes_of(captures)
    assert len(notes) == 100
    assert [note.captured_at for note in notes.values()] == [1e9 + number for number in range(100)]
    offsets = [capture.warc_offset for capture in captures]
    assert offsets == sorted(offsets)
    archive.close()


@needs_c
def test_without_deferring_a_capture_has_its_place_at_once(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    archive = WarcArchive(tmp_path, threads=1)
    capture = archive.write(answer(random.Random(1), 0), digest="")
    assert capture.warc_file
    assert capture.warc_length
    archive.close()


@needs_c
def test_what_waits_for_its_records_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    archive = WarcArchive(tmp_path, threads=1)
    archive.defers = True
    payload = b"x" * (8 * 2**20)
    response = Response(
        Kind.FETCHED, "http://example.org/", Instant(1e9), Seconds(0.1), head=b"HTTP/1.1 200 OK\r\n\r\n"
    )
    for _ in range(5):
        capture = archive.write(_with(response, payload), digest="")
    assert capture.warc_file
    archive.close()


def _with(response: Response, payload: bytes) -> Response:
    return structs.replace(response, payload=payload, body=payload)


@needs_c
def test_after_a_full_disk_every_record_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "archive").mkdir()
    archive = WarcArchive(tmp_path, threads=1)
    archive.defers = True
    dice = random.Random(2)
    captures = [archive.write(answer(dice, number), digest="") for number in range(150)]

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StoreError, match="disk is full"):
            archive.flush()
    archive.flush()
    archive.close()
    assert len(records_at(tmp_path, captures)) == 150
    dates = [re.search(rb"WARC-Date: (\S+)", record) for record in records_at(tmp_path, captures)]
    assert [match[1] for match in dates if match] == [
        records.iso_utc(Instant(1e9 + number)).encode() for number in range(150)
    ]


def test_where_nothing_was_compiled_python_makes_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "ISAL_MAJOR_VERSION", 3)
    assert records.load_sealer(1) is None


LINES = st.sampled_from(
    [
        "Content-Type: text/html\r\n",
        "content-length: 5\r\n",
        "Content-Length:5\r\n",
        "Content-Length: 05\r\n",
        "Content-Length: 5 \r\n",
        "Content-Length: 6\r\n",
        "Content-Length-X: 6\r\n",
        "Transfer-Encoding: chunked\r\n",
        "X: transfer-encoding\r\n",
        "no colon\r\n",
        "X : y\r\n",
        " folded\r\n",
        "A: b\n",
        "A: \r b\r\n",
        "\r\n",
        "\0: x\r\n",
    ]
)
STATUS = st.sampled_from(
    [
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200\r\n",
        "HTTP/1.1 200OK\r\n",
        "HTTP/2 200\r\n",
        "HTTP/1.1 2x0 \r\n",
        "HTTP/1.1 200 a\nb\r\n",
    ]
)


@needs_c
@given(
    STATUS,
    st.lists(LINES, max_size=4),
    st.sampled_from(["\r\n", "", "\r\n\r\n", "\n"]),
    st.sampled_from([b"", b"12345"]),
)
def test_a_head_that_c_keeps_is_one_that_python_keeps(
    status: str, lines: list[str], end: str, payload: bytes
) -> None:
    head = (status + "".join(lines) + end).encode()
    response = structs.replace(answer(random.Random(1), 1), head=head, payload=payload, body=payload)
    kept = records.consistent_head(response)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_sealer", None)
        assert records.consistent_head(response) == kept
