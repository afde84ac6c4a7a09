"""Values of the HTTP client: options, timeouts, limits, proxy, and the target of a URL."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from urllib.parse import unquote

import can_ada
import msgspec

from headway.errors import JobError
from headway.http.identity import Signer


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Each timeout has its own `Kind`. Time that a request waits for our own pacer counts against none."""

    connect_s: float = 10.0
    """For name lookup, TCP connection and TLS handshake together."""
    first_byte_s: float = 20.0
    idle_s: float = 20.0
    """Between two pieces of received data."""
    total_s: float = 300.0
    """From the start of the fetch to the end of the body."""
    low_speed_bytes_per_s: float = 100.0
    low_speed_s: float = 30.0
    """An answer that is slower than the speed for this long is given up."""
    keep_idle_s: float = 60.0
    """How long an idle connection is kept open."""

    def shortest_s(self) -> float:
        return min(self.first_byte_s, self.idle_s, self.total_s, self.keep_idle_s, self.low_speed_s / 2)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a client accepts from a server."""

    max_head_bytes: int = 64 * 1024
    max_headers: int = 512
    max_interim_responses: int = 16
    """1xx responses before the final one."""
    max_body_bytes: int = 32 * 1024 * 1024
    """Of the payload, before its content coding is removed."""
    max_decoded_bytes: int = 64 * 1024 * 1024
    max_decode_ratio: float = 200.0
    ratio_counts_from_bytes: int = 1024 * 1024
    """Below this decoded size the ratio is not checked: a small body of blanks can exceed any ratio."""
    max_codings: int = 4
    max_idle_connections: int = 1024
    memory_bytes: int | None = None
    """Of the whole crawl; None: what the machine has."""


class Proxy(msgspec.Struct, frozen=True):
    """An HTTP proxy: its address and login."""

    host: str
    port: int
    authorization: str = ""
    """The value of Proxy-Authorization."""

    def headers(self) -> tuple[tuple[str, str], ...]:
        return (("Proxy-Authorization", self.authorization),) if self.authorization else ()

    def connect_head(self, authority: str, user_agent: str) -> bytes:
        """The request that opens a tunnel to an https site."""
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}", f"User-Agent: {user_agent}"]
        lines += [f"{name}: {value}" for name, value in self.headers()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def parse_proxy(url: str) -> Proxy:
    """Parse "http://user:password@proxy.example:3128". Raises JobError."""
    try:
        parsed = can_ada.parse(url)
    except ValueError as error:
        shown = url.rpartition("@")[2]  # without the login
        raise JobError(f"proxy {shown!r} is not a URL such as 'http://proxy.example:3128'") from error
    if parsed.protocol != "http:":
        shown = f"{parsed.protocol}//{parsed.host}"
        raise JobError(
            f"proxy {shown!r} is not supported: give an http:// proxy, which serves https sites as well"
        )
    authorization = ""
    if parsed.username or parsed.password:
        login = f"{unquote(parsed.username)}:{unquote(parsed.password)}"
        authorization = "Basic " + base64.b64encode(login.encode()).decode("ascii")
    return Proxy(parsed.hostname, int(parsed.port or 80), authorization)


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an HTTP client. They stay the same while it is used, unlike the bound."""

    user_agent: str
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    allow_private: bool = False
    """Whether the client connects to addresses that are not public."""
    verify_tls: bool = True
    ca_file: str | Path | None = None
    """PEM certificates to trust instead of the system's."""
    proxy: Proxy | None = None
    sender: str = ""
    """An e-mail address, sent as From."""
    signer: Signer | None = None
    signs_first: bool = True
    """All requests are signed; otherwise those to sites that have asked for it or refused one."""
    no_proxy: tuple[str, ...] = ()
    """Hosts and domains to connect to without the proxy; "*" means all."""


_LOGIN = re.compile(rb"(?<=\r\n)Proxy-Authorization:[^\r\n]*\r\n")


def without_login(head: bytes) -> bytes:
    """A request's head for the archive, without the login to the proxy: archives are given to others."""
    return _LOGIN.sub(b"", head) if b"Proxy-Authorization:" in head else head


def bypasses_proxy(host: str, no_proxy: tuple[str, ...]) -> bool:
    """Whether `no_proxy` has the host, a domain above it, or "*"."""
    host = host.lower().rstrip(".")
    for entry in no_proxy:
        name = entry.strip().lower().removeprefix("*.").strip(".")
        if entry.strip() == "*" or (name and (host == name or host.endswith("." + name))):
            return True
    return False


# Paths that a URL parser would not change: plain characters only, without "." and ".." segments.
_PLAIN_TARGET = re.compile(r"(?!.*/(?:\.|%2[eE]))/[A-Za-z0-9._~:/?@!$&()*+,;=%\[\]-]*")


class Origin(msgspec.Struct, frozen=True):
    """The server that a connection belongs to."""

    scheme: str
    host: str
    port: int
    authority: str = ""
    """As in a Host header: with the port, unless it is the default of the scheme."""

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    @property
    def server_name(self) -> str:
        """The host as certificates name it: without brackets or a final dot."""
        return self.host.strip("[]").rstrip(".")


class Target(msgspec.Struct, frozen=True):
    """Where to send the request for a URL."""

    origin: Origin
    path: str
    """Path and query. The fragment, user name and password of a URL are never sent."""


class TargetError(ValueError):
    """A URL that cannot be fetched."""


class Targets:
    """Parses URLs, with a cache of the origins of sites, since most URLs begin with their site."""

    def __init__(self, max_sites: int = 4096) -> None:
        self._origins: dict[str, Origin] = {}
        self._max_sites = max_sites

    def of(self, url: str, site: str) -> Target:
        origin = self._origins.get(site)
        if origin is not None and url.startswith(site):
            path = url[len(site) :].partition("#")[0]
            if _PLAIN_TARGET.fullmatch(path):
                return Target(origin, path)
        target = parse_target(url)
        if origin is None and url.startswith(site + "/") and "@" not in site:
            if len(self._origins) >= self._max_sites:
                del self._origins[next(iter(self._origins))]
            self._origins[site] = target.origin
        return target


def parse_target(url: str) -> Target:
    try:
        parsed = can_ada.parse(url)
    except ValueError as error:
        raise TargetError(f"not a URL: {url[:200]!r}") from error
    scheme = parsed.protocol.removesuffix(":")
    if scheme not in {"http", "https"} or not parsed.hostname:
        raise TargetError(f"not an http or https URL: {url[:200]!r}")
    port = int(parsed.port) if parsed.port else (443 if scheme == "https" else 80)
    authority = f"{parsed.hostname}:{parsed.port}" if parsed.port else parsed.hostname
    return Target(Origin(scheme, parsed.hostname, port, authority), parsed.pathname + parsed.search)
