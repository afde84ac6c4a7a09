"""What Squid says, line by line: its access log in the formats people use, and the helper's announcements.

Only method, URL, status and content type are taken; whoever asked is passed over unread.
"""

from __future__ import annotations

import re

import msgspec

_NATIVE = re.compile(
    r"\s*\d+\.\d+\s+-?\d+\s+\S+\s+(?P<result>[A-Z_]+)/(?P<status>\d{3})\s+\d+\s+"
    r"(?P<method>[A-Z]+)\s+(?P<url>\S+)\s+\S+\s+\S+/\S+\s+(?P<type>\S+)"
)
_COMMON = re.compile(
    r'\S+ \S+ .* \[[^\]]*\] "(?P<method>[A-Z]+) (?P<url>\S+) [^"]*" (?P<status>\d{3})(?: .*)?'
)
_OURS = re.compile(r"(?P<status>\d{3}) (?P<method>[A-Z]+) (?P<type>\S+) (?P<url>\S+)\s*")
_ANNOUNCED = re.compile(r"(?P<method>[A-Z]+|-) (?P<url>\S+)\s*")
_ABORTED = 499
"""Squid writes 000 when its client went away before there was an answer."""
LONGEST_LINE = 65_536
LOG_FORMAT = "logformat headway %>Hs %rm %mt %ru"
"""What `access_log tcp://... headway` is to use: it names neither client nor user."""


class Asked(msgspec.Struct, frozen=True, gc=False):
    method: str
    url: str
    status: int = 0
    """0: not known yet."""
    media_type: str = ""


def read_log_line(line: str) -> Asked | None:
    """A line of an access log, or None when it is none that we know."""
    if len(line) > LONGEST_LINE:
        return None
    for pattern in (_OURS, _NATIVE, _COMMON):
        if match := pattern.fullmatch(line) if pattern is not _NATIVE else pattern.match(line):
            fields = match.groupdict()
            media_type = fields.get("type") or ""
            return Asked(
                fields["method"],
                fields["url"],
                int(fields["status"]) or _ABORTED,
                media_type.partition(";")[0].lower() if "/" in media_type else "",
            )
    return None


def read_announced_line(line: str) -> Asked | None:
    """A line from the helper: a method, or a dash where Squid does not say, and a URL."""
    match = _ANNOUNCED.fullmatch(line) if len(line) <= LONGEST_LINE else None
    return Asked("GET" if match["method"] == "-" else match["method"], match["url"]) if match else None


class DatagramHead(msgspec.Struct, frozen=True, gc=False):
    helper: int
    number: int
    lost: int


def read_datagram(data: bytes) -> tuple[DatagramHead, list[str]] | None:
    """A datagram of the helper: who sent it, and its lines."""
    head, *lines = data.decode("utf-8", "replace").split("\n")
    match = re.fullmatch(r"headway 1 (\d{1,10}) (\d{1,15}) (\d{1,15})", head)
    if match is None:
        return None
    return DatagramHead(int(match[1]), int(match[2]), int(match[3])), lines
