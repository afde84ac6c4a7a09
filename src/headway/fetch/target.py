"""Where a URL leads: the server to connect to, and what to ask it for."""

from __future__ import annotations

import re

import can_ada
import msgspec

# What a URL parser would leave as it is; anything else, and dots that stand for folders, are left to one.
_PLAIN_TARGET = re.compile(r"(?!.*/(?:\.|%2[eE]))/[A-Za-z0-9._~:/?@!$&()*+,;=%\[\]-]*")


class Origin(msgspec.Struct, frozen=True):
    """One server of HTTP: what a connection can be used for."""

    scheme: str
    host: str
    port: int
    authority: str = ""
    """As in a Host header: the port only where it is not the scheme's own."""

    @property
    def secure(self) -> bool:
        return self.scheme == "https"

    @property
    def server_name(self) -> str:
        """As certificates name it: without brackets or a final dot."""
        return self.host.strip("[]").rstrip(".")


class Target(msgspec.Struct, frozen=True):
    origin: Origin
    path: str
    """Path and query; a fragment is never sent, nor is a user name or password in the URL."""


class TargetError(ValueError):
    """Not a URL that can be fetched."""


class Targets:
    """Parses URLs, and remembers the servers of sites, since most URLs begin with their site."""

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
                self._origins.clear()
            self._origins[site] = target.origin
        return target


def parse_target(url: str) -> Target:
    try:
        parsed = can_ada.parse(url)
    except ValueError as error:
        raise TargetError(f"not a URL: {url[:200]!r}") from error
    scheme = parsed.protocol.removesuffix(":")
    if scheme not in {"http", "https"} or not parsed.hostname:
        raise TargetError(f"only http and https are fetched: {url[:200]!r}")
    port = int(parsed.port) if parsed.port else (443 if scheme == "https" else 80)
    authority = f"{parsed.hostname}:{parsed.port}" if parsed.port else parsed.hostname
    return Target(Origin(scheme, parsed.hostname, port, authority), parsed.pathname + parsed.search)
