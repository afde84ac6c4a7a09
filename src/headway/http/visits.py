"""Requests to sites that know the crawl: with headers of their own, cookies, credentials, or a login."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote_plus, urljoin

import msgspec
from msgspec import structs

from headway.http.identity import Identity, Visitor
from headway.model.command import FetchRobots
from headway.model.page import Kind, Site
from headway.pages.document import REDIRECT_STATUSES
from headway.pages.headers import charset_of, decode
from headway.pages.url import page_of
from headway.policy.site_rules import BySite
from headway.ports import Clock, Fetcher, Request, Response
from headway.units import Instant, Seconds

_MOST_REPEATS = 5
"""Requests for one page: after a redirect to itself that sets cookies, or after a login."""
_LOGIN_AGAIN_S = 30.0
_NO_HEADERS: tuple[tuple[str, str], ...] = ()


InThread = Callable[..., Coroutine[Any, Any, Any]]
"""Carries out a function, with its arguments, in a thread."""


class Visitors:
    """The visitors of a crawl, by site."""

    def __init__(self, identities: Mapping[Site, Identity]) -> None:
        self._identities = BySite(identities)
        self._meant: dict[Site, Site] = {}
        self._made: dict[Site, Visitor] = {}
        for site, identity in identities.items():
            if identity.headers or identity.basic_auth or identity.bearer_token or identity.login:
                self._visitor(site, identity)  # a missing secret is an error at the start

    def __bool__(self) -> bool:
        return bool(self._identities)

    def of(self, site: Site, meant: Site | None = None) -> Visitor | None:
        """`meant`: the site of the job whose settings hold."""
        if not self._identities:
            return None
        if meant is not None:
            self._meant[site] = meant
        source = self._identities.source_of(self._meant.get(site, site))
        identity = None if source is None else self._identities.of(source)
        return None if source is None or identity is None else self._visitor(source, identity)

    def _visitor(self, source: Site, identity: Identity) -> Visitor:
        visitor = self._made.get(source)
        if visitor is None:
            visitor = self._made[source] = Visitor(source, identity)
        return visitor


class Visits:
    """Fetches the pages of such sites."""

    def __init__(
        self, identities: Mapping[Site, Identity], fetcher: Fetcher, clock: Clock, in_thread: InThread
    ) -> None:
        self._visitors = Visitors(identities)
        self._fetcher = fetcher
        self._clock = clock
        self._in_thread = in_thread
        self._logins: dict[Site, asyncio.Lock] = {}

    def has_secrets(self, site: Site, meant: Site | None) -> bool:
        """Whether pages of the site have to be fetched here."""
        visitor = self._visitors.of(site, meant)
        return visitor is not None and visitor.has_secrets

    def plain_headers(self, site: Site, meant: Site | None) -> tuple[tuple[str, str], ...]:
        """The headers of a site without secrets."""
        visitor = self._visitors.of(site, meant)
        return _NO_HEADERS if visitor is None or visitor.has_secrets else visitor.plain

    def user_agent(self, site: Site) -> str | None:
        """The user agent that the site sees, if it is its own."""
        visitor = self._visitors.of(site)
        return None if visitor is None else visitor.user_agent

    def for_robots(self, command: FetchRobots) -> tuple[tuple[tuple[str, str], ...], str | None]:
        """The headers for a robots.txt, and the user agent that its rules are read for."""
        site = command.site
        visitor = self._visitors.of(site, command.meant)
        if visitor is None:
            return (), None
        is_own = command.url.startswith(f"{site}/")
        headers = visitor.headers(self._clock.now(), command.url, site) if is_own else ()
        return headers, visitor.user_agent

    async def fetch(self, request: Request) -> Response:
        """Fetch a page as a visitor who is known to the site."""
        visitor = self._visitors.of(request.site)
        assert visitor is not None
        login = visitor.identity.login
        if login is not None:
            await self._log_in(visitor, since=None)
            if visitor.login_problem:
                return self._not_logged_in(visitor, request)
        response = await self._fetch_as(visitor, request)
        for _ in range(_MOST_REPEATS):
            target = _leads_to(response)
            if login is not None and _is_page(target, login.url) and not _is_page(request.url, login.url):
                # The session has ended.
                await self._log_in(visitor, since=response.requested_at)
                if visitor.login_problem:
                    return self._not_logged_in(visitor, request)
            elif target != request.url or not visitor.has_new_cookies:
                break
            response = await self._fetch_as(visitor, request)
        return response

    async def _fetch_as(self, visitor: Visitor, request: Request) -> Response:
        headers = visitor.headers(self._clock.now(), request.url, request.site)
        request = structs.replace(request, headers=(*request.headers, *headers))
        response = await self._fetcher.fetch(request)
        visitor.has_new_cookies = visitor.take(self._clock.now(), response, request.site)
        return response

    def _not_logged_in(self, visitor: Visitor, request: Request) -> Response:
        return Response(
            Kind.REFUSED,
            request.url,
            self._clock.now(),
            Seconds(0.0),
            keep_alive=True,
            detail=f"not logged in: {visitor.login_problem}",
        )

    async def _log_in(self, visitor: Visitor, since: Instant | None) -> None:
        """Log in, unless that has been done (`since` an instant)."""
        async with self._logins.setdefault(visitor.site, asyncio.Lock()):
            at, now = visitor.logged_in_at, self._clock.now()
            if at is not None and (since is None or at > since or now - at < _LOGIN_AGAIN_S):
                if since is not None and at <= since and not visitor.login_problem:
                    visitor.login_problem = "the site asks for a login again at once"
                return
            visitor.logged_in_at = now
            visitor.login_problem = await self._try_login(visitor)

    async def _try_login(self, visitor: Visitor) -> str:
        """Fetch the form, fill it in and send it. Returns what went wrong."""
        login = visitor.identity.login
        assert login is not None
        names = [name for name, _ in login.fields]
        start = page_of(login.url)
        assert start is not None
        response = await self._follow_as(visitor, Request(start.url, start.site))
        if response.kind is not Kind.FETCHED or not 200 <= response.status < 300:
            return f"{login.url} could not be fetched ({_said(response)})"
        form = await self._in_thread(login_form, response.body, response.header("content-type"), names)
        if form is None:
            return f"{login.url} has no form with the fields {', '.join(names)}"
        action, content = filled_in(form, response.url, visitor.form)
        target = page_of(action)
        if target is None or not visitor.may_know(target.site):
            return "the form would be sent to another site"
        if not form.is_post:
            return "the form would put the password into a URL; its method is not POST"
        answer = await self._follow_as(visitor, Request(target.url, target.site, form=content))
        if answer.kind is not Kind.FETCHED or answer.status >= 400:
            return f"the site refused it ({_said(answer)})"
        content_type = answer.header("content-type")
        if login.success is not None:
            text = decode(answer.body, charset_of(content_type)).text
            return "" if login.success in text else f"the page after it does not have {login.success!r}"
        again = await self._in_thread(login_form, answer.body, content_type, names)
        return "the site showed the form again" if again is not None and again.has_password else ""

    async def _follow_as(self, visitor: Visitor, request: Request) -> Response:
        """Fetch, with redirects to the site itself."""
        response = await self._fetch_as(visitor, request)
        for _ in range(_MOST_REPEATS):
            target = page_of(_leads_to(response) or "")
            if target is None or not visitor.may_know(target.site):
                break
            response = await self._fetch_as(visitor, Request(target.url, target.site))
        return response


def _leads_to(response: Response) -> str | None:
    """The URL to which an answer redirects."""
    location = response.header("location")
    if response.status not in REDIRECT_STATUSES or not location:
        return None
    target = page_of(location, base=response.url)
    return None if target is None else target.url


def _is_page(url: str | None, other: str) -> bool:
    """Whether two URLs are the same page, whatever their queries."""
    return url is not None and url.partition("?")[0] == other.partition("?")[0]


def _said(response: Response) -> str:
    if response.status:
        return f"status {response.status}"
    return f"{response.kind}: {response.detail}".rstrip(": ")


# -- forms ------------------------------------------------------------------------------------------------

_MAX_FORM_BYTES = 128 * 1024


class Form(msgspec.Struct):
    """A form of a page, with the values that it has."""

    action: str
    is_post: bool
    fields: dict[str, str]
    has_password: bool = False


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._is_inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._is_inside = True
            is_post = values.get("method", "").strip().lower() == "post"
            self.forms.append(Form(values.get("action", ""), is_post, {}))
        elif tag in {"input", "button"} and self._is_inside and self.forms:
            form, kind = self.forms[-1], values.get("type", "text").lower()
            form.has_password = form.has_password or kind == "password"
            is_sent = kind not in {"submit", "button", "image", "reset", "file"} and tag == "input"
            if kind in {"checkbox", "radio"} and "checked" not in values:
                is_sent = False
            if is_sent and values.get("name"):
                form.fields.setdefault(values["name"], values.get("value", ""))

    def handle_endtag(self, tag: str) -> None:
        self._is_inside = self._is_inside and tag != "form"


def login_form(body: bytes, content_type: str, names: Iterable[str]) -> Form | None:
    """The form of a page that has these fields, or else the one with a password."""
    parser = _Forms()
    parser.feed(decode(body[:_MAX_FORM_BYTES], charset_of(content_type)).text)
    wanted = set(names)
    fitting = [form for form in parser.forms if wanted <= form.fields.keys()]
    return next(iter(fitting or [form for form in parser.forms if form.has_password]), None)


def filled_in(form: Form, page_url: str, values: Iterable[tuple[str, str]]) -> tuple[str, bytes]:
    """Where a form is sent, and its content as `application/x-www-form-urlencoded`."""
    fields = {**form.fields, **dict(values)}
    content = "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in fields.items())
    return urljoin(page_url, form.action), content.encode("ascii")
