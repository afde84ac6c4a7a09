"""Where Squid is listened to: a socket for the helper, a port for its log, or the log file itself."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headway.errors import HeadwayError


class ListenError(HeadwayError):
    """Squid cannot be listened to there."""


class HelperSocket(msgspec.Struct, frozen=True):
    path: Path


class UdpPort(msgspec.Struct, frozen=True):
    """For the helper on another machine, or for `access_log udp://HOST:PORT`."""

    host: str
    port: int


class TcpPort(msgspec.Struct, frozen=True):
    """For `access_log tcp://HOST:PORT`."""

    host: str
    port: int


class LogFile(msgspec.Struct, frozen=True):
    """What `access_log daemon:PATH` or `stdio:PATH` writes."""

    path: Path


Place = HelperSocket | UdpPort | TcpPort | LogFile


def parse_place(text: str) -> Place:
    """Read `unix:PATH`, `udp:HOST:PORT`, `tcp:HOST:PORT` or `tail:PATH`."""
    kind, _, rest = text.partition(":")
    rest = rest.removeprefix("//") if kind in {"udp", "tcp"} else rest
    if kind in {"unix", "tail"} and rest:
        return HelperSocket(Path(rest)) if kind == "unix" else LogFile(Path(rest))
    host, _, port = rest.rpartition(":")
    if kind in {"udp", "tcp"} and host and port.isdecimal() and int(port) < 65536:
        host = host.strip("[]")
        return UdpPort(host, int(port)) if kind == "udp" else TcpPort(host, int(port))
    raise ListenError(
        f"{text!r} is no place to listen at, such as 'unix:/run/headway.sock', 'udp:127.0.0.1:4801', "
        "'tcp:127.0.0.1:4801' or 'tail:/var/log/squid/access.log'"
    )
