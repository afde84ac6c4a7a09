"""Who the crawl is to a site: user agent, headers, credentials, cookies, a login by form, signed requests.

Secrets are named by their place in the job and read when the crawl starts. They go to the site alone: never
to another registered domain, never from https to http, and into no log and no archive unless the job asks
for it.

Requests are signed by HTTP Message Signatures (RFC 9421) as Web Bot Auth defines it
(draft-meunier-web-bot-auth-architecture): a server finds the public key at the address in Signature-Agent,
and knows that a request comes from the crawler that publishes it.
"""

from __future__ import annotations

import base64
import datetime as dt
import email.utils
import hashlib
import html
import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import force_setattr

from headway.errors import HeadwayError, JobError, UnitError, install_command
from headway.http.head import HeadError, check_headers
from headway.model.page import Site
from headway.policy.scope import host_of, is_address, registered_domain
from headway.ports import Response
from headway.units import Instant

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

# -- secrets ----------------------------------------------------------------------------------------------

_PLACE = re.compile(r"(env|file):(.+)", re.DOTALL)
_MAX_SECRET_BYTES = 8192
_NOT_IN_HEADERS = frozenset(
    (
        *(
            "host",
            "connection",
            "content-length",
            "transfer-encoding",
            "te",
            "upgrade",
            "keep-alive",
            "expect",
        ),
        *("trailer", "accept-encoding", "range", "if-none-match", "if-modified-since", "proxy-authorization"),
    )
)
"""What the client decides by itself."""


def is_secret(text: str) -> bool:
    return _PLACE.fullmatch(text) is not None


def secret_at(text: str, folder: str | None = None) -> str:
    """The secret at "env:NAME" or "file:PATH". Raises UnitError, whose text does not have it."""
    match = _PLACE.fullmatch(text)
    if match is None:
        return text
    place, name = match.groups()
    if place == "env":
        value = os.environ.get(name)
        if value is None:
            raise UnitError(f"the environment variable {name} is not set")
    else:
        path = Path(folder or ".", name).expanduser()
        try:
            with path.open("rb") as file:
                value = file.read(_MAX_SECRET_BYTES + 1).decode()
        except OSError as problem:
            raise UnitError(f"the file {path} cannot be read: {problem.strerror}") from None
        except UnicodeDecodeError:
            raise UnitError(f"the file {path} is not text in UTF-8") from None
    value = value.rstrip("\r\n")
    if not value:
        raise UnitError(f"{text!r} is empty")
    if len(value) > _MAX_SECRET_BYTES or re.search(r"[\x00-\x1f\x7f]", value):
        raise UnitError(f"what {text!r} holds is not one line of at most {_MAX_SECRET_BYTES} bytes")
    return value


class Login(msgspec.Struct, frozen=True):
    """A login by form."""

    url: str
    fields: tuple[tuple[str, str], ...]
    """Names and values, which may be places of secrets."""
    success: str | None = None


class Identity(msgspec.Struct, frozen=True):
    """What the job says of a site. Secrets are named by their places."""

    user_agent: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    basic_auth: str | None = None
    bearer_token: str | None = None
    keeps_cookies: bool = False
    login: Login | None = None
    archives_secrets: bool = False
    folder: str | None = None
    """Where relative paths of files begin."""

    def check(self, *, reads_secrets: bool = True) -> None:
        """Raises UnitError if a secret is missing, or a header must not be sent. `reads_secrets`: they have
        to be there now, for a crawl."""

        def secret(text: str, otherwise: str) -> str:
            return secret_at(text, self.folder) if reads_secrets else otherwise

        if self.basic_auth is not None and self.bearer_token is not None:
            raise UnitError("give either 'basic_auth' or 'bearer_token'")
        if self.basic_auth is not None and ":" not in secret(self.basic_auth, ":"):
            raise UnitError(f"what {self.basic_auth!r} holds is not 'user:password'")
        if self.bearer_token is not None and " " in secret(self.bearer_token, ""):
            raise UnitError(f"what {self.bearer_token!r} holds has a space, which no token has")
        for name, value in self.headers:
            if name.lower() in _NOT_IN_HEADERS:
                raise UnitError(f"the header {name} is set by the client itself")
            if name.lower() == "user-agent":
                raise UnitError("give the user agent as 'user_agent', which robots.txt is matched with")
            if name.lower() == "cookie":
                raise UnitError("write cookies = true; cookies are those that the site sets")
            if name.lower() == "authorization" and not is_secret(value):
                raise UnitError(
                    "write basic_auth or bearer_token, or the place of the value as 'env:NAME' or 'file:PATH'"
                )
            try:
                check_headers(((name, "" if is_secret(value) else value),))
            except HeadError as problem:
                raise UnitError(str(problem)) from None
            secret(value, "")
        for _, value in self.login.fields if self.login is not None else ():
            secret(value, "")


# -- cookies ----------------------------------------------------------------------------------------------

_MAX_COOKIES = 100
_MAX_COOKIE_BYTES = 4096
_MAX_SENT_BYTES = 16 * 1024
_NOT_IN_COOKIE = re.compile(r"[\x00-\x1f\x7f]")


class _Cookie(msgspec.Struct, frozen=True):
    value: str
    is_secure: bool
    is_of_host: bool
    """Sent to this host alone, not to its subdomains."""
    until: float


class CookieJar:
    """The cookies of one site (RFC 6265), for its registered domain at most. It is in memory only."""

    def __init__(self, host: str) -> None:
        self._domain = registered_domain(host)
        self._cookies: dict[tuple[str, str, str], _Cookie] = {}
        """By domain, path and name, in the order in which they were set."""

    def __len__(self) -> int:
        return len(self._cookies)

    def take(self, now: Instant, url: str, site: Site, headers: Iterable[tuple[str, str]]) -> bool:
        """Take in the cookies that an answer sets; returns whether any has changed."""
        has_changed = False
        for name, value in headers:
            if name == "set-cookie" and len(value) <= _MAX_COOKIE_BYTES:
                has_changed = self._set(now, url, site, value) or has_changed
        return has_changed

    def header(self, now: Instant, url: str, site: Site) -> str:
        """The value of the Cookie header; empty if there is none."""
        host, path, is_secure = host_of(site), _path_of(url, site), site.startswith("https:")
        if registered_domain(host) != self._domain:
            return ""
        found = []
        for place, ((domain, prefix, name), cookie) in enumerate(self._cookies.items()):
            fits = host == domain or (not cookie.is_of_host and host.endswith("." + domain))
            if (
                fits
                and cookie.until > now
                and (is_secure or not cookie.is_secure)
                and _is_below(path, prefix)
            ):
                found.append((-len(prefix), place, f"{name}={cookie.value}"))
        text = ""
        for _, _, pair in sorted(found):
            if len(text) + len(pair) <= _MAX_SENT_BYTES:
                text = f"{text}; {pair}" if text else pair
        return text

    def _set(self, now: Instant, url: str, site: Site, text: str) -> bool:
        pair, *rest = text.split(";")
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name or _NOT_IN_COOKIE.search(text):
            return False
        host, is_secure = host_of(site), site.startswith("https:")
        attributes = {}
        for part in rest:
            key, _, given = part.partition("=")
            attributes[key.strip().lower()] = given.strip()
        wants_secure, path = "secure" in attributes, attributes.get("path", "")
        domain = attributes.get("domain", "").lower().removeprefix(".")
        is_of_host = not domain or domain == host
        if not is_of_host and (is_address(host) or not self._may_set(host, domain)):
            return False
        if (wants_secure or name.startswith(("__Secure-", "__Host-"))) and not (is_secure and wants_secure):
            return False
        if name.startswith("__Host-") and (path != "/" or domain):
            return False
        if not path.startswith("/"):
            path = _path_of(url, site)
            path = path[: path.rfind("/")] or "/"
        place = (host if is_of_host else domain, path, name)
        before = self._cookies.pop(place, None)
        until = _until(now, attributes)
        if until <= now:
            return before is not None
        self._cookies[place] = cookie = _Cookie(value, wants_secure, not domain, until)
        if len(self._cookies) > _MAX_COOKIES:
            del self._cookies[next(iter(self._cookies))]
        return before is None or before.value != cookie.value

    def _may_set(self, host: str, domain: str) -> bool:
        """Whether a host may set a cookie for a domain above it, which is within its registered domain."""
        is_within = domain == self._domain or domain.endswith("." + self._domain)
        return host.endswith("." + domain) and is_within and registered_domain(host) == self._domain


def _until(now: Instant, attributes: Mapping[str, str]) -> float:
    """When a cookie expires; infinity at the end of the crawl."""
    age = attributes.get("max-age", "")
    if re.fullmatch(r"-?\d{1,12}", age):
        return now + int(age)
    expires = attributes.get("expires", "")
    if not expires or len(expires) > 64:
        return float("inf")
    try:
        return email.utils.parsedate_to_datetime(expires.replace("-", " ")).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return float("inf")


def _path_of(url: str, site: Site) -> str:
    path = url[len(site) :] if url.startswith(site) else "/"
    return path.partition("?")[0].partition("#")[0] or "/"


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or (path.startswith(prefix) and (prefix.endswith("/") or path[len(prefix)] == "/"))


# -- a site's visitor -------------------------------------------------------------------------------------


class Visitor:
    """The crawl as one site sees it: what is sent with its requests, and what is kept out of the archive."""

    def __init__(self, site: Site, identity: Identity) -> None:
        """Reads the secrets; raises JobError if one is missing."""
        self.site = site
        self.identity = identity
        self.user_agent = identity.user_agent
        self.jar = CookieJar(host_of(site)) if identity.keeps_cookies else None
        self.has_new_cookies = False
        """The last answer has set cookies."""
        self.logged_in_at: Instant | None = None
        self.login_problem = ""
        try:
            self.plain, self._secret = self._headers()
            self.form = [
                (name, secret_at(value, identity.folder))
                for name, value in (identity.login.fields if identity.login is not None else ())
            ]
        except UnitError as problem:
            raise JobError(f"{site}: {problem}") from None
        names = {"cookie", *(name.lower() for name, _ in self._secret)}
        self._hidden = re.compile(
            rb"(?im)^(?:"
            + b"|".join(re.escape(name.encode()) for name in sorted(names))
            + rb"):[^\r\n]*\r?\n"
        )

    def _headers(self) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
        identity = self.identity
        plain: list[tuple[str, str]] = []
        secret: list[tuple[str, str]] = []
        if identity.user_agent is not None:
            plain.append(("User-Agent", identity.user_agent))
        for name, value in identity.headers:
            into = secret if is_secret(value) else plain
            into.append((name, secret_at(value, identity.folder)))
        if identity.basic_auth is not None:
            login = secret_at(identity.basic_auth, identity.folder).encode()
            secret.append(("Authorization", f"Basic {base64.b64encode(login).decode('ascii')}"))
        if identity.bearer_token is not None:
            secret.append(("Authorization", f"Bearer {secret_at(identity.bearer_token, identity.folder)}"))
        return tuple(plain), tuple(secret)

    def headers(self, now: Instant, url: str, site: Site) -> tuple[tuple[str, str], ...]:
        """What is sent with a request for this URL."""
        headers = self.plain
        if self._secret and self.may_know(site):
            headers += self._secret
        if self.jar is not None and (cookies := self.jar.header(now, url, site)):
            headers += (("Cookie", cookies),)
        return headers

    def take(self, now: Instant, response: Response, site: Site) -> bool:
        """Take in what an answer sets, and take secrets out of what the archive gets. Returns whether cookies
        have changed."""
        has_changed = self.jar is not None and self.jar.take(now, response.url, site, response.headers)
        if (self.jar is not None or self._secret) and not self.identity.archives_secrets:
            # In place: what the response holds in memory is counted until this object is gone.
            force_setattr(response, "request_head", self._hidden.sub(b"", response.request_head))
            if self.jar is not None and b"ookie" in response.head:
                force_setattr(response, "head", _SET_COOKIE.sub(b"", response.head))
                kept = tuple(pair for pair in response.headers if pair[0] != "set-cookie")
                force_setattr(response, "headers", kept)
        return has_changed

    @property
    def has_secrets(self) -> bool:
        """Whether anything is sent that is in no log and no archive."""
        return self.jar is not None or bool(self._secret)

    def may_know(self, site: Site) -> bool:
        """Whether secrets may be sent to a site: the one that they were given for, by any name of it, and not
        without encryption if that has it."""
        if self.site.startswith("https:") and not site.startswith("https:"):
            return False
        return host_of(site).removeprefix("www.") == host_of(self.site).removeprefix("www.")


_SET_COOKIE = re.compile(rb"(?im)^set-cookie2?[ \t]*:[^\r\n]*\r?\n(?:[ \t][^\r\n]*\r?\n)*")


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
