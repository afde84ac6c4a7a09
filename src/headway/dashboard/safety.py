"""Authorization: who may read and who may give orders; responses in JSON, including errors."""

from __future__ import annotations

import hmac
import ipaddress
import secrets

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.dashboard.answers import Problem


def answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def problem(status: int, text: str) -> Response:
    return answer(Problem(text), status)


# Who may read and who may give orders.
#
# Every order needs the token; so does every read if the dashboard can be reached from other machines. The
# token is sent in a header that a page of another site cannot make a browser send, so no page can give orders
# unnoticed. On loopback only requests with a name of this machine are answered: a page whose own host name
# resolves to 127.0.0.1 learns nothing.

_OPEN_PATHS = ("/", "/api/openapi.json")
_STATIC = "/static/"
"""The static page is the same for everyone and contains no data of the run."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


def new_token() -> str:
    return secrets.token_urlsafe(24)


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Wraps the application: refuses unauthorized requests, and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, *, token: str, is_public: bool) -> None:
        self._app = app
        self._token = token.encode()
        self._is_public = is_public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        path = scope["path"]
        if not self._is_public and not is_loopback(_host_of(headers.get("host", ""))):
            return problem(421, "this dashboard answers to names of this machine only, such as 127.0.0.1")
        if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"} and path != "/":
            return problem(403, "the request came from a page of another site; open the dashboard itself")
        is_shell = path in _OPEN_PATHS or path.startswith(_STATIC)
        is_read = scope["method"] in {"GET", "HEAD", "OPTIONS"}
        if (is_read and (is_shell or not self._is_public)) or self._has_token(headers):
            return None
        answer = problem(401, "the token is missing or wrong; it is in the address that headway printed")
        answer.headers["www-authenticate"] = "Bearer"
        return answer

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode("utf-8", "replace"), self._token
        )


def _host_of(host_and_port: str) -> str:
    host, colon, port = host_and_port.rpartition(":")
    return host if colon and port.isdecimal() else host_and_port
