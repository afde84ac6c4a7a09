"""Sort-friendly URI keys, as pywb reckons them, so that it finds in our index what it looks up.

The rules are those of the Wayback machine: scheme, user, fragment, default port and a leading `www.` go,
the host is turned round, everything is lower case, the path is tidied, session ids go, arguments are
sorted. The tests compare with keys made by pywb; its own library for it does not suit our licence.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import unquote_to_bytes

_URL = re.compile(
    r"(?:([a-z][a-z0-9+.\-]*):)?//([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.IGNORECASE | re.DOTALL
)
_AUTHORITY = re.compile(r"(?:.*@)?(\[[^\]]*\]|[^:]*)(?::(\d*))?", re.DOTALL)
_PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*+)++/?")
_WWW = re.compile(r"^www\d*\.(?=.)")
_ESCAPED = re.compile(r"[\x00-\x20#%\x7f-\xff]")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_SESSION_IN_PATH = (
    re.compile(r"^(.*/)(?:\((?:[a-z]\([0-9a-z]{24}\))+\)/)([^?]+\.aspx.*)$", re.DOTALL),
    re.compile(r"^(.*/)(?:\([0-9a-z]{24}\)/)([^?]+\.aspx.*)$", re.DOTALL),
)
_SESSION_IN_QUERY = tuple(
    re.compile(rf"^(.*)(?:{argument})(?:&(.*))?$", re.DOTALL)
    for argument in (
        r"jsessionid=[0-9a-z]{32}",
        r"phpsessid=[0-9a-z]{32}",
        r"sid=[0-9a-z]{32}",
        r"aspsessionid[a-z]{8}=[a-z]{24}",
        r"cfid=[^&]+&cftoken=[^&]+",
    )
)


def surt(url: str) -> str:
    """`https://www.Example.org/B/?y=2&x=1` becomes `org,example)/b?x=1&y=2`."""
    match = _URL.fullmatch(url)
    if match is None:
        return url
    scheme, authority, path, query = match.groups()
    # Most paths need nothing but lower case, and most URLs have no query.
    tidy = path.rstrip("/").lower() if _PLAIN_PATH.fullmatch(path) else _path_key(path)
    key = f"{_host_key(authority, (scheme or 'http').lower())}){tidy}"
    arguments = _query_key(query) if query else ""
    return f"{key}?{arguments}" if arguments else key


@lru_cache(maxsize=4096)
def _host_key(authority: str, scheme: str) -> str:
    match = _AUTHORITY.fullmatch(authority)
    host, port = match.groups() if match else (authority, None)
    host = _WWW.sub("", _unescaped(host).strip("."), count=1) if host[:1] != "[" else host[1:-1].lower()
    # An IPv6 address has colons, no parts to turn round.
    key = host if ":" in host else ",".join(reversed(host.split(".")))
    return _escaped(key) + (f":{port}" if port and port != _DEFAULT_PORTS.get(scheme) else "")


def _path_key(path: str) -> str:
    parts: list[str] = []
    for part in _unescaped(path).removeprefix("/").split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    tidy = "/" + "/".join(filter(None, parts))
    for pattern in _SESSION_IN_PATH:
        tidy = pattern.sub(r"\1\2", tidy)
    return _escaped(tidy)


def _query_key(query: str) -> str:
    plain = _unescaped(query)
    for pattern in _SESSION_IN_QUERY:
        match = pattern.match(plain)
        if match:
            plain = match[1] + (match[2] or "")
    return "&".join(sorted(_escaped(plain).split("&")))


def _unescaped(text: str) -> str:
    """Octets as latin-1 characters, unescaped until nothing is left to unescape; ASCII in lower case."""
    octets = text.encode("utf-8", "surrogatepass")
    while b"%" in octets:
        plain = unquote_to_bytes(octets)
        if plain == octets:
            break
        octets = plain
    return octets.lower().decode("latin-1")


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02x}", text)
