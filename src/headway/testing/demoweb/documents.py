"""Bodies that are not HTML, each a valid file of its type and of exactly the size asked for."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

_LINE_CHARS = 78


def plain_text(title: str, sentences: Iterator[str], size_bytes: int) -> bytes:
    lines = [title, "=" * len(title), ""]
    length = sum(len(line) + 1 for line in lines)
    while length < size_bytes:
        lines.append(next(sentences))
        length += len(lines[-1]) + 1
    return "\n".join(lines).encode()[: size_bytes - 1] + b"\n"


def stylesheet(size_bytes: int) -> bytes:
    rules = b"body { font: 1rem/1.5 Georgia, serif; max-width: 44rem; margin: 2rem auto; }\n"
    rules += b"nav a { margin-right: 1rem; }\nh1 { font-weight: normal; }\n"
    return rules + b"/*" + b"-" * (size_bytes - len(rules) - 5) + b"*/\n"


def postscript(title: str, sentences: Iterator[str], size_bytes: int) -> bytes:
    head = f"%!PS-Adobe-3.0\n%%Title: {title}\n%%Pages: 1\n%%EndComments\n"
    head += f"/Times-Roman findfont 18 scalefont setfont\n72 720 moveto ({title}) show\n"
    tail = b"showpage\n%%EOF\n"
    return head.encode() + _comments(sentences, size_bytes - len(head) - len(tail)) + tail


def pdf(title: str, sentences: Iterator[str], size_bytes: int) -> bytes:
    """One page with the title; the size is made up of comment lines, which viewers skip."""
    text = title.replace("\\", "").replace("(", "").replace(")", "")
    stream = f"BT /F1 18 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
            b" /Resources << /Font << /F1 5 0 R >> >> >>"
        ),
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman >>",
    ]
    out, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"xref\n0 6\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % at for at in offsets)
    trailer = b"trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n%010d\n%%%%EOF\n"
    room = size_bytes - len(out) - len(table) - len(trailer % 0)
    out += _comments(sentences, room)
    return bytes(out) + table + trailer % len(out)


def png(shade: int, size_bytes: int) -> bytes:
    """A grey square of 64 pixels; the size is made up of a text chunk."""
    rows = b"".join(b"\0" + bytes((shade + x + y) % 256 for x in range(64)) for y in range(64))
    head = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0))
    tail = _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")
    comment = b"Comment\0" + b"." * (size_bytes - len(head) - len(tail) - 12 - 8)
    return head + _chunk(b"tEXt", comment) + tail


def empty_zip(size_bytes: int) -> bytes:
    """An archive without entries; the size is made up of its comment."""
    comment = b"." * (size_bytes - 22)
    return b"PK\5\6" + b"\0" * 16 + struct.pack("<H", len(comment)) + comment


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _comments(sentences: Iterator[str], size_bytes: int) -> bytes:
    """Lines of text, each behind a %, of exactly this length."""
    lines: list[str] = []
    left = size_bytes
    while left > 0:
        line = f"% {next(sentences)}"[: min(_LINE_CHARS, left - 1)] if left > 1 else ""
        lines.append(line)
        left -= len(line) + 1
    return "".join(f"{line}\n" for line in lines).encode()
