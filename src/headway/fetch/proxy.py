"""A proxy as a value: where it is, how to log in, and which hosts go past it."""

from __future__ import annotations

import base64
import re
from urllib.parse import unquote

import can_ada
import msgspec

from headway.errors import JobError

_LOGIN = re.compile(rb"(?<=\r\n)Proxy-Authorization:[^\r\n]*\r\n")


class Proxy(msgspec.Struct, frozen=True):
    host: str
    port: int
    authorization: str = ""

    def headers(self) -> tuple[tuple[str, str], ...]:
        return (("Proxy-Authorization", self.authorization),) if self.authorization else ()

    def connect_head(self, authority: str, user_agent: str) -> bytes:
        """What opens a tunnel to an https site."""
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}", f"User-Agent: {user_agent}"]
        lines += [f"{name}: {value}" for name, value in self.headers()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def parse_proxy(url: str) -> Proxy:
    """Read "http://user:password@proxy.example:3128"."""
    try:
        parsed = can_ada.parse(url)
    except ValueError as error:
        told = url.rpartition("@")[2]  # never with its login
        raise JobError(f"proxy {told!r} is not a URL such as 'http://proxy.example:3128'") from error
    if parsed.protocol != "http:":
        told = f"{parsed.protocol}//{parsed.host}"
        raise JobError(f"proxy {told!r}: only http:// proxies are spoken to (they carry https as well)")
    authorization = ""
    if parsed.username or parsed.password:
        login = f"{unquote(parsed.username)}:{unquote(parsed.password)}"
        authorization = "Basic " + base64.b64encode(login.encode()).decode("ascii")
    return Proxy(parsed.hostname, int(parsed.port or 80), authorization)


def without_login(head: bytes) -> bytes:
    """A request's head as it may be kept: the way to the proxy is ours alone, and archives are passed on."""
    return _LOGIN.sub(b"", head) if b"Proxy-Authorization:" in head else head


def goes_past(host: str, no_proxy: tuple[str, ...]) -> bool:
    """Whether a host is named, or lies under a named domain; "*" names all."""
    host = host.lower().rstrip(".")
    for entry in no_proxy:
        name = entry.strip().lower().removeprefix("*.").strip(".")
        if entry.strip() == "*" or (name and (host == name or host.endswith("." + name))):
            return True
    return False
