"""When a site may be requested again, and whether and when a failed page is retried."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from headway.model.command import PageState
from headway.model.page import SUCCESS, Kind, Outcome, Site, tries_before
from headway.policy.site_rules import BySite, SiteRules
from headway.units import Instant, Seconds

_MOST_STEPS = 64


def growing_delay_s(step: int, first_s: Seconds, factor: float, most_s: Seconds) -> Seconds:
    """`first_s` at step 0, `factor` times longer at each step, at most `most_s`."""
    delay_s: float = first_s
    # Multiplication, because a float product overflows to infinity and a power raises OverflowError.
    for _ in range(min(step, _MOST_STEPS)):
        delay_s *= factor
    return Seconds(min(delay_s, most_s))


NEVER_ASKED = frozenset(
    {Kind.ROBOTS_DENIED, Kind.ROBOTS_UNREACHABLE, Kind.LIMIT, Kind.OUT_OF_SCOPE, Kind.FORBIDDEN_ADDRESS}
)
"""Outcomes without a request to the site, after which no interval is needed."""

UNREACHABLE = frozenset({Kind.DNS, Kind.CONNECT, Kind.TIMEOUT_CONNECT, Kind.THROTTLED})
"""Trouble of the server: no page of the site can be fetched now."""
DOUBTFUL = frozenset(
    {Kind.SERVER_ERROR, Kind.RESET, Kind.PROTOCOL}
    | {Kind.TIMEOUT_FIRST_BYTE, Kind.TIMEOUT_IDLE, Kind.TIMEOUT_TOTAL}
)
"""Trouble of the page, or of the server if several pages in a row have it."""
TROUBLE = UNREACHABLE | DOUBTFUL | {Kind.TLS}
_DNS_BACKOFF_S = Seconds(2.0)
"""The first wait after a lookup that failed: it costs a server nothing."""


class Politeness(msgspec.Struct, frozen=True):
    """When a site may be requested again.

    The interval starts at the end of the last answer (cobweb1999). Up to k pages may follow one another on a
    connection, and the interval is kept between connections (castillo2004). After consecutive failures the
    wait grows.
    """

    interval_s: Seconds = Seconds(15.0)
    """Between the end of an answer and the next connection (castillo2004's w)."""
    pages_per_connection: int = 1
    """castillo2004's k."""
    max_crawl_delay_s: Seconds | None = None
    """A longer Crawl-delay is reduced to this; None: no limit."""
    max_retry_after_s: Seconds = Seconds(3600.0)
    backoff_s: Seconds = Seconds(30.0)
    """Wait after the first failure; a Retry-After or the interval counts if it is longer."""
    backoff_factor: float = 2.0
    max_backoff_s: Seconds = Seconds(1800.0)
    keep_open_s: Seconds = Seconds(5.0)
    """A connection stays open over a pause up to this long; servers close idle ones after about this time."""
    keep_open_secure_s: Seconds = Seconds(60.0)
    """The same with TLS, where a new connection costs both sides a handshake. A server that wants to close it
    earlier does so, or says when."""
    by_site: BySite[SiteRules] | None = None
    """Sites may have a politeness of their own."""

    def of(self, site: Site) -> Politeness:
        """The politeness towards a site."""
        rules = self.by_site.of(site) if self.by_site else None
        return self if rules is None or rules.politeness is None else rules.politeness

    def free_at(
        self,
        ended_at: Instant,
        outcome: Outcome,
        pages_on_connection: int,
        failures_in_a_row: int,
        crawl_delay_s: Seconds | None = None,
    ) -> Instant:
        """When the site may be requested again after an answer that ended at `ended_at`."""
        if outcome.kind in NEVER_ASKED:
            return ended_at
        if (
            outcome.kind in SUCCESS
            and outcome.keep_alive
            and pages_on_connection < self.pages_per_connection
            and not crawl_delay_s
        ):
            return ended_at
        wait_s: float = self.pause_s(crawl_delay_s)
        if outcome.kind is Kind.THROTTLED and outcome.retry_after_s is None:
            failures_in_a_row = max(failures_in_a_row, 1)
        if failures_in_a_row > 0:
            step = failures_in_a_row - 1
            first_s = min(self.backoff_s, _DNS_BACKOFF_S) if outcome.kind is Kind.DNS else self.backoff_s
            backoff_s = growing_delay_s(step, first_s, self.backoff_factor, self.max_backoff_s)
            wait_s = max(wait_s, backoff_s)
        if outcome.retry_after_s is not None:
            wait_s = max(wait_s, min(outcome.retry_after_s, self.max_retry_after_s))
        return Instant(ended_at + wait_s)

    def pause_s(self, crawl_delay_s: Seconds | None = None) -> Seconds:
        """The least time between connections: the interval, or the Crawl-delay if that is longer."""
        if crawl_delay_s is None:
            return self.interval_s
        if self.max_crawl_delay_s is not None:
            crawl_delay_s = min(crawl_delay_s, self.max_crawl_delay_s)
        return max(self.interval_s, crawl_delay_s)

    def longest_wait_s(self, failures_in_a_row: int, crawl_delay_s: Seconds | None = None) -> Seconds:
        """The longest time that `free_at` waits after this many consecutive failures."""
        pause_s = self.pause_s(crawl_delay_s)
        return max(pause_s, self.max_backoff_s, self.max_retry_after_s) if failures_in_a_row else pause_s

    def closes_after(
        self, pages_on_connection: int, crawl_delay_s: Seconds | None = None, *, is_secure: bool = False
    ) -> bool:
        """Whether to close the connection after its `pages_on_connection`-th page."""
        is_last = pages_on_connection >= self.pages_per_connection or bool(crawl_delay_s)
        return is_last and self.pause_s(crawl_delay_s) > (
            self.keep_open_secure_s if is_secure else self.keep_open_s
        )


# Retries. A page with a temporary failure (time-out, reset, server error, throttling, failed lookup or
# connection) returns to the queue with a growing penalty (cobweb1999). All other failures are final.

PASSING = frozenset(
    {
        Kind.THROTTLED,
        Kind.SERVER_ERROR,
        Kind.DNS,
        Kind.CONNECT,
        Kind.TIMEOUT_CONNECT,
        Kind.TIMEOUT_FIRST_BYTE,
        Kind.TIMEOUT_IDLE,
        Kind.TIMEOUT_TOTAL,
        Kind.RESET,
        Kind.PROTOCOL,
        Kind.ROBOTS_UNREACHABLE,
        Kind.LEASE_EXPIRED,
    }
)
"""Temporary failures: another attempt may succeed."""

OUR_CHOICE = frozenset(
    {
        Kind.UNWANTED_TYPE,
        Kind.LISTING,
        Kind.FORBIDDEN_ADDRESS,
        Kind.ROBOTS_DENIED,
        Kind.LIMIT,
        Kind.OUT_OF_SCOPE,
    }
)
"""Pages left out by a rule of the crawl or of the site. They count as excluded, not failed."""

_PASSING_STATUSES = frozenset({408, 425})  # Request Timeout, Too Early: the temporary 4xx


class Retry(msgspec.Struct, frozen=True):
    at: Instant
    forgiven: int = 0
    """How many of the attempts do not count, because the server was in trouble."""


class GiveUp(msgspec.Struct, frozen=True):
    state: PageState
    reason: str


class RetryPolicy(msgspec.Struct, frozen=True):
    max_attempts: int = 3
    """Requests for a page, including the first."""
    penalty_s: Seconds = Seconds(60.0)
    """The least wait before the first retry."""
    penalty_factor: float = 4.0
    max_penalty_s: Seconds = Seconds(3600.0)
    max_retry_after_s: Seconds = Seconds(3600.0)
    """A longer Retry-After is reduced to this, so that one header cannot delay a page forever."""

    @property
    def longest_wait_s(self) -> Seconds:
        """The longest time that a retry can be delayed."""
        return max(self.max_penalty_s, self.max_retry_after_s, self.penalty_s)

    def decide(self, now: Instant, outcome: Outcome, attempt: int) -> Retry | GiveUp:
        """Retry or give up a page whose attempt number `attempt` (the first is 0) had this outcome."""
        kind, attempt = outcome.kind, tries_before(attempt)
        if kind in SUCCESS:
            return GiveUp(PageState.DONE, kind)
        if kind is Kind.CANCELLED:
            return Retry(now)
        if kind in OUR_CHOICE:
            return GiveUp(PageState.EXCLUDED, kind)
        if not may_pass(outcome) or attempt + 1 >= self.max_attempts:
            return GiveUp(PageState.FAILED, kind)
        delay_s = growing_delay_s(attempt, self.penalty_s, self.penalty_factor, self.max_penalty_s)
        if outcome.retry_after_s is not None:
            delay_s = max(delay_s, min(outcome.retry_after_s, self.max_retry_after_s))
        return Retry(Instant(now + delay_s))


def may_pass(outcome: Outcome) -> bool:
    """Whether another attempt may succeed."""
    return outcome.kind in PASSING or (outcome.kind is Kind.REFUSED and outcome.status in _PASSING_STATUSES)


# Refusals by protective services. A page that says "prove that you are human" is not the content of the site:
# it is counted as blocked, not archived, and never solved. After a few of them the site is left alone.

BLOCKED_IN_A_ROW = 3
"""After so many blocked answers without a good one the site is left alone."""
_LONGEST_CHALLENGE = 64 * 1024
_MOST_LINKS_OF_A_CHALLENGE = 8
_PAYMENT_REQUIRED = 402

_BY_HEADER = (
    ("cf-mitigated", "challenge", "Cloudflare (challenge)"),
    ("x-amzn-waf-action", "", "AWS WAF (challenge)"),
    ("x-vercel-mitigated", "", "Vercel (challenge)"),
    ("x-kpsdk-ct", "", "Kasada (challenge)"),
)
"""Headers that only an answer of the service itself has; with a value, only if it is contained."""
_BY_MARKUP = (
    (rb'id="anubis_', "Anubis (challenge)"),
    (rb"/.within.website/x/", "Anubis (challenge)"),
    (rb"/cdn-cgi/challenge-platform/h/", "Cloudflare (challenge)"),
    (rb"window._cf_chl_opt", "Cloudflare (challenge)"),
    (rb"Incapsula incident ID", "Imperva (challenge)"),
    (rb"_Incapsula_Resource", "Imperva (challenge)"),
    (rb"captcha-delivery.com/", "DataDome (challenge)"),
    (rb"/_sec/cp_challenge/", "Akamai (challenge)"),
    (rb"sec-if-cpt-container", "Akamai (challenge)"),
    (rb"bm-verify", "Akamai (challenge)"),
    (rb"_pxAppId", "HUMAN (challenge)"),
    (rb"px-captcha", "HUMAN (challenge)"),
    (rb"sucuri_cloudproxy_js", "Sucuri (challenge)"),
    (rb"/.well-known/.git.gammaspectra.live/", "go-away (challenge)"),
    (rb"validate.perfdrive.com", "Radware (challenge)"),
    (rb"ddos-guard/js-challenge", "DDoS-Guard (challenge)"),
    (rb"awswaf.com/", "AWS WAF (challenge)"),
    (rb"/.haphash/", "HAProxy (challenge)"),
)
"""What challenges have in their code. A page about them shows its escaped form."""
_ALSO_IN_PAGES = frozenset(
    {
        b"/cdn-cgi/challenge-platform/h/",
        b"_Incapsula_Resource",
        b"_pxAppId",
        b"captcha-delivery.com/",
        b"awswaf.com/",
    }
)
_REFUSALS = (
    (rb"cf-error-details", "Cloudflare"),
    (rb"Attention Required! | Cloudflare", "Cloudflare"),
    (rb"Sorry, you have been blocked", "Cloudflare"),
    (rb"errors.edgesuite.net", "Akamai"),
    (rb"Sucuri WebSite Firewall", "Sucuri"),
    (rb"Generated by Wordfence", "Wordfence"),
    (rb"The requested URL was rejected. Please consult with your administrator", "F5"),
    (rb"Request blocked. We can't connect to the server for this app", "CloudFront"),
    (rb"unusual traffic from your computer network", "Google"),
    (rb"Microsoft-Azure-Application-Gateway", "Azure"),
)
"""Beside a status of refusal."""
_REFUSING_HEADERS = (("server", "akamaighost", "Akamai"), ("x-datadome", "", "DataDome"))
"""Beside a status of refusal, too."""
_CHALLENGE_TITLE = re.compile(
    rb"<title[^>]{0,200}>[^<]{0,100}?(?:just a moment|attention required|access denied"
    rb"|are you (?:a )?(?:human|robot)|verify(?:ing)? (?:that )?you(?:'re| are)|security check"
    rb"|checking your browser|ddos-guard|human verification"
    rb"|bot verification|robot check|making sure you|one moment, please|pardon our interruption)",
    re.IGNORECASE,
)
_CHALLENGE_SCRIPT = re.compile(
    rb"challenges\.cloudflare\.com/turnstile|hcaptcha\.com/1/api\.js|recaptcha/(?:api|enterprise)\.js"
    rb"|altcha|friendly-challenge|mcaptcha|proof.of.work|document\.cookie\s*=|http-equiv=[\"']?refresh",
    re.IGNORECASE,
)
_CHALLENGE_PLACES = (
    "validate.perfdrive.com",
    "geo.captcha-delivery.com",
    "/sorry/index?continue=",
    "/cdn-cgi/challenge-platform/",
    "/.within.website/",
    "/_Incapsula_Resource",
)
_REFUSING_STATUSES = frozenset({401, 403, 405, 406, 418, 429, 430, 444, 451, 463, 493, 503, 520, 521, 529})


def blocked_by(status: int, headers: Sequence[tuple[str, str]], body: bytes) -> str:
    """Which service refused a request, by status, headers and the shape of the page; empty if none did.
    `headers`: names in lower case."""
    if status == _PAYMENT_REQUIRED:
        price = next((f" ({value[:40]})" for name, value in headers if name == "crawler-price"), "")
        return f"payment required{price}"
    is_redirect = 300 <= status < 400
    service = _named_in(headers, _BY_HEADER)
    if service or is_redirect:
        leads_to = dict(headers).get("location", "") if is_redirect else ""
        is_challenge = any(place in leads_to for place in _CHALLENGE_PLACES)
        return service or ("a challenge to which it redirects" if is_challenge else "")
    if not body or len(body) > _LONGEST_CHALLENGE or status in {404, 410}:
        return ""
    if status in _REFUSING_STATUSES:
        service = next((service for mark, service in (*_BY_MARKUP, *_REFUSALS) if mark in body), "")
        service = service or _named_in(headers, _REFUSING_HEADERS)
    elif status < 300:
        if body.count(b"<a ") > _MOST_LINKS_OF_A_CHALLENGE or b"<" not in body:
            return ""
        service = _challenge_in(body)
    if not service and _CHALLENGE_TITLE.search(body) and _CHALLENGE_SCRIPT.search(body):
        return "a challenge page"
    return service


def _named_in(headers: Sequence[tuple[str, str]], marks: Sequence[tuple[str, str, str]]) -> str:
    for name, value in headers:
        for known, part, service in marks:
            if name == known and part in value.lower():
                return service
    return ""


def _challenge_in(body: bytes) -> str:
    for mark, service in _BY_MARKUP:
        if mark in body and _is_only_a_challenge(body, is_certain=mark not in _ALSO_IN_PAGES):
            return service
    return ""


_MOST_WORDS_OF_A_CHALLENGE = 250
_WITHOUT_WORDS = 40
_NO_CONTENT_BYTES = 4096


def _is_only_a_challenge(body: bytes, *, is_certain: bool) -> bool:
    """Whether there is little text besides scripts. Services add some of their scripts to ordinary pages as
    well, which then is not `is_certain`."""
    words = _words(body)
    if not is_certain:
        return len(body) <= _NO_CONTENT_BYTES and words <= _WITHOUT_WORDS // 2
    if words <= _WITHOUT_WORDS:
        return True
    return words <= _MOST_WORDS_OF_A_CHALLENGE and _CHALLENGE_TITLE.search(body) is not None


def _words(body: bytes) -> int:
    """How many words are outside tags, scripts and styles."""
    count, within = 0, b""
    for part in body.split(b"<"):
        tag, _, text = part.partition(b">")
        name = tag[:9].lower()
        if within:
            if name.startswith(within):
                within = b""
            else:
                continue
        else:
            within = next((b"/" + each for each in _NOT_TEXT if name.startswith(each)), b"")
            if within:
                continue
        count += len(text.split())
    return count


_NOT_TEXT = (b"script", b"style", b"svg", b"template")


# Preferences about what pages may be used for, from robots.txt (Content-Signal, Content-Usage) and from
# headers (these two, X-Robots-Tag, tdm-reservation). One spelling for all: purpose=yes or purpose=no.

PURPOSES = ("search", "archive", "ai-input", "ai-train", "tdm")
PREFERS = "prefers "
"""Before the preferences in the detail of an outcome."""
_SPELLINGS = {
    "train-ai": "ai-train",
    "train-genai": "ai-train",
    "genai": "ai-train",
    "ai": "ai-train",
    "use-as-input": "ai-input",
    "ai-use": "ai-input",
}
_WORD = re.compile(r"[a-z][a-z0-9_.-]{0,39}")
_MOST_PREFERENCES = 50
_ANSWERS = {"y": True, "yes": True, "?1": True, "1": True, "n": False, "no": False, "?0": False, "0": False}
_OF_X_ROBOTS = {"noarchive": "archive", "nocache": "archive", "noai": "ai-train", "noimageai": "ai-train"}
_WITH_VALUE = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
"""Directives of X-Robots-Tag, which a colon does not make the name of a robot."""
_OF_TEXT_AND_DATA_MINING = ("tdm", "ai-train")
_EVERYTHING = frozenset({"all", "bots", "automated-processing"})


def preferences_of(text: str) -> dict[str, bool]:
    """Of a Content-Signal or Content-Usage: `search=yes, ai-train=no`. What cannot be read is left out; of
    two answers for a purpose the stricter one counts."""
    found: dict[str, bool] = {}
    for part in text[:4000].lower().split(",")[:_MOST_PREFERENCES]:
        name, _, answer = part.partition("=")
        name, is_allowed = name.strip(), _ANSWERS.get(answer.partition(";")[0].strip().strip('"'))
        if is_allowed is None or not _WORD.fullmatch(name):
            continue
        for purpose in PURPOSES if name in _EVERYTHING else (_SPELLINGS.get(name, name),):
            found[purpose] = found.get(purpose, True) and is_allowed
    return found


def header_preferences(headers: Sequence[tuple[str, str]], product_token: str) -> dict[str, bool]:
    """Of an answer. `headers`: names in lower case."""
    found: dict[str, bool] = {}
    for name, value in headers:
        if name in {"content-usage", "content-signal"}:
            found = stricter(found, preferences_of(value))
        elif name == "tdm-reservation" and value.strip() == "1":
            found = stricter(found, dict.fromkeys(_OF_TEXT_AND_DATA_MINING, False))
        elif name == "x-robots-tag":
            found = stricter(found, _of_x_robots(value, product_token))
    return found


def _of_x_robots(value: str, product_token: str) -> dict[str, bool]:
    found: dict[str, bool] = {}
    is_for_us = True
    for part in value[:4000].lower().split(",")[:_MOST_PREFERENCES]:
        agent, colon, rest = part.partition(":")
        if colon and " " not in agent.strip() and agent.strip() not in _WITH_VALUE:
            is_for_us = agent.strip() in {"robots", "*", product_token.lower()}
        purpose = _OF_X_ROBOTS.get((rest if colon else part).strip())
        if purpose is not None and is_for_us:
            found[purpose] = False
    return found


def stricter(one: Mapping[str, bool], other: Mapping[str, bool]) -> dict[str, bool]:
    """Both together: what one of them forbids is forbidden."""
    return {name: one.get(name, True) and other.get(name, True) for name in (*one, *other)}


def forbidden(preferences: Mapping[str, bool], purposes: Sequence[str]) -> str:
    """The first purpose of the crawl that is forbidden; empty if none is."""
    return next((purpose for purpose in purposes if not preferences.get(purpose, True)), "")


def preferences_text(preferences: Mapping[str, bool]) -> str:
    """For the detail of an outcome; empty without preferences."""
    if not preferences:
        return ""
    words = (f"{name}={'yes' if preferences[name] else 'no'}" for name in sorted(preferences))
    return PREFERS + " ".join(words)


def preferences_in(detail: str) -> dict[str, bool]:
    """The preferences in the detail of an outcome."""
    _, found, text = detail.partition(PREFERS)
    if not found:
        return {}
    words = (word.partition("=") for word in text.partition(";")[0].split())
    return {name: answer == "yes" for name, _, answer in words if answer in {"yes", "no"}}


def visit_at(at: Instant, minutes: tuple[int, int]) -> Instant:
    """When a site may be visited that names minutes of the day (UTC): at that instant, or when they begin."""
    begin_s, end_s = (60.0 * minute for minute in minutes)
    passed_s = at % _DAY_S
    is_within = begin_s <= passed_s < end_s if begin_s < end_s else not end_s <= passed_s < begin_s
    return at if is_within else Instant(at + (begin_s - passed_s) % _DAY_S)


_DAY_S = 86_400.0


def with_preferences(detail: str, preferences: Mapping[str, bool]) -> str:
    """The detail with further preferences."""
    if not preferences:
        return detail
    before, _, _ = detail.partition(PREFERS)
    text = preferences_text(stricter(preferences_in(detail), preferences))
    before = before.rstrip("; ")
    return f"{before}; {text}" if before else text
