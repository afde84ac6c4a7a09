"""Who we are: a key pair, what to publish about it, and signed requests.

Requests are signed by HTTP Message Signatures (RFC 9421) as Web Bot Auth has it
(draft-meunier-web-bot-auth-architecture): a server finds the public key at the address in Signature-Agent,
and knows that a request comes from the crawler that publishes it.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import html
import json
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec

from headway.errors import HeadwayError, JobError, install_command
from headway.units import Instant

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Signing = Literal["always", "on-challenge", "never"]

KEY_FILE = "private-key.pem"
ABOUT_FILE = "identity.json"
PUBLISHED = "publish"
DIRECTORY = ".well-known/http-message-signatures-directory"
BOT_PAGE = "bot.html"
RANGES = "ip-ranges.json"
TAG = "web-bot-auth"
_LASTS_S = 300
"""A request may wait for its turn on the link after it was signed."""


class About(msgspec.Struct, frozen=True):
    """What a folder made by `headway identity init` says of its key. None of it is secret."""

    agent: str
    """The origin that publishes the folder `publish`."""
    name: str
    contact: str
    kid: str
    created_at: float
    expires_at: float
    ranges: tuple[str, ...] = ()


class Signer:
    """Signs requests."""

    def __init__(self, about: About, key: Ed25519PrivateKey) -> None:
        self.about = about
        self._key = key
        self._agent = f'"{about.agent}"'

    def headers(self, now: Instant, authority: str) -> tuple[tuple[str, str], ...]:
        """The headers that sign a request to a host."""
        nonce = base64.b64encode(secrets.token_bytes(24)).decode("ascii")
        parameters = (
            f'("@authority" "signature-agent");created={int(now)};expires={int(now) + _LASTS_S}'
            f';keyid="{self.about.kid}";alg="ed25519";nonce="{nonce}";tag="{TAG}"'
        )
        base = (
            f'"@authority": {authority.lower()}\n"signature-agent": {self._agent}\n'
            f'"@signature-params": {parameters}'
        )
        signature = base64.b64encode(self._key.sign(base.encode("ascii"))).decode("ascii")
        return (
            ("Signature-Agent", self._agent),
            ("Signature-Input", f"sig1={parameters}"),
            ("Signature", f"sig1=:{signature}:"),
        )


def _iso(at: Instant) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def thumbprint(public: bytes) -> str:
    """The JWK thumbprint (RFC 7638, RFC 8037) of an Ed25519 key."""
    jwk = f'{{"crv":"Ed25519","kty":"OKP","x":"{_base64url(public)}"}}'
    return _base64url(hashlib.sha256(jwk.encode("ascii")).digest())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def load_signer(folder: Path, now: Instant) -> Signer:
    """JobError if the key is missing, readable by others, expired, or not the one that was published."""
    path = folder / KEY_FILE
    about = read_about(folder)
    try:
        mode = path.stat().st_mode
        data = path.read_bytes()
    except OSError as problem:
        raise JobError(
            f"{path}: the key to sign requests with cannot be read ({problem.strerror}); restore it, or make "
            "a new one with: headway identity init"
        ) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise JobError(
            f"{path}: the key to sign requests with is readable by other users; run chmod 600 on it, and "
            "make a new one with headway identity init --rotate if others may have read it"
        )
    if now >= about.expires_at:
        raise JobError(
            f"{folder}: the key to sign requests with expired at {_iso(Instant(about.expires_at))}; make a "
            "new one with headway identity init --rotate, and publish it"
        )
    key = _read_key(path, data)
    if thumbprint(_public(key)) != about.kid:
        raise JobError(f"{path} is not the key that {folder / ABOUT_FILE} names; restore the other one")
    return Signer(about, key)


def read_about(folder: Path) -> About:
    path = folder / ABOUT_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=About)
    except FileNotFoundError:
        raise JobError(f"{folder} has no identity; make one with: headway identity init {folder}") from None
    except OSError as problem:
        raise JobError(f"{path} cannot be read: {problem.strerror}") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as problem:
        raise JobError(f"{path} is damaged: {problem}") from None


def _cryptography() -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise HeadwayError(
            f"signatures need the package cryptography: {install_command('identity')}"
        ) from None
    return ed25519, serialization


def _read_key(path: Path, data: bytes) -> Ed25519PrivateKey:
    ed25519, serialization = _cryptography()
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError):
        key = None  # the library's message might quote the file
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise JobError(f"{path} has no Ed25519 key in PEM without a password")
    found: Ed25519PrivateKey = key
    return found


def _public(key: Ed25519PrivateKey) -> bytes:
    _, serialization = _cryptography()
    raw: bytes = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return raw


def make_identity(
    folder: Path,
    now: Instant,
    *,
    agent: str,
    name: str,
    contact: str,
    ranges: Sequence[str],
    lasts_s: float,
    rotates: bool,
) -> About:
    """Write a new key and what to publish. With `rotates`, the public part of the earlier key stays published
    until it expires."""
    ed25519, serialization = _cryptography()
    keys: list[dict[str, Any]] = []
    published = folder / PUBLISHED / DIRECTORY
    if (folder / KEY_FILE).exists():
        if not rotates:
            raise HeadwayError(f"{folder} has a key already; --rotate makes a new one and keeps its folder")
        keys = [key for key in _published_keys(published) if key.get("exp", 0) > now]
    key = ed25519.Ed25519PrivateKey.generate()
    public = _public(key)
    about = About(agent, name, contact, thumbprint(public), now, now + lasts_s, tuple(ranges))
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    jwk = {
        "kty": "OKP",
        "crv": "Ed25519",
        "kid": about.kid,
        "x": _base64url(public),
        "use": "sig",
        "nbf": int(now),
        "exp": int(about.expires_at),
    }
    published.parent.mkdir(parents=True, exist_ok=True)
    _write_secret(folder / KEY_FILE, pem)
    published.write_text(json.dumps({"keys": [jwk, *keys]}, indent=2) + "\n")
    (folder / PUBLISHED / RANGES).write_text(_ranges_text(about))
    (folder / PUBLISHED / BOT_PAGE).write_text(_bot_page(about))
    (folder / ABOUT_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(about)) + b"\n")
    return about


def _published_keys(path: Path) -> list[dict[str, Any]]:
    try:
        keys = json.loads(path.read_text())["keys"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [key for key in keys if isinstance(key, dict)] if isinstance(keys, list) else []


def _write_secret(path: Path, data: bytes) -> None:
    """Readable by its owner only, from the first moment on."""
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _ranges_text(about: About) -> str:
    prefixes = [{"ipv6Prefix" if ":" in each else "ipv4Prefix": each} for each in about.ranges]
    made = {"creationTime": _iso(Instant(about.created_at)), "prefixes": prefixes}
    return json.dumps(made, indent=2) + "\n"


def _bot_page(about: About) -> str:
    name, contact, agent = html.escape(about.name), html.escape(about.contact), html.escape(about.agent)
    target = f"mailto:{contact}" if "@" in contact else contact
    addresses = ", ".join(map(html.escape, about.ranges)) or "not fixed; its requests are signed"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{name}</title>
<link rel="client-ranges" type="application/json" href="/{RANGES}">
<link rel="http-message-signatures-directory" href="/{DIRECTORY}">
</head>
<body>
<h1>{name}</h1>
<p>{name} is a web crawler. What it is for: <em>write here what the pages are used for</em>.</p>
<dl>
<dt>Contact</dt><dd><a href="{target}">{contact}</a></dd>
<dt>Product token for robots.txt</dt><dd><code>{html.escape(about.name.partition("/")[0])}</code></dd>
<dt>Addresses</dt><dd>{addresses} (<a href="/{RANGES}">as JSON</a>)</dd>
<dt>Signatures</dt><dd>Its requests carry HTTP Message Signatures (RFC 9421) with
<code>Signature-Agent: "{agent}"</code>; the <a href="/{DIRECTORY}">public keys</a>.</dd>
</dl>
<p>It obeys robots.txt (RFC 9309), Crawl-delay and Retry-After. To keep it out:</p>
<pre>User-agent: {html.escape(about.name.partition("/")[0])}
Disallow: /</pre>
</body>
</html>
"""


def check_agent(agent: str) -> str:
    """The origin at which the folder will be published. HeadwayError if it is none."""
    parts = urlsplit(agent)
    if parts.scheme != "https" or not parts.hostname or parts.path not in {"", "/"} or parts.query:
        raise HeadwayError(f"{agent!r} is not an origin such as 'https://bot.example.org'")
    if not agent.isascii() or '"' in agent or "\\" in agent or parts.username:
        raise HeadwayError(f"{agent!r} is not an origin such as 'https://bot.example.org'")
    return f"https://{parts.netloc.lower()}"
