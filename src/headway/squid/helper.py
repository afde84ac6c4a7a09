"""The program that Squid asks about URLs. It answers "no match" to each, and announces the URL to headway.

    url_rewrite_program /path/to/headway-squid-helper /path/to/helper.sock

It works as a URL rewriter that rewrites nothing, and as an access rule that never matches.

Squid waits for each answer, so the answer is written first and does not depend on headway: announcements are
datagrams, sent without blocking. If headway cannot receive them, the latest are kept and sent later; the
others are counted as lost, and headway receives that count. Only a small part of the standard library is
imported, since Squid may start many helpers.
"""

from __future__ import annotations

import errno
import math
import os
import select
import socket
import sys
import time

UNIX_DATAGRAM_BYTES = 32_768
UDP_DATAGRAM_BYTES = 1_300
LONGEST_LINE = 65_536
MOST_KEPT = 10_000
"""Announcements kept while headway is busy or not running."""
_COMPLAIN_EVERY_S = 60.0
_READ_BYTES = 65_536
_RETRY_AFTER_S = 0.05
_BATCH_S = 0.02
"""Announcements wait this long for more: one datagram for many saves CPU time on a busy proxy's machine."""
_SEND_BUFFER_BYTES = 4 * 1024 * 1024


def split_line(line: bytes) -> tuple[bytes, bytes]:
    """The channel number, if Squid sent one, and the rest. Unambiguous, since no URL consists of digits."""
    first, _, rest = line.partition(b" ")
    return (first, rest) if first.isdigit() else (b"", line)


def answer_to(channel: bytes) -> bytes:
    """The reply ERR: do not rewrite the URL, or: the rule does not match."""
    return channel + b" ERR\n" if channel else b"ERR\n"


def announcement_of(request: bytes) -> bytes:
    """`GET http://...`, from a rewriter's `http://... 10.0.0.1/- - GET myip=...` without the client's
    address, or from an access rule's `GET http://... -`."""
    fields = request.split(b" ", 4)
    if fields[0].isupper() and fields[0].isalpha() and len(fields) > 1:
        return fields[0] + b" " + fields[1]
    method = fields[3] if len(fields) > 3 else b"-"
    return method + b" " + fields[0]


class Announcer:
    """Sends announcements to headway without blocking. The latest `MOST_KEPT` that could not be sent are kept
    for the next attempt; older ones are dropped and counted in `lost`."""

    def __init__(self, address: str) -> None:
        kind, _, rest = address.partition(":")
        if kind == "udp":
            host, _, port = rest.rpartition(":")
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._to: tuple[str, int] | str = (host.strip("[]"), int(port))
            self._most_bytes = UDP_DATAGRAM_BYTES
        else:
            family = socket.AF_UNIX
            self._to = rest if kind == "unix" else address
            self._most_bytes = UNIX_DATAGRAM_BYTES
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._number = 0
        self.lost = 0
        self._reported_lost = 0
        self.backlog: list[bytes] = []
        self._complained_at = -_COMPLAIN_EVERY_S
        self._due_at = math.inf

    def announce(self, lines: list[bytes]) -> None:
        """Add announcements, and send the backlog if it is due."""
        self.backlog += lines
        now = time.monotonic()
        if self._due_at == math.inf and lines:
            self._due_at = now + _BATCH_S
        if now >= self._due_at or len(self.backlog) > MOST_KEPT:
            self.flush()
        if len(self.backlog) > MOST_KEPT:
            self.lost += len(self.backlog) - MOST_KEPT
            del self.backlog[:-MOST_KEPT]

    def wait_s(self) -> float | None:
        """Time until the backlog is due; None if it is empty."""
        return max(0.0, self._due_at - time.monotonic()) if self.backlog else None

    def flush(self) -> None:
        """Send as much of the backlog as possible without blocking."""
        self._due_at = math.inf
        while self.backlog:
            size = count = 0
            for line in self.backlog:
                size += len(line) + 1
                if count and size > self._most_bytes:
                    break
                count += 1
            if not self._send(self.backlog[:count]):
                self._due_at = time.monotonic() + _RETRY_AFTER_S
                break
            del self.backlog[:count]

    def finish(self) -> None:
        """Send the backlog a last time, report the number of lost announcements, and close the socket."""
        self.flush()
        self.lost += len(self.backlog)
        if self.lost > self._reported_lost:
            self._send([])
        self._socket.close()

    def _send(self, lines: list[bytes]) -> bool:
        head = b"headway 1 %d %d %d" % (os.getpid(), self._number, self.lost)
        try:
            self._socket.sendto(b"\n".join([head, *lines]), self._to)
        except OSError as problem:
            self._complain(problem)
            if problem.errno != errno.EMSGSIZE:
                return False
            self.lost += len(lines)  # too long for a datagram: sending again would fail, too
            return True
        self._number += 1
        self._reported_lost = self.lost
        return True

    def _complain(self, problem: OSError) -> None:
        now = time.monotonic()
        if problem.errno != errno.EAGAIN and now >= self._complained_at + _COMPLAIN_EVERY_S:
            self._complained_at = now
            text = f"headway-squid-helper: {self._to}: {problem.strerror}; {self.lost} announcements lost\n"
            os.write(2, text.encode(errors="replace"))


def serve(announcer: Announcer, requests: int = 0, answers: int = 1) -> None:
    """Answer until Squid closes its end."""
    rest = b""
    while True:
        is_ready, _, _ = select.select([requests], [], [], announcer.wait_s())
        if not is_ready:
            announcer.flush()
            continue
        chunk = os.read(requests, _READ_BYTES)
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        rest = rest[:LONGEST_LINE]  # enough of an overlong line to find its channel number
        replies, announcements = [], []
        for line in lines:
            channel, request = split_line(line.rstrip(b"\r"))
            replies.append(answer_to(channel))
            if request:
                announcements.append(announcement_of(request[:LONGEST_LINE]))
        _write_all(answers, b"".join(replies))
        announcer.announce(announcements)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] in {"-h", "--help"}:
        usage = (
            "Usage: headway-squid-helper ADDRESS\n"
            "ADDRESS is where `headway listen-squid` listens: the path of a Unix socket, or udp:HOST:PORT\n"
        )
        os.write(2, usage.encode())
        sys.exit(2)
    announcer = Announcer(sys.argv[1])
    try:
        serve(announcer)
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # Squid has ended
    finally:
        announcer.finish()


if __name__ == "__main__":
    main()
